// The messages that have some words, page by page.
import { get, type Problem } from './api';
import { asProblem, Loaded } from './load.svelte';
import type { Found, Search } from './shapes';

export class Hits {
  isBusy = $state(false);
  #first: Loaded<Search>;
  #older = $state.raw<Search | null>(null); // the further pages, all in one
  #failed = $state.raw<Problem | null>(null);

  /** `address` names the page after a cursor; null: there is nothing to search for.  What it reads is followed. */
  constructor(private readonly address: (after: string | null) => string | null) {
    this.#first = new Loaded((signal) => {
      const first = address(null);
      this.#older = this.#failed = null;
      return first === null ? null : get<Search>(first, signal);
    });
  }

  get found(): Found[] {
    return [...(this.#first.data?.found ?? []), ...(this.#older?.found ?? [])];
  }

  get next(): string | null {
    return (this.#older ?? this.#first.data)?.next ?? null;
  }

  get isRead(): boolean {
    return this.#first.data !== null;
  }

  get problem(): Problem | null {
    return this.#first.problem ?? this.#failed;
  }

  async more(): Promise<void> {
    const first = this.#first.data;
    const address = this.address(this.next);
    if (address === null) return;
    this.isBusy = true;
    try {
      const page = await get<Search>(address);
      if (first === this.#first.data) this.#older = { ...page, found: [...(this.#older?.found ?? []), ...page.found] };
    } catch (error) {
      this.#failed = asProblem(error);
    } finally {
      this.isBusy = false;
    }
  }
}
