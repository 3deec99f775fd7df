"""Each fork reason, and routing to the deepest open prefix."""

from agentworld.forest import Tip, chain, fork_reason, match, match_key, token_array, tools_digest
from agentworld.records import Message

ROOT = b"r" * 16
NO_TOOLS = tools_digest([])
OTHER_TOOLS = tools_digest([{"type": "function", "function": {"name": "f"}}])


def user(text):
    return Message("user", text)


def system(text):
    return Message("system", text)


def reply(text, reasoning=None):
    return Message("assistant", text, reasoning=reasoning)


def tip(number, messages, ids=None, tools=NO_TOOLS, prompt_length=0, agent=None):
    keys = chain(ROOT, messages, match_key)
    array = None if ids is None else token_array(ids)
    return Tip(f"s{number}", keys, messages, tools, array, prompt_length, "stop", number, agent)


def outcome(tips, messages, ids=None, tools=NO_TOOLS, agent=None, **options):
    keys = chain(ROOT, messages, match_key)
    matched = match(tips, messages, keys, tools, agent)
    array = None if ids is None else token_array(ids)
    reason = fork_reason(tips, matched, messages, keys, tools, array, agent=agent, **options)
    return (matched.tip.step_id if matched else None), reason


A1 = [system("a"), user("1")]
A2 = [*A1, reply("x"), user("2")]


def test_the_first_step_is_no_fork():
    assert outcome([], A1) == (None, None)


def test_a_continuation_extends_the_latest_reply():
    tips = [tip(0, [*A1, reply("x")], ids=[1, 2, 3])]
    assert outcome(tips, A2, ids=[1, 2, 3, 4]) == ("s0", None)


def test_the_deepest_path_wins_over_a_shallower_one():
    tips = [tip(0, [*A1, reply("x")]), tip(1, [*A2, reply("y")])]
    assert outcome(tips, [*A2, reply("y"), user("3")]) == ("s1", None)


def test_interleaved_conversations_each_continue_their_own():
    b1 = [system("b"), user("1")]
    tips = [tip(0, [*A1, reply("x")])]
    assert outcome(tips, b1) == (None, "subagent")
    tips.append(tip(1, [*b1, reply("z")]))
    assert outcome(tips, A2) == ("s0", None)
    tips.append(tip(2, [*A2, reply("y")]))
    assert outcome(tips, [*b1, reply("z"), user("2")]) == ("s1", None)


def test_tokens_that_do_not_extend_the_parent_are_a_template_fork():
    tips = [tip(0, [*A1, reply("x")], ids=[1, 2, 3])]
    assert outcome(tips, A2, ids=[1, 2, 9, 4]) == ("s0", "template")
    assert outcome(tips, A2, ids=[1, 2]) == ("s0", "template")


def test_changed_tools_fork():
    tips = [tip(0, [*A1, reply("x")])]
    assert outcome(tips, A2, tools=OTHER_TOOLS) == ("s0", "tools_changed")


def test_equal_prompts_are_parallel_samples_unless_one_is_a_retry():
    tips = [tip(0, [*A1, reply("x")])]
    assert outcome(tips, A1) == (None, "parallel")
    assert outcome(tips, A1, is_retry=True) == (None, "retry")


def test_a_second_continuation_of_the_same_reply_rewrites_history():
    tips = [tip(0, [*A1, reply("x")]), tip(1, [*A2, reply("y")])]
    assert outcome(tips, [*A1, reply("x"), user("other")]) == ("s0", "history_rewritten")


def test_a_shorter_history_under_the_same_opening_is_compaction():
    tips = [tip(0, [*A2, reply("y")])]
    assert outcome(tips, [system("a"), user("summary")]) == (None, "compaction")
    assert outcome(tips, [system("a"), user("0"), reply("x"), user("2"), reply("y")]) == (None, "history_rewritten")


def test_absent_reasoning_matches_and_different_reasoning_does_not():
    tips = [tip(0, [*A1, reply("x", reasoning="because")])]
    assert outcome(tips, A2) == ("s0", None)
    assert outcome(tips, [*A1, reply("x", reasoning="because"), user("2")]) == ("s0", None)
    assert outcome(tips, [*A1, reply("x", reasoning="else"), user("2")]) == (None, "history_rewritten")


def test_ties_go_to_the_latest_step():
    tips = [tip(0, [*A1, reply("x")]), tip(1, [*A1, reply("x")])]
    assert outcome(tips, A2)[0] == "s1"


def test_a_request_that_ends_in_a_reply_continues_it():
    tips = [tip(0, [*A1, reply("x")], ids=[1, 2])]
    assert outcome(tips, [*A1, reply("x")], ids=[1, 2])[0] == "s0"


def test_an_agent_that_says_its_name_has_a_branch_of_its_own():
    """Sub-agents may have the system prompt of their parent, and even its first message."""
    tips = [tip(0, [*A1, reply("x")])]
    b1 = [system("a"), user("look into it")]
    assert outcome(tips, b1, agent="b") == (None, "subagent")
    assert outcome(tips, A1, agent="b") == (None, "subagent")
    tips.append(tip(1, [*b1, reply("z")], agent="b"))
    b2 = [*b1, reply("z"), user("2")]
    assert outcome(tips, A2) == ("s0", None)
    tips.append(tip(2, [*A2, reply("y")]))
    assert outcome(tips, b2, agent="b") == ("s1", None)
    # What an agent does to its history is told by its own steps.
    assert outcome(tips, [system("a"), user("b, in short")], agent="b") == (None, "history_rewritten")
    assert outcome(tips, [system("a"), user("a, in short")]) == (None, "compaction")


def test_of_equal_paths_an_agent_continues_its_own():
    tips = [tip(0, [*A1, reply("x")], agent="b"), tip(1, [*A1, reply("x")], agent="c")]
    assert outcome(tips, A2, agent="b") == ("s0", None)
    assert outcome(tips, A2, agent="c") == ("s1", None)
