"""The page of the dashboard: what is served, under which rules, and what is said where it is not built."""

import gzip
import http.client
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentworld.api import page

HOOK = Path(__file__).parents[2] / "scripts" / "build_hook.py"
PROJECT = """
[project]
name = "agentworld"
version = "0"
[tool.hatch.build.targets.wheel]
packages = ["src/agentworld"]
[tool.hatch.build.targets.wheel.hooks.custom]
path = "hook.py"
"""


@pytest.fixture
def built(monkeypatch):
    """A page as a build leaves it."""
    script = b"console.log(1);" * 200
    files = {
        "index.html": page._File(b"<!doctype html>", None, "text/html"),
        "assets/index-1.js": page._File(script, gzip.compress(script), "text/javascript"),
    }
    monkeypatch.setattr(page, "_files", lambda: files)
    return files


def fetch(server, path, **headers):
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=100)
    connection.request("GET", path, headers=headers)
    reply = connection.getresponse()
    found = reply.status, reply.headers, reply.read()
    connection.close()
    return found


def test_every_address_of_the_page_is_the_page(server, built):
    for path in ("/dashboard", "/dashboard/", "/dashboard/trajectories/a%2Fb", "/dashboard/no/such?where=a&where=b"):
        status, headers, body = fetch(server, path)
        assert (status, headers["content-type"].partition(";")[0], body) == (200, "text/html", b"<!doctype html>")
        assert headers["cache-control"] == "no-cache"
    status, headers, _ = fetch(server, "/")
    assert (status, headers["location"]) == (307, "/dashboard/")


def test_assets_are_kept_and_compressed_for_who_takes_it(server, built):
    asset = built["assets/index-1.js"]
    status, headers, body = fetch(server, "/dashboard/assets/index-1.js")
    assert (status, headers["content-encoding"], body) == (200, None, asset.data)
    assert "immutable" in headers["cache-control"]
    status, headers, body = fetch(server, "/dashboard/assets/index-1.js", **{"Accept-Encoding": "br, gzip"})
    assert (headers["content-encoding"], gzip.decompress(body)) == ("gzip", asset.data)
    assert fetch(server, "/dashboard/assets/index-2.js")[0] == 404
    # Names are looked up among what was built, and lead nowhere else.
    assert fetch(server, "/dashboard/assets/../../page.py")[0] == 404
    assert fetch(server, "/dashboard/%2e%2e/page.py")[2] == b"<!doctype html>"


def test_nothing_is_loaded_from_elsewhere_and_no_text_becomes_a_script(server, built):
    _, headers, _ = fetch(server, "/dashboard/")
    rules = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert not any("unsafe" in rule or "http" in rule or "*" in rule for rule in rules.values())
    assert headers["x-content-type-options"] == "nosniff"


def test_where_it_is_not_built_the_server_says_what_to_run(server, monkeypatch):
    monkeypatch.setattr(page, "_files", dict)
    status, _, said = server.send("GET", "/dashboard/")
    assert (status, said["error"]["code"]) == (404, "not_found")
    assert "make dashboard" in said["error"]["hint"]


def test_a_release_without_the_page_is_refused(tmp_path):
    hatch = pytest.importorskip("hatchling.builders.wheel")
    source = {"pyproject.toml": PROJECT, "src/agentworld/__init__.py": "", "src/agentworld/api/__init__.py": ""}
    root = tmp_path / "project"
    for name, text in source.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "hook.py").write_text(HOOK.read_text())
    builder = hatch.WheelBuilder(str(root))
    with pytest.raises(RuntimeError, match="make dashboard"):
        next(builder.build(directory=str(tmp_path), versions=["standard"]))
    static = root / "src/agentworld/api/static"
    static.mkdir()
    (static / "index.html").write_text("<!doctype html>")
    (root / ".gitignore").write_text("static/\n")
    made = next(hatch.WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"]))
    with zipfile.ZipFile(made) as wheel:
        assert "agentworld/api/static/index.html" in wheel.namelist()
