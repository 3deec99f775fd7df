from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE

from agentworld.engines.detokenize import StopStrings, TextStream
from agentworld.engines.tokenizer import TokenizerAdapter, byte_tokenizer, load_tokenizer

TOKENIZER = byte_tokenizer()
POCKET = load_tokenizer("pocket")


@given(
    st.sampled_from([TOKENIZER, POCKET]),
    st.lists(st.one_of(st.integers(0, 639), st.sampled_from(list("é😀\n".encode()))), max_size=40),
    st.booleans(),
)
def test_pieces_join_to_the_whole_text(tokenizer, ids, skip):
    stream = TextStream(tokenizer, skip)
    pieces = [stream.feed([token_id]) for token_id in ids]
    assert "".join(pieces) + stream.finish() == tokenizer.decode(ids, skip_special_tokens=skip)


def test_an_added_token_that_spells_bytes_is_bytes():
    backend = byte_tokenizer().backend
    backend.add_tokens(["é", "é é"])
    tokenizer = TokenizerAdapter(backend)
    for token_id in (265, 266):
        assert tokenizer.token_bytes(token_id).decode("utf-8", "replace") == tokenizer.decode([token_id])


def test_an_unfinished_character_is_held_back():
    stream = TextStream(TOKENIZER)
    assert [stream.feed([byte]) for byte in "é".encode()] == ["", "é"]
    assert stream.feed([0xE2]) == ""
    assert stream.finish() == "�"


def test_other_decoders_join_too():
    words = {f"▁w{number}": number for number in range(50)}
    tokenizer = Tokenizer(BPE(vocab=words, merges=[]))
    tokenizer.decoder = decoders.Metaspace()
    adapter = TokenizerAdapter(tokenizer)
    assert not adapter.is_byte_level
    ids = [number % 50 for number in range(120)]
    stream = TextStream(adapter)
    assert "".join(stream.feed([i]) for i in ids) + stream.finish() == adapter.decode(ids)


@given(
    st.text("abc", max_size=20),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
    st.booleans(),
)
def test_stop_strings_show_only_what_is_certain(text, stops, include):
    watcher = StopStrings(stops, include)
    shown = ""
    for character in text:
        finished = watcher.feed(character)
        safe = watcher.text[: watcher.safe]
        assert safe.startswith(shown)
        shown = safe
        if finished:
            break
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    if not ends:
        assert watcher.found is None
        assert watcher.text == text
    else:
        end = min(ends)
        hit = max((stop for stop in stops if text[:end].endswith(stop)), key=len)
        assert watcher.found == hit
        assert shown == watcher.text == text[: end if include else end - len(hit)]
