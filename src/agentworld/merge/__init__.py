"""Prefix-tree merging: sequences that share their beginnings are computed once, and train as if they were flat."""

from agentworld.merge.attention import tree_hidden
from agentworld.merge.conventions import Convention, convention_weights
from agentworld.merge.models import check_model
from agentworld.merge.packing import MicroBatch, Packing, pack
from agentworld.merge.plan import AttentionPlan, plan_attention
from agentworld.merge.scores import TreeScores, tree_scores
from agentworld.merge.tree import TokenTree, TreeStatistics, build_tree

__all__ = [
    "AttentionPlan",
    "Convention",
    "MicroBatch",
    "Packing",
    "TokenTree",
    "TreeScores",
    "TreeStatistics",
    "build_tree",
    "check_model",
    "convention_weights",
    "pack",
    "plan_attention",
    "tree_hidden",
    "tree_scores",
]
