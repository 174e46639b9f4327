// Differences of texts by lines: the longest common subsequence, after the equal ends were cut off.
export interface Line { mark: ' ' | '-' | '+'; text: string }

const CELLS_MAX = 4_000_000;

export function lines(before: string, after: string): Line[] {
  const a = before ? before.split('\n') : []; // nothing has no line, not an empty one
  const b = after ? after.split('\n') : [];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const same = (text: string): Line => ({ mark: ' ', text });
  return [
    ...a.slice(0, start).map(same),
    ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...a.slice(a.length - end).map(same),
  ];
}

function middle(a: string[], b: string[]): Line[] {
  const removed = a.map((text): Line => ({ mark: '-', text }));
  const added = b.map((text): Line => ({ mark: '+', text }));
  if (!a.length || !b.length || a.length * b.length > CELLS_MAX) return [...removed, ...added];
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] = a[i] === b[j]
        ? longest[(i + 1) * width + j + 1]! + 1
        : Math.max(longest[(i + 1) * width + j]!, longest[i * width + j + 1]!);
    }
  }
  const found: Line[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      found.push({ mark: ' ', text: a[i]! });
      i++;
      j++;
    } else if (longest[(i + 1) * width + j]! >= longest[i * width + j + 1]!) found.push(removed[i++]!);
    else found.push(added[j++]!);
  }
  return [...found, ...removed.slice(i), ...added.slice(j)];
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
