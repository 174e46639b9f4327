// Differences of texts by lines: the longest common subsequence, after the equal ends were cut off.
import { pretty } from './format';
import type { Json } from './shapes';

export interface Line { mark: ' ' | '-' | '+'; text: string }
interface Printed { text: string; key: string } // lines with the same key are equal

const CELLS_MAX = 4_000_000;

/** The lines of two values, printed; undefined: there is none. */
export function lines(before: Json | undefined, after: Json | undefined): Line[] {
  // The comma behind an entry of a document says only that another one follows; in a text it is a part of it.
  const isText = typeof before === 'string' || typeof after === 'string';
  const print = (value: Json | undefined): Printed[] =>
    value === undefined ? [] : pretty(value).split('\n').map((text) => ({ text, key: isText ? text : text.replace(/,$/, '') }));
  const a = print(before);
  const b = print(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start]!.key === b[start]!.key) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end]!.key === b[b.length - 1 - end]!.key) end++;
  return [
    ...marked(' ', b.slice(0, start)),
    ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...marked(' ', b.slice(b.length - end)),
  ];
}

const marked = (mark: Line['mark'], printed: Printed[]): Line[] => printed.map(({ text }) => ({ mark, text }));

function middle(a: Printed[], b: Printed[]): Line[] {
  const removed = marked('-', a);
  const added = marked('+', b);
  if (!a.length || !b.length || a.length * b.length > CELLS_MAX) return [...removed, ...added];
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] = a[i]!.key === b[j]!.key
        ? longest[(i + 1) * width + j + 1]! + 1
        : Math.max(longest[(i + 1) * width + j]!, longest[i * width + j + 1]!);
    }
  }
  const found: Line[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    if (a[i]!.key === b[j]!.key) {
      found.push({ mark: ' ', text: b[j]!.text });
      i++;
      j++;
    } else if (longest[(i + 1) * width + j]! >= longest[i * width + j + 1]!) found.push(removed[i++]!);
    else found.push(added[j++]!);
  }
  return [...found, ...removed.slice(i), ...added.slice(j)];
}

/** Whether two values are the same JSON; the order of keys does not count. */
export function isSame(a: Json | undefined, b: Json | undefined): boolean {
  if (a === null || b === null || typeof a !== 'object' || typeof b !== 'object') return a === b;
  if (Array.isArray(a) || Array.isArray(b)) return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((each, at) => isSame(each, b[at]));
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => name in b && isSame(a[name], b[name]));
}

export interface PlaceChange { place: (string | number)[]; before: Json | undefined; after: Json | undefined }

/** The innermost places at which two values differ; undefined: there is no value. */
export function changedPlaces(before: Json | undefined, after: Json | undefined, place: (string | number)[] = []): PlaceChange[] {
  if (isSame(before, after)) return [];
  const isNested = before !== null && after !== null && typeof before === 'object' && typeof after === 'object' && Array.isArray(before) === Array.isArray(after);
  if (!isNested) return [{ place, before, after }];
  const [old, now] = [before as Record<string, Json>, after as Record<string, Json>];
  const names = [...new Set([...Object.keys(old), ...Object.keys(now)])];
  return names.flatMap((name) => changedPlaces(old[name], now[name], [...place, Array.isArray(after) ? Number(name) : name]));
}

/** The lines that changed, each with a few around it; null stands for lines that are left out. */
export function hunks(all: Line[], around = 3): (Line | null)[] {
  const near = new Array<boolean>(all.length).fill(false);
  all.forEach((line, at) => {
    if (line.mark !== ' ') near.fill(true, Math.max(0, at - around), Math.min(all.length, at + around + 1));
  });
  const shown: (Line | null)[] = [];
  all.forEach((line, at) => {
    if (near[at]) shown.push(line);
    else if (shown.length === 0 || shown[shown.length - 1] !== null) shown.push(null);
  });
  return shown;
}
