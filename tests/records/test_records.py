import hashlib
import subprocess
import sys
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.errors import InvalidRequestError
from agentworld.records import BatchSpec, Message, Step, TextPart, check_id, digest, ids, new_id
from agentworld.records.ids import framed_digest
from tests.records.strategies import conversations


@given(conversations)
def test_messages_read_back_as_written(conversation):
    data = msgspec.json.encode(conversation)
    assert msgspec.json.decode(data, type=list[Message]) == conversation


def test_empty_text_and_null_are_kept_apart():
    empty, null = Message("assistant", ""), Message("assistant")
    assert msgspec.json.decode(msgspec.json.encode(empty), type=Message) == empty != null


def test_text_of_parts():
    assert Message("user", (TextPart("a"), TextPart("b"))).text == "ab"
    assert Message("user").text == ""


def test_tool_calls_have_the_chat_shape():
    data = b'{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"[]"}}]}'
    message = msgspec.json.decode(data, type=Message)
    assert message.tool_calls[0].function.arguments == "[]"
    assert msgspec.json.decode(msgspec.json.encode(message)) == msgspec.json.decode(data)


def test_unknown_roles_are_refused():
    with pytest.raises(msgspec.ValidationError, match="role"):
        msgspec.json.decode(b'{"role":"wizard"}', type=Message)


def test_steps_do_not_share_their_defaults():
    first, second = Step(step_id="a", trajectory_id="t"), Step(step_id="b", trajectory_id="t")
    first.rewards["x"] = 1.0
    assert second.rewards == {}


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_an_id_is_its_time_and_its_random_bits_in_digits_of_five_bits(milliseconds, random):
    digits = "0123456789abcdefghjkmnpqrstvwxyz"
    number = milliseconds << 80 | int.from_bytes(random, "big")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "_some_random", lambda: random)
        patch.setattr(ids, "time", SimpleNamespace(time_ns=lambda: milliseconds * 1_000_000 + 999_999))
        made = new_id("stp")
    assert made == "stp_" + "".join(digits[number >> 5 * place & 31] for place in range(25, -1, -1))


def test_new_ids_sort_by_time_and_are_ids():
    ids = [new_id("stp") for _ in range(200)]
    assert len(set(ids)) == 200
    assert all(check_id(value, "id") == value for value in ids)
    assert [value[:13] for value in ids] == sorted(value[:13] for value in ids)


@pytest.mark.parametrize("value", ["", "a/b", "../x", "-a", "a b", "a" * 129, "ä", "a\n"])
def test_ids_that_cannot_be_paths_are_refused(value):
    with pytest.raises(InvalidRequestError, match="id"):
        check_id(value, "trajectory_id")


@given(st.lists(st.binary(max_size=5), max_size=4), st.lists(st.binary(max_size=5), max_size=4))
def test_digests_of_different_parts_differ(first, second):
    assert (digest(*first) == digest(*second)) == (first == second)


def test_batch_specs_fill_in_their_unit():
    spec = BatchSpec(method="grpo", groups=4, rollouts=8).resolved()
    assert (spec.unit, spec.count, spec.rollouts, spec.min_size) == ("group", 4, 8, 4)
    assert BatchSpec(method="sft", size=16).resolved().unit == "trajectory"
    assert spec.resolved() == spec


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (BatchSpec(method="magic"), "method"),
        (BatchSpec(method="grpo", size=3), "size"),
        (BatchSpec(method="sft", groups=3), "groups"),
        (BatchSpec(method="sft", size=0), "size"),
        (BatchSpec(method="sft", size=1_025), "size"),
        (BatchSpec(method="grpo", groups=1_025), "groups"),
        (BatchSpec(method="sft", size=2, min_size=3), "min_size"),
        (BatchSpec(method="sft", lease_seconds=0), "lease_seconds"),
    ],
)
def test_batch_specs_that_make_no_sense_name_their_field(spec, path):
    with pytest.raises(InvalidRequestError) as error:
        spec.resolved()
    assert error.value.path == path


_FORKS = """
import os
from agentworld.records import new_id

ids = [new_id("stp")]  # Random bytes are at hand now.
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, " ".join(new_id("stp") for _ in range(20)).encode())
    os._exit(0)
os.wait()
ids += os.read(read, 4096).decode().split() + [new_id("stp") for _ in range(20)]
print(len({name[-16:] for name in ids}))
"""


def test_a_forked_process_gives_other_ids():
    done = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, timeout=150)
    assert (done.stdout, done.stderr) == ("41\n", "")


@pytest.mark.parametrize("length", [0, 2046, 2047, 2048, 4094, 5000, 64 * 1024, 64 * 1024 + 1])
def test_digests_are_those_of_the_whole_whatever_its_length(length):
    data = bytes(range(256)) * (length // 256 + 1)
    data = data[:length]
    assert framed_digest(data) == hashlib.blake2b(data, digest_size=16).digest()
