// Places the turns of all timelines on lanes: newest first, a lane for each line that is open at a row.
import type { GraphNode } from './shapes';

/** A line from a turn down to its parent. */
export interface Line { lane: number; child: string }

export interface LaneRow {
  node: GraphNode;
  lane: number;
  through: Line[]; // lines that only pass by
  down: number[]; // lanes on which the parents are, below
  up: Line | null; // the line of the turn that follows on the same lane
  joined: Line[]; // lines of other children that end at this node
  width: number;
}

export function place(nodes: GraphNode[]): LaneRow[] {
  const open: ({ parent: string; child: string } | null)[] = []; // the commit that each lane waits for, and who follows it
  const line = (lane: number): Line => ({ lane, child: open[lane]!.child });
  const free = (): number => {
    const at = open.indexOf(null);
    return at < 0 ? open.push(null) - 1 : at;
  };
  return nodes.map((node) => {
    const [up = null, ...joined] = open.flatMap((each, lane) => (each?.parent === node.commit ? [line(lane)] : []));
    const lane = up?.lane ?? free();
    for (const each of [lane, ...joined.map((one) => one.lane)]) open[each] = null;
    const through = open.flatMap((each, lane) => (each !== null ? [line(lane)] : []));
    const down = node.parents.map((parent, order) => {
      const there = open.findIndex((each) => each?.parent === parent);
      if (there >= 0) return there;
      const next = order === 0 ? lane : free();
      open[next] = { parent, child: node.commit };
      return next;
    });
    return { node, lane, through, down, up, joined, width: open.length };
  });
}
