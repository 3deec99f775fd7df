"""The page on the plug-in has the settings that there are, and its code runs."""

import msgspec

from agentworld.verl_loop.hydra_config import TARGET
from agentworld.verl_loop.settings import LoopSettings
from tests.docs.pages import DOCS, ROOT, blocks, section, table_of

PAGE = DOCS / "trainers" / "verl_loop.md"


def test_its_settings_are_those_that_there_are():
    assert set(table_of(section(PAGE, "Settings"))) == {each.name for each in msgspec.structs.fields(LoopSettings)}


def test_its_code_writes_what_verl_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (block,) = (block for block in blocks("python") if block.page == PAGE)
    exec(compile(block.text, PAGE.name, "exec"), {})
    assert TARGET in (tmp_path / "loop.yaml").read_text()
    told = capsys.readouterr().out.split()
    assert f"actor_rollout_ref.rollout.agent.agent_loop_config_path={tmp_path}/loop.yaml" in told
    assert "trainer.checkpoint_callback_class=agentworld.verl_loop.trainer.SettlingCallback" in told
