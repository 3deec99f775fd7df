"""Pure functions over the two prefix forests: blocks, chains, matching, fork reasons, printing."""

from agentworld.forest.matching import Match, Tip, fork_reason, match, same_reasoning
from agentworld.forest.messages import (
    canonical_arguments,
    chain,
    exact_digest,
    exact_key,
    match_key,
    says_the_same,
    tools_digest,
)
from agentworld.forest.printing import render_message, render_reply, render_step, render_tree
from agentworld.forest.tokens import (
    BLOCK_SIZE,
    Block,
    TokenArray,
    TokenPath,
    TokenPlan,
    common_prefix,
    hash_blocks,
    joined_ids,
    plan_tokens,
    token_array,
    vocabulary_root,
)

__all__ = [
    "BLOCK_SIZE",
    "Block",
    "Match",
    "Tip",
    "TokenArray",
    "TokenPath",
    "TokenPlan",
    "canonical_arguments",
    "chain",
    "common_prefix",
    "exact_digest",
    "exact_key",
    "fork_reason",
    "hash_blocks",
    "joined_ids",
    "match",
    "match_key",
    "plan_tokens",
    "render_message",
    "render_reply",
    "render_step",
    "render_tree",
    "same_reasoning",
    "says_the_same",
    "token_array",
    "tools_digest",
    "vocabulary_root",
]
