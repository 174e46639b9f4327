// A reader of server-sent events.  It takes every event type, and goes on after the last durable one when it was cut.
import { address, Problem, problemOf } from './api';

export interface Sent { id: string | null; event: string; data: unknown }

const WAIT_MS = [500, 1000, 2000, 5000];

export interface Following { stop(): void }

/** Read a stream once, to its end; raises a `Problem` if there is none. */
export async function readStream(url: string, take: (sent: Sent) => void, signal: AbortSignal, last: string | null = null, opened = (): void => {}): Promise<void> {
  const headers: Record<string, string> = { Accept: 'text/event-stream' };
  if (last !== null) headers['Last-Event-ID'] = last;
  const answer = await fetch(address(url), { headers, credentials: 'same-origin', signal });
  if (!answer.ok || !answer.body) throw await problemOf(answer);
  opened();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = frames(take);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    parser(value);
  }
}

/**
 * Read a stream for as long as it is wanted, again and again.  A tab that is not in view lets its connection go, and goes
 * on after the last durable event when it is: a browser has six connections to a server, for all its tabs.
 */
export function follow(url: string, take: (sent: Sent) => void, state: (open: boolean, problem?: Problem, again?: boolean) => void): Following {
  let connection = new AbortController();
  let stopped = false;
  let last: string | null = null;
  let failures = 0;
  let tries = 0;
  let shown = (): void => {};

  async function read(): Promise<boolean> {
    try {
      await readStream(
        url,
        (sent) => {
          if (sent.id !== null) last = sent.id;
          take(sent);
        },
        connection.signal,
        last,
        () => {
          failures = 0;
          state(true, undefined, tries > 1);
        },
      );
      return true;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      state(false, error);
      return error.status >= 500 || error.status === 429;
    }
  }

  function look(): void {
    if (document.hidden) connection.abort();
    else shown();
  }
  document.addEventListener('visibilitychange', look);

  void (async () => {
    while (!stopped) {
      if (document.hidden) {
        await new Promise<void>((resolve) => (shown = resolve));
        continue;
      }
      connection = new AbortController();
      tries++;
      try {
        if (!(await read())) return;
      } catch {
        if (connection.signal.aborted) continue;
      }
      state(false);
      await new Promise((resolve) => setTimeout(resolve, WAIT_MS[Math.min(failures++, WAIT_MS.length - 1)]));
    }
  })();
  return {
    stop: () => {
      stopped = true;
      document.removeEventListener('visibilitychange', look);
      connection.abort();
      shown();
    },
  };
}

/** Cut text into frames; a frame ends with an empty line. */
export function frames(take: (sent: Sent) => void): (text: string) => void {
  let rest = '';
  return (text) => {
    const found = (rest + text).replaceAll('\r\n', '\n').split('\n\n');
    rest = found.pop() ?? '';
    for (const frame of found) {
      const sent: Sent = { id: null, event: 'message', data: null };
      const data: string[] = [];
      for (const line of frame.split('\n')) {
        const colon = line.indexOf(':');
        const name = colon < 0 ? line : line.slice(0, colon);
        const value = line.slice(colon + 1).replace(/^ /, '');
        if (name === 'id') sent.id = value;
        else if (name === 'event') sent.event = value;
        else if (name === 'data') data.push(value);
      }
      if (data.length) {
        sent.data = JSON.parse(data.join('\n'));
        take(sent);
      }
    }
  };
}
