// The turns of one timeline, fetched in blocks of twenty by position, and only those that are looked at.
import { SvelteMap, SvelteSet } from 'svelte/reactivity';
import { get, threadUrl, type Problem } from '../lib/api';
import { asProblem } from '../lib/load.svelte';
import type { Turn, TurnPage } from '../lib/shapes';

export const BLOCK = 20;
const BLOCKS_KEPT = 40;
const NEWEST = 3;
const PASSING_MS = 60; // a block that only passes by is not fetched

export class Turns {
  total = $state(0);
  loaded = $state(false); // the total is known
  problem = $state.raw<Problem | null>(null);
  readonly byPosition = new SvelteMap<number, Turn>();
  readonly settled = new SvelteMap<string, string>(); // by call that ended unclear: as what it was settled later
  readonly visible = new SvelteSet<number>();
  #fetching = new Map<number, AbortController>();
  #used: number[] = [];
  #asked = 0; // requests so far; answers may come in another order
  #newest = 0; // the latest request for the newest turns that was answered
  #askedFor = new Map<number, number>(); // by position: the request whose answer is shown

  constructor(readonly thread: string, readonly timeline: string) {}

  get blocks(): number {
    return Math.ceil(this.total / BLOCK);
  }

  positions(block: number): number[] {
    const first = block * BLOCK + 1;
    return Array.from({ length: Math.max(0, Math.min(BLOCK, this.total - first + 1)) }, (_, at) => first + at);
  }

  show(block: number): void {
    this.visible.add(block);
    void this.#fetch(block, PASSING_MS);
  }

  /** The turn at a moment, up to that moment: it may be in the middle of the turn.  The turns around it are fetched, too. */
  async find(moment: string): Promise<Turn | null> {
    const known = [...this.byPosition.values()].find((turn) => turn.after === moment);
    if (known) return known;
    const page = await get<TurnPage>(threadUrl(this.thread, 'turns', { timeline: this.timeline, at: moment, limit: 1 }));
    const found = page.turns[0] ?? null;
    if (found) void this.#fetch(Math.floor((found.position - 1) / BLOCK));
    return found;
  }

  hide(block: number): void {
    this.visible.delete(block);
    this.#fetching.get(block)?.abort();
    this.#fetching.delete(block);
  }

  async #fetch(block: number, afterMs = 0): Promise<void> {
    this.#used = [block, ...this.#used.filter((each) => each !== block)];
    const positions = this.positions(block);
    if (this.#fetching.has(block) || positions.every((position) => this.byPosition.has(position))) return;
    const control = new AbortController();
    this.#fetching.set(block, control);
    if (afterMs) await new Promise((resolve) => setTimeout(resolve, afterMs));
    if (control.signal.aborted) return;
    try {
      const asked = ++this.#asked;
      const at = `position:${positions[positions.length - 1]}`;
      const page = await get<TurnPage>(threadUrl(this.thread, 'turns', { timeline: this.timeline, at, limit: positions.length }), control.signal);
      this.#keep(page, asked);
      this.problem = null;
    } catch (error) {
      if (!control.signal.aborted) this.problem = asProblem(error);
    } finally {
      if (this.#fetching.get(block) === control) this.#fetching.delete(block);
    }
  }

  #keep({ turns, settled }: TurnPage, asked: number): void {
    for (const [call, outcome] of Object.entries(settled)) this.settled.set(call, outcome);
    for (const turn of turns) {
      if ((this.#askedFor.get(turn.position) ?? 0) > asked) continue; // a later request was answered before this one
      this.byPosition.set(turn.position, turn);
      this.#askedFor.set(turn.position, asked);
    }
    for (const block of this.#used.splice(BLOCKS_KEPT)) {
      if (!this.visible.has(block)) for (const position of this.positions(block)) this.byPosition.delete(position);
    }
  }

  /** Read the newest turns again; the line may have grown, or gone back.  The first time, and where it has grown, read a block of them. */
  async refresh(grown = this.total === 0 ? BLOCK : 0): Promise<void> {
    const asked = ++this.#asked;
    try {
      const page = await get<TurnPage>(threadUrl(this.thread, 'turns', { timeline: this.timeline, limit: Math.min(BLOCK, grown + NEWEST) }));
      if (asked < this.#newest) return;
      this.#newest = asked;
      const first = page.turns[0];
      const total = page.turns[page.turns.length - 1]?.position ?? 0;
      if (first && first.position > this.total + 1 && this.total > 0 && grown < BLOCK) return await this.refresh(BLOCK);
      const before = first && this.byPosition.get(first.position - 1);
      if (before && before.after !== first.before) this.byPosition.clear();
      this.#keep(page, asked);
      for (const position of [...this.byPosition.keys()]) if (position > total) this.byPosition.delete(position);
      this.total = total;
    } catch (error) {
      this.problem = asProblem(error);
    }
    this.loaded = true;
    for (const block of this.visible) if (block < this.blocks) void this.#fetch(block);
  }
}
