"""Prefix-tree merging: sequences that share their beginnings are computed once, and train as if they were flat."""

from agentworld.merge.tree import TokenTree, TreeStatistics, build_tree

__all__ = ["TokenTree", "TreeStatistics", "build_tree"]
