import pytest

from agentworld.engines.chat_format import ChatFormat
from agentworld.engines.tokenizer import TokenizerAdapter, byte_tokenizer
from agentworld.errors import InvalidRequestError

TOKENIZER = byte_tokenizer()
FORMAT = ChatFormat(TOKENIZER)
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "é"}}\n</tool_call>'


def parse(text, tools=TOOLS, prompt="", **settings):
    ids = TOKENIZER.encode(prompt)
    return FORMAT.parse(TOKENIZER.encode(text), prompt_ids=ids, tools=tools, **settings)


def test_qwen3_prompts():
    def render(**options):
        return TOKENIZER.decode(FORMAT.render([{"role": "user", "content": "hi"}], **options))

    opening = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert render() == opening
    assert render(options={"enable_thinking": False}) == opening + "<think>\n\n</think>\n\n"
    assert '<tools>\n{"type": "function"' in render(tools=TOOLS)
    assert set(FORMAT.stop_ids) == {258, 256}


@pytest.mark.parametrize("options", [{"enable_thinking": 1}, {"other": True}])
def test_template_settings_are_checked(options):
    with pytest.raises(InvalidRequestError, match="chat_template_kwargs"):
        FORMAT.render([{"role": "user", "content": "hi"}], options=options)


def test_plain_text_is_kept_to_the_character():
    assert parse("  hi \n").content == "  hi \n"


def test_calls_are_taken_out_of_the_content():
    parsed = parse(f"Let me see.\n{CALL}")
    assert parsed.content == "Let me see."
    assert parsed.tool_calls == (("f", '{"x": "é"}'),)


def test_calls_nobody_offered_stay_text():
    assert parse(f"a\n{CALL}", tools=()).content == f"a\n{CALL}"
    assert parse(f"a\n{CALL}", tools=()).tool_calls == ()


@pytest.mark.parametrize(
    "broken",
    [
        "<tool_call>\n{not json}\n</tool_call>",
        '<tool_call>\n{"arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "argum',
        "<tool_call>\n[1]\n</tool_call>",
    ],
)
def test_a_broken_call_stays_as_written_beside_good_ones(broken):
    assert parse(f"a {broken}") == parse(f"a {broken}", tools=())
    assert parse(f"a {broken}").content == f"a {broken}"
    mixed = parse(f"{CALL}\n{broken}")
    assert mixed.tool_calls == (("f", '{"x": "é"}'),)
    assert broken in mixed.content


def test_arguments_that_are_no_object_are_text():
    parsed = parse('<tool_call>\n{"name": "f", "arguments": [1, null]}\n</tool_call>')
    assert parsed.tool_calls == (("f", "[1, null]"),)


def test_one_call_only_where_asked():
    assert len(parse(f"{CALL}\n{CALL}").tool_calls) == 2
    assert len(parse(f"{CALL}\n{CALL}", parallel=False).tool_calls) == 1


@pytest.mark.parametrize(
    ("text", "prompt", "reasoning", "content"),
    [
        ("<think>\nwhy\n</think>\n\nbecause", "", "why", "because"),
        ("<think>\nwhy", "", "why", ""),
        ("<think>\n\n</think>\n\nbecause", "", None, "because"),
        ("why\n</think>\n\nbecause", "<|im_start|>assistant\n<think>\n", "why", "because"),
        ("a <think>b</think> c", "", None, "a <think>b</think> c"),
    ],
)
def test_reasoning(text, prompt, reasoning, content):
    parsed = parse(text, prompt=prompt)
    assert (parsed.reasoning, parsed.content) == (reasoning, content)


def test_reasoning_that_a_call_ends():
    parsed = parse(f"<think>\nwhy\n{CALL}")
    assert (parsed.reasoning, parsed.content) == ("why", "")
    assert parsed.tool_calls == (("f", '{"x": "é"}'),)


def template_format(source):
    return ChatFormat(TokenizerAdapter(byte_tokenizer().backend, chat_template=source))


def test_another_template_over_the_same_tokens_is_used_as_it_is():
    chat = template_format("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{{ style }}")
    assert chat.family == "template"
    ids = chat.render([{"role": "user", "content": "hi"}], options={"style": "s"})
    assert chat.tokenizer.decode(ids) == "[user] hi\ns"
    with pytest.raises(InvalidRequestError, match="no place for tools"):
        chat.render([{"role": "user", "content": "hi"}], TOOLS)
    with pytest.raises(InvalidRequestError, match="reserved"):
        chat.render([{"role": "user", "content": "hi"}], options={"tokenize": False})
    parsed = chat.parse(TOKENIZER.encode("<think>a</think>\nb"), prompt_ids=ids)
    assert (parsed.reasoning, parsed.content) == ("a", "b")
