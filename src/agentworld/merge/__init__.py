"""Prefix-tree merging: sequences that share their beginnings are computed once, and train as if they were flat."""

from agentworld.merge.packing import MicroBatch, Packing, pack
from agentworld.merge.tree import TokenTree, TreeStatistics, build_tree

__all__ = ["MicroBatch", "Packing", "TokenTree", "TreeStatistics", "build_tree", "pack"]
