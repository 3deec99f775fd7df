"""The variables through which agents find their model."""

from agentworld.agents.variables import agent_environment, base_url_variables


def test_clients_of_both_kinds_find_the_gateway_and_never_a_real_key(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "real")
    found = base_url_variables("http://10.0.0.1:8400/t/trj_1/v1", None, "trj_1")
    assert found["OPENAI_BASE_URL"] == found["OPENAI_API_BASE"] == "http://10.0.0.1:8400/t/trj_1/v1"
    assert found["ANTHROPIC_BASE_URL"] == "http://10.0.0.1:8400/t/trj_1"
    keys = {found[name] for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")}
    assert keys == {"agentworld"}
    assert base_url_variables("http://h/v1", "key", "t")["OPENAI_API_KEY"] == "key"


def test_a_proxy_is_kept_from_the_gateway(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "a.example,b.example")
    assert base_url_variables("http://10.0.0.1/v1", None, "t")["no_proxy"] == "a.example,b.example,10.0.0.1"
    monkeypatch.delenv("NO_PROXY")
    assert base_url_variables("http://10.0.0.1/v1", None, "t")["NO_PROXY"] == "10.0.0.1"


def test_the_anthropic_package_finds_one_key_and_claude_code_the_one_that_it_asks_nobody_about():
    around = {"HOME": "/home/me", "ANTHROPIC_AUTH_TOKEN": "real", "ANTHROPIC_API_KEY": "real"}
    found = agent_environment(around, "/usr/bin/python", "http://h/v1", "key", "t")
    assert (found["HOME"], found["ANTHROPIC_API_KEY"]) == ("/home/me", "key")
    assert "ANTHROPIC_AUTH_TOKEN" not in found
    assert "real" not in found.values()
    assert agent_environment(around, "/opt/bin/claude", "http://h/v1", "key", "t")["ANTHROPIC_AUTH_TOKEN"] == "key"
    assert agent_environment(around, "claude", "http://h/v1", None, "t")["ANTHROPIC_AUTH_TOKEN"] == "agentworld"
