"""The server, by requests over a socket."""

import http.client
import io
import json
import reprlib
import socket
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

import unweave as uw
from small_site import SETTINGS, running
from unweave.explore import ExploreConfig, make_app, serve


def request(site, method, path, body=None, headers=None):
    """Status, headers and body of a response; ``path`` is sent as it is."""
    connection = http.client.HTTPConnection(urlsplit(site).netloc, timeout=20)
    try:
        connection.putrequest(method, path, skip_host="Host" in (headers or {}))
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        for name, value in {**(headers or {}), **({} if data is None else {"Content-Length": len(data)})}.items():
            connection.putheader(name, str(value))
        connection.endheaders(data)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def answer(site, method, path, body=None):
    status, _, content = request(site, method, path, body)
    assert status == 200, content
    return json.loads(content)


def error(site, method, path, body=None, **options):
    status, _, content = request(site, method, path, body, **options)
    return status, json.loads(content)["error"]


def png(size=(8, 8)):
    buffer = io.BytesIO()
    Image.new("RGB", size, "teal").save(buffer, "PNG")
    return buffer.getvalue()


def test_a_search_has_the_hits_and_scores_of_the_index(site, index):
    asked = {"query": {"row": 4}, "weights": {"content": 1, "color": -0.3}, "minimum": {"content": 0}, "k": 7}
    hits = answer(site, "POST", "/api/search", asked)["hits"]
    expected = index.search(4, weights={"content": 1, "color": -0.3}, minimum={"content": 0}, k=7)
    assert [hit["row"] for hit in hits] == [hit.row for hit in expected]
    assert [hit["path"] for hit in hits] == [hit.path for hit in expected]
    for hit, other in zip(hits, expected, strict=True):
        assert hit["score"] == pytest.approx(other.score, abs=1e-3)
        assert hit["scores"] == pytest.approx(other.scores, abs=1e-3)


def test_maps_rows_and_classes_arrive_as_numbers_of_the_same_points(site, index, maps):
    points = np.frombuffer(request(site, "GET", "/api/points/color")[2], np.float32).reshape(-1, 2)
    np.testing.assert_array_equal(points, maps.points["color"])
    rows = np.frombuffer(request(site, "GET", "/api/rows")[2], np.uint32)
    classes = np.frombuffer(request(site, "GET", "/api/classes")[2], np.int32)
    names = [known["name"] for known in answer(site, "GET", "/api/index")["classes"]]
    assert [names[i] for i in classes] == [index.class_name(row) for row in rows.tolist()]


def test_an_upload_finds_what_its_file_finds(site, index, sprite_folder):
    data = (sprite_folder / "second" / "077.png").read_bytes()
    upload = answer(site, "POST", "/api/upload", data)["upload"]
    hits = answer(site, "POST", "/api/search", {"query": {"upload": upload}, "weights": {"spatial": 1}})["hits"]
    assert [hit["row"] for hit in hits] == [hit.row for hit in index.search(data, weights={"spatial": 1}, k=20)]


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml", "/..%2f..%2fconfig.py", "/%2e%2e/config.py", "//etc/passwd", "/config.py",
        "/thumbnail/../x", "/image/first%2f000.png", "/image/..%2f0", "/thumbnail/-1", "/thumbnail/120",
        "/image/99999999999999999999", f"/api/row/{'9' * 5000}",
    ],
)  # fmt: skip
def test_only_files_of_the_page_and_rows_of_the_index_are_served(site, path):
    assert error(site, "GET", path)[0] == 404


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b'"x"', b"\xff", {}, {"query": {"row": 120}}, {"query": {"row": "1"}}, {"query": {"row": True}},
        {"query": {"upload": "none"}}, {"query": {"upload": []}}, {"query": {"row": 1}, "weights": {"shape": 1}},
        {"query": {"row": 1}, "weights": {"content": "x"}}, {"query": {"row": 1}, "weights": {"content": 0}},
        b'{"query": {"row": 1}, "weights": {"content": NaN}}', {"query": {"row": 1}, "weights": {"content": 1}, "k": 0},
        {"query": {"row": 1}, "weights": {"content": 1}, "k": 10**9},
        {"query": {"row": 1}, "weights": {"content": 1}, "class": 3},
        {"query": {"row": 1}, "weights": {"content": 10**500}}, {"query": {"row": 1}, "weights": {"content": 1e39}},
        {"query": {"row": 1}, "weights": {"content": 1}, "minimum": {"content": 10**500}},
        {"query": {"row": 1}, "weights": {"content": 1}, "name": "\ud800"},
        {"query": {"row": 1}, "weights": {"content": 1}, "class": "\ud800"}, {"query": {"row": "\ud800"}},
        b"[" * 100_000, b'{"query": {"row": 1}, "weights": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"query": {"row": ' + b"[" * 900 + b"]" * 900 + b"}}",
    ],
    ids=lambda body: reprlib.repr(body),
)  # fmt: skip
def test_a_wrong_search_is_answered_in_words(site, body):
    status, text = error(site, "POST", "/api/search", body)
    assert status == 400
    assert 0 < len(text) < 300


def test_a_filter_text_is_a_text_and_not_a_condition(site, index):
    asked = {"query": {"row": 1}, "weights": {"content": 1}, "name": "x' or path like '%"}
    assert answer(site, "POST", "/api/search", asked)["hits"] == []


def test_a_file_that_is_no_picture_or_is_too_large_is_refused_in_words(site):
    for data in (b"", b"no picture", b"\x89PNG\r\n\x1a\n", png()[:40]):
        assert error(site, "POST", "/api/upload", data)[0] == 400
    status, text = error(site, "POST", "/api/upload", png((1200, 1000)))
    assert status == 400
    assert "1,000,000" in text
    assert error(site, "POST", "/api/upload", bytes(1_000_001))[0] == 413


def test_requests_of_other_hosts_and_other_pages_are_refused(site):
    assert request(site, "GET", "/api/index", headers={"Host": "example.org"})[0] == 421
    assert request(site, "POST", "/api/upload", png(), headers={"Origin": "https://example.org"})[0] == 403
    assert request(site, "POST", "/api/upload", png(), headers={"Origin": "null"})[0] == 403
    assert request(site, "POST", "/api/upload", png(), headers={"Origin": site})[0] == 200
    name = urlsplit(site).netloc.replace("127.0.0.1", "localhost")
    assert request(site, "GET", "/api/index", headers={"Host": name})[0] == 200


def test_another_address_needs_the_token(index, maps):
    with running(make_app(index, maps, ExploreConfig(host="0.0.0.0"), token="secret")) as site:
        for path in ("/", "/?token=wrong", "/main.js?token=secret", "/api/index", "/thumbnail/0", "/?token=%ff"):
            assert request(site, "GET", path)[0] == 401, path
        status, headers, _ = request(site, "GET", "/?token=secret", headers={"Host": "my-machine"})
        assert status == 303
        assert "secret" not in headers["Location"]
        cookie = headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        for path in ("/", "/api/index", "/thumbnail/0"):
            assert request(site, "GET", path, headers={"Cookie": cookie.split(";")[0]})[0] == 200


def test_images_are_sent_without_the_metadata_of_their_files(site, sprite_folder, index):
    status, headers, data = request(site, "GET", "/image/3")
    assert (status, headers["Content-Type"], headers["X-Content-Type-Options"]) == (200, "image/jpeg", "nosniff")
    image = Image.open(io.BytesIO(data))
    assert image.size == Image.open(index.image_file(3)).size
    assert not image.getexif()


def test_a_port_in_use_is_an_error_of_one_line(index, maps):
    with socket.create_server(("127.0.0.1", 0)) as other:
        config = ExploreConfig(port=other.getsockname()[1])
        with pytest.raises(uw.UnweaveError, match="port"):
            serve(index, maps, config)


def test_the_limits_of_this_file_are_those_of_the_server(site):
    about = answer(site, "GET", "/api/index")
    assert about["max_upload_mb"] == SETTINGS.max_upload_mb
    assert about["max_pixels"] == SETTINGS.max_pixels
