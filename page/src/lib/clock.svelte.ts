// The time now as the server has it: what it recorded is compared with that, and the clock of this machine may be wrong.
import { createSubscriber } from 'svelte/reactivity';

const SLACK_MS = 3000; // an answer takes time, and names its own to the second

let ahead = 0; // ms of the server

export function setClock(date: string | null): void {
  const found = Date.parse(date ?? '') - Date.now();
  ahead = Math.abs(found) > SLACK_MS ? found : 0;
}

export const timeNow = (): number => Date.now() + ahead;

// It ticks only while something on the page counts.
const tick = createSubscriber((changed) => {
  const timer = setInterval(changed, 1000);
  return () => clearInterval(timer);
});

/** The time now, for what counts up by the second. */
export function ticking(): number {
  tick();
  return timeNow();
}
