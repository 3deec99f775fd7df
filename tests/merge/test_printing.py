"""Trees as text: golden strings."""

from agentworld.merge import build_tree
from agentworld.merge.printing import render_tree

CHAIN = [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5]]
NAMES = ["a", "b", "c", "d", "e"]


def test_a_chain_stays_on_one_level_and_says_what_ends_where():
    assert render_tree(build_tree(CHAIN), NAMES) == "2 x3  [a]\n2 x2  [b]\n1  [c]"


def test_branches_stand_under_what_they_share():
    sequences = [[1, 2, 3, 4, 5], [1, 2, 3, 6], [1, 2, 3, 6, 7], [9], [9]]
    assert render_tree(build_tree(sequences), NAMES) == "3 x3\n2  [a]\n  1 x2  [b]\n  1  [c]\n1 x2  [d, e]"


def test_tokens_can_be_shown_as_text():
    text = "".join
    shown = render_tree(build_tree([[1, 2, 3]]), NAMES, lambda ids: text(map(str, ids)) + "\n", width=2)
    assert shown == "3  1…  [a]"
    assert render_tree(build_tree([]), []) == ""
