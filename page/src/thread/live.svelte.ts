// What a run is writing at this moment.  Words that are not committed yet are shown here, committed ones in the transcript.
import { threadUrl } from '../lib/api';
import { follow, type Following } from '../lib/stream';

export interface Progress { call: string; tool: string; state: string; arguments: string; fraction: number | null; message: string }

const FIRST_MS = 100; // a stream that has not begun by then does not keep the thread from being shown
const PAUSE_MS = 150; // what comes without a longer pause is read together
const LATEST_MS = 1000; // but not later than this: a busy run makes no pause

export class Live {
  text = $state('');
  reasoning = $state('');
  calls = $state.raw<Progress[]>([]);
  running = $state(false);
  open = $state(false);
  #following: Following;
  #timer = 0;
  #latest = 0; // when the thread is read at the latest; 0: nothing is to be read

  constructor(thread: string, timeline: string, private readonly committed: (shown: () => void) => Promise<void>) {
    this.#timer = window.setTimeout(() => void this.committed(() => {}), document.hidden ? 0 : FIRST_MS);
    this.#following = follow(
      threadUrl(thread, 'events', { timeline }),
      ({ data }) => this.#take(data as { type: string } & Record<string, unknown>),
      (open, _, again) => {
        this.open = open;
        if (open && again) {
          // A run that is still alive says so again.
          this.running = false;
          this.text = this.reasoning = '';
        }
        // A stream begins where the thread stands: what was committed before, and after the thread was read, is in no event.
        if (open) this.#soon(false, again ? PAUSE_MS : 0);
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

  #soon(clear: boolean, afterMs = PAUSE_MS): void {
    const text = this.text;
    const reasoning = this.reasoning;
    clearTimeout(this.#timer);
    this.#latest ||= Date.now() + LATEST_MS;
    // Words leave this place at the moment when the transcript has them: they are never shown twice, nor not at all.
    const shown = (): void => {
      if (!clear) return;
      if (this.text.startsWith(text)) this.text = this.text.slice(text.length);
      if (this.reasoning.startsWith(reasoning)) this.reasoning = this.reasoning.slice(reasoning.length);
      this.calls = [];
    };
    this.#timer = window.setTimeout(() => {
      this.#latest = 0;
      void this.committed(shown);
    }, Math.min(afterMs, this.#latest - Date.now()));
  }
}
