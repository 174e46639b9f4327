// A list that comes in pages: the first one follows what its address reads, and `more` adds the next one.
import { getWithTag, type Answered, type Problem } from './api';
import { asProblem, Loaded } from './load.svelte';

interface Page { next?: string | null }

export class Pages<P extends Page, T> {
  isBusy = $state(false);
  #first: Loaded<Answered<P>>;
  #further = $state.raw<P[]>([]);
  #failed = $state.raw<Problem | null>(null);

  /** `address` names the page after a cursor; null: there is nothing to read.  `itemsOf` gives the items of a page. */
  constructor(private readonly address: (after: string | null) => string | null, private readonly itemsOf: (page: P) => T[]) {
    this.#first = new Loaded((signal) => {
      const first = address(null);
      this.#further = [];
      this.#failed = null;
      return first === null ? null : getWithTag<P>(first, signal);
    });
  }

  get items(): T[] {
    const first = this.#first.data;
    return first ? [first.body, ...this.#further].flatMap((page) => this.itemsOf(page)) : [];
  }

  /** The first page as the server sent it; null: it is not read yet. */
  get first(): P | null {
    return this.#first.data?.body ?? null;
  }

  get next(): string | null {
    return (this.#further.at(-1) ?? this.#first.data?.body)?.next ?? null;
  }

  /** Whether more than the first page is read. */
  get isLong(): boolean {
    return this.#further.length > 0;
  }

  /** How long the server took for the first page. */
  get tookMs(): number {
    return this.#first.tookMs;
  }

  get isRead(): boolean {
    return this.#first.data !== null;
  }

  /** The head that the first page was read at. */
  get etag(): string | null {
    return this.#first.data?.etag ?? null;
  }

  get problem(): Problem | null {
    return this.#first.problem ?? this.#failed;
  }

  again(): void {
    this.#first.again();
  }

  async more(): Promise<void> {
    const first = this.#first.data;
    const address = this.next === null ? null : this.address(this.next);
    if (address === null || this.isBusy) return;
    this.isBusy = true;
    try {
      const { body } = await getWithTag<P>(address);
      if (first === this.#first.data) this.#further = [...this.#further, body];
    } catch (error) {
      this.#failed = asProblem(error);
    } finally {
      this.isBusy = false;
    }
  }
}
