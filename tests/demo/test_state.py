import pytest

from agentworld.demo.state import STAGES, DemoFolder, DemoPlan
from agentworld.errors import ConfigError, ConflictError

PLAN = DemoPlan(teacher_tasks=1, epochs=1, evaluation_tasks=1, iterations=1, groups=1, black_box_groups=1, rollouts=2)


@pytest.fixture
def folder(tmp_path):
    folder = DemoFolder(tmp_path / "demo")
    yield folder
    folder.close()


def test_a_demo_goes_on_where_it_stopped(folder):
    state = folder.open_state(PLAN, fresh=False)
    state.seconds["collect"] = 1.5
    folder.save(state)
    again = folder.open_state(PLAN, fresh=False)
    assert again.seconds == {"collect": 1.5}
    assert not again.complete
    again.seconds.update(dict.fromkeys(STAGES, 1.0))
    assert again.complete


def test_other_settings_are_refused_until_it_starts_afresh(folder):
    folder.open_state(PLAN, fresh=False)
    (folder.path / "pool.db").write_bytes(b"old")
    other = DemoPlan(**{**{f: getattr(PLAN, f) for f in PLAN.__struct_fields__}, "seed": 1})
    with pytest.raises(ConflictError, match="other settings") as error:
        folder.open_state(other, fresh=False)
    assert "--fresh" in error.value.hint
    assert folder.open_state(other, fresh=True).plan == other
    assert not (folder.path / "pool.db").exists()


def test_what_no_demo_wrote_is_left_alone(folder):
    (folder.path / "thesis.txt").write_text("x")
    folder.open_state(PLAN, fresh=False)
    folder.open_state(PLAN, fresh=True)
    assert (folder.path / "thesis.txt").read_text() == "x"


@pytest.mark.parametrize("fresh", [True, False])
def test_a_pool_that_no_demo_made_is_not_taken(folder, fresh):
    (folder.path / "pool.db").write_bytes(b"mine")
    with pytest.raises(ConflictError, match="no demo made"):
        folder.open_state(PLAN, fresh=fresh)
    assert (folder.path / "pool.db").read_bytes() == b"mine"


def test_one_demo_at_a_time(folder):
    with pytest.raises(ConflictError, match="another demo"):
        DemoFolder(folder.path)


def test_a_broken_state_says_what_to_do(folder):
    (folder.path / "state.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read") as error:
        folder.open_state(PLAN, fresh=False)
    assert "--fresh" in error.value.hint


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        DemoFolder(tmp_path / "file" / "demo")
