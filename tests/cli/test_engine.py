"""`agentworld engine` before the model is loaded."""

import socket

from agentworld.cli import engine
from agentworld.engines.builtin import models


def test_a_port_in_use_is_said_before_the_model_is_loaded(refused, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # The model is wrong too: only a check before its load finds the port.
        line = refused("engine", "--model", tmp_path / "none", "--port", port)
    assert f"cannot listen on 127.0.0.1 port {port}" in line
    assert "--port 0" in line


def test_the_first_start_of_smollm2_says_what_takes_so_long(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(models, "smollm2_places", lambda: (tmp_path / "model.gguf", tmp_path / "made"))
    engine.announce_conversion()
    out, err = capsys.readouterr()
    assert out == ""
    assert "converting smollm2 once, which takes about a minute" in err
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "config.json").write_text("{}")
    engine.announce_conversion()
    assert capsys.readouterr() == ("", "")
    assert models.smollm2_directory() == tmp_path / "made"
