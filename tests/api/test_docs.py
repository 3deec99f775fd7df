import json
import re
from pathlib import Path

from agentworld.api.app import ROUTES
from agentworld.api.openapi import render

ROOT = Path(__file__).parent.parent.parent


def test_the_committed_document_is_the_servers():
    """After a change of the API: python -m agentworld.api.openapi > docs/openapi.json"""
    assert (ROOT / "docs" / "openapi.json").read_text() == render()


def test_every_route_is_described_with_its_body_and_one_shape_of_errors(server):
    document = server.get("/api/openapi.json")[1]
    described = {(path, method) for path, operations in document["paths"].items() for method in operations}
    for handler in ROUTES:
        if handler.include_in_schema is False:
            continue
        path = re.sub(r"{(\w+):\w+}", r"{\1}", next(iter(handler.paths)))
        operation = document["paths"][path][next(iter(handler.http_methods)).lower()]
        assert operation["description"], path
        assert operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"].endswith("/Error")
        assert ("requestBody" in operation) == ("body" in handler.opt)
    assert ("/api/v1/steps", "post") in described
    assert ("/api/v1/batches/{batch_id}/ack", "post") in described


def test_every_reference_resolves():
    document = json.loads(render())
    names = set(document["components"]["schemas"])
    used = {found.rsplit("/", 1)[1] for found in re.findall(r"#/components/schemas/[^\"]+", render())}
    assert used - names == set()


def test_the_page_loads_nothing_from_elsewhere(server):
    status, headers, page = server.send("GET", "/api/docs")
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in headers["content-security-policy"]
    text = page.decode()
    assert "http://" not in text
    assert "https://" not in text
    assert "innerHTML" not in text
