import pytest

from agentworld.engines.surface import openai_error, parse_request, resolve_max_tokens
from agentworld.errors import ContextLengthError, InvalidRequestError

USER = [{"role": "user", "content": "hi"}]


def chat(**fields):
    return parse_request({"messages": USER, **fields}, "chat")


def completions(**fields):
    return parse_request({"prompt": [1, 2], **fields}, "completions")


def test_defaults_are_neutral():
    sampling = chat().sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (1.0, 1.0, 0, 0.0)
    assert (sampling.seed, sampling.max_tokens, sampling.stop) == (None, None, ())
    assert chat().logprobs is None


def test_every_sampling_field_is_read():
    sampling = chat(
        temperature=0.5, top_p=0.9, top_k=5, min_p=0.1, presence_penalty=1, frequency_penalty=-1,
        repetition_penalty=1.2, logit_bias={"7": 3}, seed=4, max_completion_tokens=8, max_tokens=5,
        stop="x", stop_token_ids=[3], ignore_eos=True,
    ).sampling  # fmt: skip
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 5, 0.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (1, -1, 1.2)
    assert (sampling.logit_bias, sampling.seed, sampling.max_tokens) == (((7, 3.0),), 4, 8)
    assert (sampling.stop, sampling.stop_token_ids, sampling.ignore_eos) == (("x",), (3,), True)


def test_null_and_neutral_values_mean_absent():
    assert chat(temperature=None, stop=None, response_format={"type": "text"}, echo=False) == chat()
    assert chat(top_k=-1) == chat(top_k=0)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"top_k": -2}, "top_k"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "8"}, "max_tokens"),
        ({"seed": 1.0}, "seed"),
        ({"stop": [1]}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"logit_bias": {"a": 1}}, "logit_bias.a"),
        ({"logit_bias": {"٣": 1}}, "logit_bias.٣"),
        ({"logit_bias": {"9" * 5000: 1}}, f"logit_bias.{'9' * 40}"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1"),
        ({"stream": 1}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"other": True}}, "stream_options.other"),
        ({"logprobs_mode": "raw"}, "logprobs_mode"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"min_tokens": 5, "stop": "x"}, "min_tokens"),
        ({"best_of": 2}, "best_of"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_json": {}}, "guided_json"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"temprature": 1.0}, "temprature"),
    ],
)
@pytest.mark.parametrize("read", [chat, completions])
def test_what_is_wrong_or_unsupported_is_refused_with_its_name(read, fields, param):
    with pytest.raises(InvalidRequestError) as caught:
        read(**fields)
    assert caught.value.path == param
    assert openai_error(caught.value)["error"]["param"] == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "robot"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0]"),
        ({"messages": [{"role": "assistant", "reasoning": 1}]}, "messages[0].reasoning"),
    ],
)
def test_chat_fields_are_checked(fields, param):
    with pytest.raises(InvalidRequestError) as caught:
        chat(**fields)
    assert caught.value.path == param


@pytest.mark.parametrize("prompt", [None, [], [True], [[1], "x", [-1]], {"a": 1}, [1, "x"], [[1.0]]])
def test_prompts_are_checked(prompt):
    with pytest.raises(InvalidRequestError) as caught:
        completions(prompt=prompt)
    assert caught.value.path.startswith("prompt")


def test_prompts_come_in_four_shapes():
    assert completions(prompt="x").prompts == ("x",)
    assert completions(prompt=[1, 2]).prompts == ((1, 2),)
    assert completions(prompt=[[1], [2]]).prompts == ((1,), (2,))
    assert completions(prompt=["a", "b"]).prompts == ("a", "b")


def test_messages_become_what_templates_take():
    calls = [{"id": "call_0", "type": "function", "function": {"name": "f", "arguments": "{"}}]
    messages = [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [], "reasoning": "r", "tool_calls": calls},
        {"role": "tool", "content": "t", "tool_call_id": "call_0"},
        {"role": "assistant", "content": "", "tool_calls": []},
    ]
    assert parse_request({"messages": messages}, "chat").messages == (
        {"role": "system", "content": "d"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": calls},
        {"role": "tool", "content": "t", "tool_call_id": "call_0"},
        {"role": "assistant", "content": ""},
    )


def test_tools_are_dropped_with_choice_none_and_may_be_empty():
    tool = {"type": "function", "function": {"name": "f"}}
    assert chat(tools=[tool]).tools == (tool,)
    assert chat(tools=[tool], tool_choice="none").tools == ()
    assert chat(tools=[], tool_choice="auto").tools == ()


def test_what_does_not_fit_the_context_is_refused():
    sampling = chat(max_tokens=5).sampling
    assert resolve_max_tokens(sampling, 5, 10) == 5
    assert resolve_max_tokens(chat().sampling, 4, 10) == 6
    for prompt, given in ((6, sampling), (10, chat().sampling)):
        with pytest.raises(ContextLengthError, match="maximum context length is 10 tokens"):
            resolve_max_tokens(given, prompt, 10)
    with pytest.raises(InvalidRequestError, match="empty"):
        resolve_max_tokens(sampling, 0, 10)


DEMANDS = [
    {"tool_choice": "required"},
    {"tool_choice": {"type": "function", "function": {"name": "f"}}},
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": {"type": "object"}}}},
]


@pytest.mark.parametrize("extra", DEMANDS)
def test_a_backend_that_holds_replies_to_demands_gets_them(extra):
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": {"name": "f"}}]}
    assert parse_request(body | extra, "chat", guided=True).tools
    with pytest.raises(InvalidRequestError):
        parse_request(body | extra, "chat")


@pytest.mark.parametrize(
    ("extra", "path"),
    [
        ({"tool_choice": "must"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
    ],
)
def test_demands_that_say_nothing_are_refused(extra, path):
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": {"name": "f"}}]}
    with pytest.raises(InvalidRequestError) as refused:
        parse_request(body | extra, "chat", guided=True)
    assert refused.value.path == path
