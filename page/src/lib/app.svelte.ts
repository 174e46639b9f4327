// What the whole page shares: who is asking, what waits, the theme, and short notices.
import { credential, get } from './api';
import type { Problem } from './api';
import type { Session } from './shapes';
import { asProblem, connection } from './load.svelte';
import { follow, type Following } from './stream';

export interface Changed { thread: string; at: number }

class Shared {
  session = $state.raw<Session | null>(null);
  signedOut = $state(false);
  problem = $state.raw<Problem | null>(null);
  waiting = $state(0);
  running = $state(0);
  online = $state(true);
  changed = $state.raw<Changed | null>(null); // the thread that changed last
  notice = $state('');
  now = $state(Date.now());
  help = $state(false);
  marked = $state.raw<{ thread: string; timeline: string; at: string; label: string } | null>(null); // to compare with
  #feed: Following | null = null;
  #clear = 0;

  can(role: 'operator' | 'approver' | 'admin'): boolean {
    const roles = this.session?.roles ?? [];
    return !this.session?.read_only && (roles.includes(role) || roles.includes('admin'));
  }

  async open(): Promise<void> {
    try {
      this.session = await get<Session>('/v1/session');
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
  app.now = Date.now();
}, 5000);
