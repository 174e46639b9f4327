// A reader of server-sent events.  It takes every event type, and goes on after the last durable one when it was cut.
import { address, problemOf, type Problem } from './api';

export interface Sent { id: string | null; event: string; data: unknown }

const WAIT_MS = [500, 1000, 2000, 5000];

export interface Following { stop(): void }

export function follow(url: string, take: (sent: Sent) => void, state: (open: boolean, problem?: Problem) => void): Following {
  const control = new AbortController();
  let last: string | null = null;
  let failures = 0;

  async function read(): Promise<boolean> {
    const headers: Record<string, string> = { Accept: 'text/event-stream' };
    if (last !== null) headers['Last-Event-ID'] = last;
    const answer = await fetch(address(url), { headers, credentials: 'same-origin', signal: control.signal });
    if (!answer.ok || !answer.body) {
      const problem = await problemOf(answer);
      state(false, problem);
      return problem.status >= 500 || problem.status === 429;
    }
    state(true);
    failures = 0;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = frames((sent) => {
      if (sent.id !== null) last = sent.id;
      take(sent);
    });
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return true;
      parser(value);
    }
  }

  void (async () => {
    while (!control.signal.aborted) {
      try {
        if (!(await read())) return;
      } catch {
        if (control.signal.aborted) return;
      }
      state(false);
      await new Promise((resolve) => setTimeout(resolve, WAIT_MS[Math.min(failures++, WAIT_MS.length - 1)]));
    }
  })();
  return { stop: () => control.abort() };
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
