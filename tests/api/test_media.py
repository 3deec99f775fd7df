"""Media over HTTP: stored by digest, given back as bytes that no browser runs."""

import base64
import http.client
from urllib.parse import urlsplit

import pytest

PAGE = b"<script>alert(1)</script>"


def read(server, path):
    """Status, headers and raw bytes of a GET."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=100)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()
    finally:
        connection.close()


def test_a_blob_comes_back_as_a_download(server):
    sent = {"data": base64.b64encode(PAGE).decode(), "media_type": "text/html"}
    status, reply = server.post("/api/v1/media", sent)
    assert status == 200
    assert server.post("/api/v1/media", sent) == (200, reply)
    status, headers, data = read(server, f"/api/v1/media/{reply['digest']}")
    headers = {name.lower(): value for name, value in headers.items()}
    assert (status, data) == (200, PAGE)
    assert headers["content-type"].startswith("application/octet-stream")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-disposition"].startswith("attachment")
    assert headers["x-media-type"] == "text/html"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"data": "", "media_type": "image/png"}, "data"),
        ({"data": "eA==", "media_type": "png"}, "media_type"),
        ({"data": "not base64!", "media_type": "image/png"}, "$.data"),
    ],
)
def test_what_is_no_blob_is_refused(server, body, path):
    status, reply = server.post("/api/v1/media", body)
    assert (status, reply["error"]["path"]) == (400, path)


def test_a_digest_that_is_not_there_or_none(server):
    assert server.get(f"/api/v1/media/{'0' * 32}")[0] == 404
    assert server.get("/api/v1/media/nothing")[0] == 400
