"""Answers that are hardly HTTP, digests and places that lie: each has its code, and the device serves on."""

import gzip
import json
import re

import pytest

from edge.registry.login import Login
from tests.integration.registry.test_hostile_registry import begin, refuses, serving, sha256_of
from tests.support.odd_registry import on, saying

__all__ = ["serving"]

pytestmark = pytest.mark.slow(reason="further pulls over real registries")


def raw(content: bytes):
    """Return what answers by these very bytes, and ends the connection."""

    def answer(request) -> None:
        request.wfile.write(content)
        request.close_connection = True

    return answer


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 200_000, "registry.unreachable"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n" + b"{" * 9000, "registry.unreachable"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "registry.unreachable"),
        (OK + b"X: y\r\n" * 2000 + b"\r\n{}", "registry.unreachable"),
        (OK + b"X: " + b"y" * 100_000 + b"\r\n\r\n{}", "registry.unreachable"),
        (b"HTTP/1.0 200 OK\r\n\r\n{}", "registry.artifact"),
        (OK + b"Content-Length: -1\r\nConnection: close\r\n\r\n{}", "registry.artifact"),
        (OK + b"Content-Length: 1000\r\n\r\n{", "registry.unreachable"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000, "registry.unreachable"),
        (b"HTTP/9.9 200 OK\r\n\r\n", "registry.unreachable"),
        (b"", "registry.unreachable"),
    ],
    ids=[
        *("chunk-without-end", "negative-chunk", "no-chunk", "many-headers", "long-header", "http-1.0"),
        *("negative-length", "cut", "continue", "http-9.9", "nothing"),
    ],
)
def test_an_answer_that_is_hardly_http_has_a_code_and_nothing_changes(serving, odd, content, code):
    odd.meddle = on("/manifests/", raw(content), "GET")

    refuses(serving, code)


def test_a_bomb_of_gzip_is_not_unpacked(serving, odd):
    bomb = gzip.compress(b"\0" * 50_000_000)
    odd.meddle = on("/manifests/", saying(200, bomb, Content_Encoding="gzip"), "GET")

    refuses(serving, "registry.artifact")


@pytest.mark.parametrize(
    "location",
    [
        *("https://[bad/x", "https://localhost:99999/x", "https://localhost:x/x", "https://a b/x", "https://\xe9/x"),
        *("https://evil\\@localhost/x", "https:///x", "//", "https://localhost/\x7f", "https://" + "a" * 300 + "/x"),
    ],
)
def test_a_place_that_is_none_is_named(serving, odd, location):
    odd.meddle = on("/blobs/", saying(302, Location=location))

    outcome = serving.pull().outcome

    assert outcome.code in {"registry.answer", "registry.unreachable", "registry.missing"}, outcome
    assert outcome.result != "failed" or outcome.code


@pytest.mark.parametrize(
    "realm", ["https://[bad", "http://localhost/token", "https://a:b@localhost/", "", "file:///etc"]
)
def test_a_place_of_tokens_that_is_none_is_named(serving, odd, realm):
    serving.login = Login("edge", "secret")
    odd.meddle = saying(401, WWW_Authenticate=f'Bearer realm="{realm}"')

    outcome = serving.pull().outcome

    assert outcome.code in {"registry.answer", "registry.missing", "registry.denied"}, outcome
    assert "secret" not in str(outcome)


def test_a_registry_without_range_that_is_cut_again_and_again_comes_to_an_end(serving, odd, root):
    sha256, times = sha256_of(root), []

    def cut(request) -> None:
        times.append(request.headers.get("Range"))
        if len(times) > 2:
            request.usual()
            return
        begin(request, odd.blobs[sha256], 100_000 if len(times) == 1 else 50_000, whole=300_000)

    odd.meddle = on(sha256, cut)

    assert serving.pull().outcome.result == "committed"
    assert (len(times), times[0]) == (3, None)
    assert times[1].startswith("bytes=")


def test_sizes_that_lie_change_nothing(serving, odd):
    odd.tags["stable-all"] = re.sub(rb'"size": \d+', b'"size": 0', odd.tags["stable-all"])

    assert serving.pull().outcome.result == "committed"


def test_thirty_thousand_layers_are_read_and_no_blob_of_theirs_is_asked_for(serving, odd):
    told = json.loads(odd.tags["stable-all"])
    other = {"mediaType": "x/y", "digest": "sha256:" + "0" * 64, "size": 1}
    told["layers"] += [other] * 30_000
    odd.tags["stable-all"] = json.dumps(told).encode()

    assert serving.pull().outcome.result == "committed"
    assert not [path for _, path, _ in odd.asked if "0" * 64 in path]
