import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from agentworld.errors import InvalidRequestError
from agentworld.pool.annotation_arrays import DTYPES, MAX_BYTES
from agentworld.records import Annotation, NewTrajectory
from tests.examples import examples

from ..samples import finished, ids, step

SCALARS = st.sampled_from([*DTYPES, ">f4", ">i8"]).map(np.dtype)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(array=SCALARS.flatmap(lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0))))
def test_arrays_read_back_bit_for_bit(pool, array):
    pool.add_annotations([Annotation(name="a", values=array, trajectory_id="t")])
    [found] = pool.get_annotations(trajectory_id="t")
    expected = array.astype(array.dtype.newbyteorder("="))
    assert (found.dtype, found.shape) == (expected.dtype.name, array.shape)
    assert found.values.dtype == expected.dtype
    assert found.values.tobytes() == expected.tobytes()


def test_lists_are_float32_unless_something_else_is_said(pool):
    pool.add_annotations(
        [
            Annotation(name="lists", values=[[1, 2.5], [None, -0.0]], trajectory_id="t"),
            Annotation(name="whole", values=[1, -2], dtype="int8", trajectory_id="t"),
            Annotation(name="flags", values=[True, False], dtype="bool", trajectory_id="t"),
            Annotation(name="one", values=0.5, dtype="float64", trajectory_id="t"),
            Annotation(name="none", values=[], trajectory_id="t"),
        ]
    )
    found = {one.name: one for one in pool.get_annotations(trajectory_id="t")}
    assert (found["lists"].dtype, found["lists"].shape) == ("float32", (2, 2))
    np.testing.assert_array_equal(found["lists"].values, [[1, 2.5], [np.nan, -0.0]])
    assert found["whole"].values.tolist() == [1, -2]
    assert found["flags"].values.tolist() == [True, False]
    assert (found["one"].shape, float(found["one"].values)) == ((), 0.5)
    assert found["none"].shape == (0,)
    found["whole"].values[0] = 5
    assert pool.get_annotations(trajectory_id="t", names=["whole"])[0].values.tolist() == [1, -2]


@pytest.mark.parametrize(
    "bad",
    [
        {"values": [[1.0], [1.0, 2.0]]},
        {"values": ["1.0"]},
        {"values": [{}]},
        {"values": None},
        {"values": "text"},
        {"values": [300], "dtype": "int8"},
        {"values": [-1], "dtype": "uint64"},
        {"values": [1.5], "dtype": "int32"},
        {"values": [None], "dtype": "int32"},
        {"values": [2], "dtype": "bool"},
        {"values": [1e39]},
        {"values": [70000], "dtype": "float16"},
        {"values": [10**400]},
        {"values": [1.0], "dtype": "complex64"},
        {"values": [[[[[1.0]]]]]},
        {"values": np.zeros(MAX_BYTES // 8 + 1)},
        {"values": [1.0], "name": ""},
        {"values": [1.0], "source": "\ud800"},
        {"values": [1.0], "trajectory_id": None},
    ],
)
def test_what_is_no_array_is_refused(pool, bad):
    with pytest.raises(InvalidRequestError) as caught:
        pool.add_annotations([Annotation(**{"name": "a", "trajectory_id": "t", **bad})])
    assert caught.value.path.startswith("annotations[0]")
    assert pool.awaited().items == []


def test_setting_again_replaces(pool):
    first = Annotation(name="a", values=[1.0], trajectory_id="t")
    assert [pool.add_annotations([first]) for _ in range(2)] == [1, 0]
    assert pool.add_annotations([Annotation(name="a", values=[1, 2], dtype="int64", trajectory_id="t")]) == 1
    [found] = pool.get_annotations(trajectory_id="t")
    assert found.values.tolist() == [1, 2]


def test_an_array_per_token_is_as_long_as_the_reply(pool):
    pool.append_steps(
        [step("t", step_id="s"), step("t", step_id="text", prompt_ids=None, response_ids=None, response_logprobs=None)]
    )
    assert pool.add_annotations([Annotation(name="values", values=[[1.0, 2.0]] * 2, step_id="s")]) == 1
    for step_id, values in (("s", [1.0]), ("s", []), ("text", [1.0])):
        with pytest.raises(InvalidRequestError) as caught:
            pool.add_annotations([Annotation(name="b", values=values, step_id=step_id)])
        assert caught.value.path == "annotations[0].values"
    about = [
        Annotation(name="embedding", values=[1.0] * 7, per_token=False, step_id="text"),
        Annotation(name="score", values=0.5, step_id="text"),
    ]
    assert pool.add_annotations(about) == 2
    assert pool.get_step("text").annotations == ["embedding", "score"]


def test_names_are_for_where_and_events(pool):
    steps = finished(pool, "t", steps=2)
    pool.create_trajectory(NewTrajectory(trajectory_id="u"))
    pool.add_annotations(
        [
            Annotation(name="ref_logprobs", values=[0.5, 0.5], step_id=steps[1]),
            Annotation(name="advantages", values=[1.0], trajectory_id="u", source="credit"),
        ]
    )
    assert ids(pool.list_steps(where="has annotation.ref_logprobs")) == [steps[1]]
    assert ids(pool.list_trajectories(where="has annotation.advantages")) == ["u"]
    assert pool.get_trajectory("u").annotations == ["advantages"]
    told = [event for event in pool.events() if event.kind == "annotation.set"]
    assert [(one.trajectory_id, one.step_id) for one in told] == [("t", steps[1]), ("u", None)]
    assert told[1].data == {"name": "advantages", "source": "credit", "dtype": "float32", "shape": [1]}


def test_reading_by_steps_by_trajectory_and_by_name(pool):
    first, second = finished(pool, "t", steps=2)
    for name in ("a", "b"):
        pool.add_annotations(
            [Annotation(name=name, values=[1.0, 2.0], **target) for target in ({"step_id": first}, {"step_id": second})]
        )
    pool.add_annotations([Annotation(name="a", values=[0.0], trajectory_id="t")])

    def named(found):
        return sorted((one.step_id or "", one.name) for one in found)

    assert named(pool.get_annotations(step_ids=[first])) == [(first, "a"), (first, "b")]
    both = sorted([(first, "a"), (second, "a")])
    assert named(pool.get_annotations(step_ids=[first, second, "none"], names=["a"])) == both
    assert named(pool.get_annotations(trajectory_id="t", names=["a"])) == [("", "a"), *both]
    assert len(pool.get_annotations(trajectory_id="t")) == 5
    for wrong in ({}, {"step_ids": [first], "trajectory_id": "t"}, {"step_ids": ["s"] * 1001}):
        with pytest.raises(InvalidRequestError):
            pool.get_annotations(**wrong)
