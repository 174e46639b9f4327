// What the whole page shares: who is asking, what waits, the theme, and short notices.
import { credential, get, getWithTag } from './api';
import type { Problem } from './api';
import { setClock, timeNow } from './clock.svelte';
import type { CallPage, Session } from './shapes';
import { asProblem, connection } from './load.svelte';
import { follow, type Following } from './stream';

export interface Changed { thread: string; at: number }

const COUNT_MS = 5000; // between two counts
const UNKNOWN_SHOWN = 20;

class Shared {
  session = $state.raw<Session | null>(null);
  signedOut = $state(false);
  problem = $state.raw<Problem | null>(null);
  waiting = $state(0);
  running = $state(0);
  unknown = $state(0); // calls whose outcome is unknown
  hasMoreUnknown = $state(false);
  online = $state(true);
  changed = $state.raw<Changed | null>(null); // the thread that changed last
  notice = $state('');
  now = $state(timeNow());
  help = $state(false);
  marked = $state.raw<{ thread: string; timeline: string; at: string; label: string } | null>(null); // to compare with
  #feed: Following | null = null;
  #clear = 0;
  #counting = 0;
  #countedAt = 0;

  can(role: 'operator' | 'approver' | 'admin'): boolean {
    const roles = this.session?.roles ?? [];
    return !this.session?.read_only && (roles.includes(role) || roles.includes('admin'));
  }

  async open(): Promise<void> {
    try {
      const answer = await getWithTag<Session>('/v1/session');
      setClock(answer.date);
      this.now = timeNow();
      this.session = answer.body;
      this.signedOut = false;
      this.problem = null;
      this.listen();
    } catch (error) {
      this.problem = asProblem(error);
    }
  }

  listen(): void {
    this.#feed?.stop();
    this.#feed = follow(
      '/v1/events',
      ({ data }) => {
        this.count();
        const sent = data as { type: string; approvals?: number; running?: number; waiting?: number; thread?: string };
        if (sent.type === 'hello') {
          this.waiting = sent.approvals ?? 0;
          this.running = sent.running ?? 0;
          this.changed = { thread: '', at: Date.now() };
        } else if (sent.type === 'approvals') this.waiting = sent.waiting ?? 0;
        else if (sent.type === 'thread') this.changed = { thread: sent.thread ?? '', at: Date.now() };
      },
      (open, _, again) => {
        this.online = open;
        if (open && again) connection.returns++;
      },
    );
  }

  /** Count the unknown calls soon: not for each event, as a busy store has many; `now`: after an act of this person. */
  count(now = false): void {
    if (now) {
      clearTimeout(this.#counting);
      this.#counting = this.#countedAt = 0;
    }
    this.#counting ||= window.setTimeout(async () => {
      this.#counting = 0;
      this.#countedAt = Date.now();
      try {
        const page = await get<CallPage>(`/v1/calls?limit=${UNKNOWN_SHOWN}`);
        this.unknown = page.calls.length;
        this.hasMoreUnknown = page.more;
      } catch {
        // the next event counts again
      }
    }, Math.max(0, this.#countedAt + COUNT_MS - Date.now()));
  }

  say(text: string): void {
    this.notice = text;
    clearTimeout(this.#clear);
    this.#clear = window.setTimeout(() => {
      this.notice = '';
    }, 6000);
  }
}

export const app = new Shared();
credential.lost = () => {
  app.signedOut = true;
};
setInterval(() => {
  app.now = timeNow();
}, 5000);
