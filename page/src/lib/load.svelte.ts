// Data that follows what it depends on.  The old answer stays on screen until the new one is there.
import { untrack } from 'svelte';
import { Problem } from './api';

/** How often the server was there again after it was not. */
export const connection = $state({ returns: 0 });

export class Loaded<T> {
  data = $state.raw<T | null>(null);
  problem = $state.raw<Problem | null>(null);
  loading = $state(false);
  tookMs = 0; // for the last answer
  #again = $state(0);

  /** `load` is called in a component's set-up; what it reads before its first await is followed. Null: nothing to load. */
  constructor(load: (signal: AbortSignal) => Promise<T> | null) {
    $effect(() => {
      void this.#again;
      const control = new AbortController();
      const promise = load(control.signal);
      if (promise === null) {
        this.data = null;
        this.problem = null;
        return;
      }
      this.loading = true;
      const began = performance.now();
      promise.then(
        (data) => {
          if (control.signal.aborted) return;
          this.data = data;
          this.problem = null;
          this.loading = false;
          this.tookMs = performance.now() - began;
        },
        (error: unknown) => {
          if (control.signal.aborted) return;
          this.problem = asProblem(error);
          this.loading = false;
        },
      );
      return () => control.abort();
    });
    $effect(() => {
      if (connection.returns && untrack(() => this.problem && (this.problem.status === 0 || this.problem.status >= 500))) untrack(() => this.again());
    });
  }

  again(): void {
    this.#again++;
  }
}

export function asProblem(error: unknown): Problem {
  return error instanceof Problem ? error : new Problem(0, 'unexpected', String(error));
}
