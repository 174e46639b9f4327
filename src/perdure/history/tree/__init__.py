"""The versioned map: paths to values, as a tree of nodes named by digest.

An ordered radix tree whose shape is a pure function of its entries (`rule`).  The same content
has the same root whatever the order of writes; a change costs one path of nodes; listing by
prefix is ordered; comparing two maps costs what differs; hostile keys cannot unbalance it.

    tree = Tree(nodes, root)
    draft = tree.edit()
    draft.put(entry)
    root, objects = draft.finish()
"""

from __future__ import annotations

from perdure.history.tree.compare import Change, diff
from perdure.history.tree.edit import Draft
from perdure.history.tree.entry import Entry
from perdure.history.tree.grow import build
from perdure.history.tree.merge import Meeting, merge3
from perdure.history.tree.reach import Fault, bodies, check, reachable, refs
from perdure.history.tree.read import EMPTY, Cache, Nodes
from perdure.history.tree.view import Tree

__all__ = [
    "EMPTY",
    "Cache",
    "Change",
    "Draft",
    "Entry",
    "Fault",
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
