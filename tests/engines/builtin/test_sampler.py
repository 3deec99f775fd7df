import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentworld.engines.builtin.sampler import RowSampler, draw, process
from agentworld.engines.surface import Sampling


def row(seed=0, raw=False, tops=0, stop_ids=(), **settings):
    return RowSampler(Sampling(**settings), seed=seed, stop_ids=stop_ids, tops=tops, raw=raw)


def logits(seed, rows=1, size=12):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, size, generator=generator) * 2


def test_draws_follow_the_distribution():
    values = logits(1, size=6)
    sampler = row(temperature=0.7, seed=5)
    count = 20_000
    counts = [0] * 6
    for token_id in draw(values.expand(count, 6), [sampler] * count, []).ids:
        counts[token_id] += 1
    expected = torch.softmax(values[0] / 0.7, -1).tolist()
    for got, probability in zip(counts, expected, strict=True):
        spread = math.sqrt(count * probability * (1 - probability))
        assert abs(got - count * probability) < 4 * spread


@given(
    st.integers(0, 1000),
    st.floats(0.1, 3),
    st.floats(0.05, 1),
    st.integers(0, 12),
    st.floats(0, 0.9),
)
def test_nothing_that_is_cut_is_drawn(seed, temperature, top_p, top_k, min_p):
    settings = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p}
    values = logits(seed)
    kept = process(values, [row(**settings)])[0]
    assert torch.logsumexp(kept, 0).item() == pytest.approx(0.0, abs=1e-5)
    assert kept[values[0].argmax()] > -torch.inf
    if top_k:
        assert int((kept > -torch.inf).sum()) <= top_k
    drawn = draw(values, [row(seed=seed, **settings)], [])
    assert kept[drawn.ids[0]].item() == pytest.approx(drawn.logprobs[0], abs=1e-6)


def test_the_nucleus_is_the_smallest_set_that_reaches_top_p():
    values = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))
    for top_p, size in ((0.4, 1), (0.5, 1), (0.6, 2), (0.81, 3), (0.99, 4)):
        kept = process(values, [row(top_p=top_p)])[0]
        assert int((kept > -torch.inf).sum()) == size, top_p


def test_rows_do_not_touch_each_other():
    values = logits(3, rows=4)
    samplers = [
        lambda: row(seed=1),
        lambda: row(seed=2, temperature=0),
        lambda: row(seed=3, top_k=2, raw=True, tops=3),
        lambda: row(seed=4, logit_bias=((2, 50.0),), temperature=0.5),
    ]
    histories = [([1], [2])] * 4
    together = draw(values, [make() for make in samplers], histories)
    for index, make in enumerate(samplers):
        alone = draw(values[index : index + 1], [make()], histories[:1])
        assert together.ids[index] == alone.ids[0]
        assert together.logprobs[index] == pytest.approx(alone.logprobs[0], abs=1e-6)
        assert [i for i, _ in together.tops[index]] == [i for i, _ in alone.tops[0]]
    assert together.ids[3] == 2
    assert len(together.tops[2]) == 3
    assert together.logprobs[1] == pytest.approx(torch.log_softmax(values[1], -1).max().item(), abs=1e-6)


def test_raw_is_the_models_and_processed_what_was_drawn_from():
    values = logits(7)
    settings = {"temperature": 0.5, "top_k": 3, "logit_bias": ((4, 2.0),)}
    raw = draw(values, [row(raw=True, **settings)], [([], [])])
    processed = draw(values, [row(raw=False, **settings)], [([], [])])
    assert raw.ids == processed.ids
    assert raw.logprobs[0] == pytest.approx(torch.log_softmax(values[0], -1)[raw.ids[0]].item(), abs=1e-6)
    assert processed.logprobs[0] > raw.logprobs[0]


def test_edits_follow_their_formulas():
    values = torch.tensor([2.0, -2.0, 1.0, 0.5])
    settings = {"presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 2.0, "min_tokens": 9}
    edited = values.clone()
    row(stop_ids=(3,), logit_bias=((2, 1.0),), **settings).edit(edited, prompt=[1], reply=[0, 0])
    assert edited.tolist() == [2.0 / 2 - 2 * 0.25 - 0.5, -2.0 * 2, 2.0, -math.inf]
    assert values.tolist() == [2.0, -2.0, 1.0, 0.5]


def test_no_logprobs_are_computed_where_none_are_asked_for():
    sampler = RowSampler(Sampling(), seed=1, stop_ids=(), tops=None, raw=False)
    assert draw(logits(1), [sampler], []).logprobs == []
