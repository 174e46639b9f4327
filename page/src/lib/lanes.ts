// Places the turns of all timelines on lanes: newest first, a lane for each line that is open at a row.
import type { GraphNode } from './shapes';

export interface LaneRow {
  node: GraphNode;
  lane: number;
  through: number[]; // lanes that only pass by
  down: number[]; // lanes on which the parents are, below
  up: boolean; // something follows on the same lane
  joined: number[]; // lanes of other children that end at this node
  width: number;
}

export function place(nodes: GraphNode[]): LaneRow[] {
  const open: (string | null)[] = []; // the commit that each lane waits for
  const free = (): number => {
    const at = open.indexOf(null);
    return at < 0 ? open.push(null) - 1 : at;
  };
  return nodes.map((node) => {
    const waiting = open.flatMap((commit, lane) => (commit === node.commit ? [lane] : []));
    const lane = waiting[0] ?? free();
    const joined = waiting.slice(1);
    for (const each of joined) open[each] = null;
    open[lane] = null;
    const through = open.flatMap((commit, each) => (commit !== null ? [each] : []));
    const down = node.parents.map((parent, order) => {
      const there = open.indexOf(parent);
      if (there >= 0) return there;
      const next = order === 0 ? lane : free();
      open[next] = parent;
      return next;
    });
    return { node, lane, through, down, up: waiting.length > 0, joined, width: open.length };
  });
}
