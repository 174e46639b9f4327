// What a run is writing at this moment.  Words that are not committed yet are shown here, committed ones in the transcript.
import { threadUrl } from '../lib/api';
import { follow, type Following } from '../lib/stream';

export interface Progress { call: string; tool: string; state: string; arguments: string; fraction: number | null; message: string }

export class Live {
  text = $state('');
  reasoning = $state('');
  calls = $state.raw<Progress[]>([]);
  running = $state(false);
  open = $state(false);
  #following: Following;
  #timer = 0;

  constructor(thread: string, timeline: string, private readonly committed: (shown: () => void) => Promise<void>) {
    this.#following = follow(
      threadUrl(thread, 'events', { timeline }),
      ({ data }) => this.#take(data as { type: string } & Record<string, unknown>),
      (open, _, again) => {
        this.open = open;
        if (open && again) {
          // A run that is still alive says so again; what was committed before this connection is read.
          this.running = false;
          this.text = this.reasoning = '';
          this.#soon(false);
        }
      },
    );
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#following.stop();
  }

  #take(sent: { type: string } & Record<string, unknown>): void {
    switch (sent.type) {
      case 'text.so_far':
        this.running = true;
        this.text = String(sent['text']);
        this.reasoning = String(sent['reasoning'] ?? '');
        break;
      case 'text.delta':
        this.running = true;
        this.text += String(sent['text']);
        break;
      case 'reasoning.delta':
        this.running = true;
        this.reasoning += String(sent['text']);
        break;
      case 'call.progress': {
        const progress = sent as unknown as Progress;
        this.calls = [...this.calls.filter((each) => each.call !== progress.call), progress];
        break;
      }
      case 'run.started':
        this.running = true;
        this.#soon(false);
        break;
      case 'run.finished':
      case 'run.failed':
      case 'run.cancelled':
        this.running = false;
        this.#soon(true);
        break;
      case 'message.appended':
      case 'committed':
        this.#soon(true);
        break;
      default:
        this.#soon(false);
    }
  }

  #soon(clear: boolean): void {
    const text = this.text;
    const reasoning = this.reasoning;
    clearTimeout(this.#timer);
    // Words leave this place at the moment when the transcript has them: they are never shown twice, nor not at all.
    const shown = (): void => {
      if (!clear) return;
      if (this.text.startsWith(text)) this.text = this.text.slice(text.length);
      if (this.reasoning.startsWith(reasoning)) this.reasoning = this.reasoning.slice(reasoning.length);
      this.calls = [];
    };
    this.#timer = window.setTimeout(() => void this.committed(shown), 150);
  }
}
