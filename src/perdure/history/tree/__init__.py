"""The versioned map: paths to values, as a tree of nodes named by digest.

An ordered radix tree whose shape is a pure function of its entries (see `encoding`).  The same content
has the same root whatever the order of writes; a change costs one path of nodes; listing by
prefix is ordered; comparing two maps costs what differs; hostile keys cannot unbalance it.

    tree = Tree(nodes, root)
    draft = tree.edit()
    draft.put(entry)
    root, objects = draft.finish()
"""

from __future__ import annotations

from perdure.history.tree.compare import EntrySource, Meeting, PathChange, diff, merge3
from perdure.history.tree.encoding import Entry
from perdure.history.tree.map import MapDraft, Tree, build
from perdure.history.tree.read import EMPTY, NodeCache, Nodes
from perdure.history.tree.traverse import NodeFault, bodies, check, reachable, refs

__all__ = [
    "EMPTY",
    "NodeCache",
    "PathChange",
    "MapDraft",
    "Entry",
    "EntrySource",
    "NodeFault",
    "Meeting",
    "Nodes",
    "Tree",
    "bodies",
    "build",
    "check",
    "diff",
    "merge3",
    "reachable",
    "refs",
]
