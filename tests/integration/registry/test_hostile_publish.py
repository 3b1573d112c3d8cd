"""Publishing to a registry that lies, dies or sends elsewhere: no login leaves for it, no tag is given."""

import gzip
import hashlib
import http.server
import json
import re
import time
from contextlib import closing

import pytest

from edge.deploy.publish import RegistryWriter, publish
from edge.errors import DeployError
from edge.registry.artifact import FILE, ArtifactLayer
from edge.registry.login import Login
from tests.integration.registry.test_hostile_registry import begin, refuses, serving, sha256_of
from tests.support.http_client import handled_by
from tests.support.raised import code_of, error_of
from tests.support.registry import OddRegistry, on, saying

pytestmark = pytest.mark.slow(reason="further pulls over real registries")

LOGIN = Login("edge", "secret")


def fails(odd, bundle) -> DeployError:
    error = error_of(publish, bundle, odd.reference(), login=LOGIN, ca=odd.ca)
    assert "stable-all" not in odd.tags
    return error


def basic(then):
    """Return a meddler that asks for user and password, and does `then` once it has them."""

    def meddle(request) -> bool:
        if "Authorization" not in request.headers:
            return request.say(401, headers={"WWW-Authenticate": 'Basic realm="odd"'})
        return then(request)

    return meddle


def bearer(odd, then=lambda request: False):
    """Return a meddler that asks for a token of the scope that each question needs, as registries of the field do."""

    def meddle(request) -> bool:
        if request.path.startswith("/token"):
            return request.say(200, b'{"token": "writer"}' if "push" in request.path else b'{"token": "reader"}')
        needs = "pull" if request.command in ("HEAD", "GET") else "pull,push"
        given = request.headers.get("Authorization")
        if given != "Bearer writer" and (needs != "pull" or given != "Bearer reader"):
            realm = f'realm="https://{odd.host}/token",service="odd",scope="repository:farms/gates:{needs}"'
            return request.say(401, headers={"WWW-Authenticate": f"Bearer {realm}"})
        return then(request)

    return meddle


def test_a_token_is_for_reading_or_for_writing_and_one_that_has_run_out_is_fetched_anew(odd, root):
    asked = []

    def run_out_once(request) -> bool:
        if request.command == "PUT" and "/manifests/" in request.path and not asked:
            asked.append(request.path)
            realm = f'Bearer realm="https://{odd.host}/token",scope="push"'
            return request.say(401, headers={"WWW-Authenticate": realm})
        return False

    odd.meddle = bearer(odd, run_out_once)
    bundle = root.bundle("one")

    done = publish(bundle, odd.reference(), login=LOGIN, ca=odd.ca)

    assert done.tags == (bundle.manifest.release, "stable-all")
    assert (len(asked), "stable-all" in odd.tags) == (1, True)


@pytest.mark.parametrize("kind", [basic, bearer])
def test_a_login_is_not_sent_to_where_an_upload_is_to_go(odd, root, tmp_path, kind):
    with OddRegistry(tmp_path / "elsewhere") as elsewhere:
        elsewhere.meddle = saying(201)
        elsewhere_to = on("", saying(202, Location=f"https://{elsewhere.host}/upload?key=1"), "POST")
        odd.meddle = basic(elsewhere_to) if kind is basic else bearer(odd, elsewhere_to)
        both = tmp_path / "both.pem"
        both.write_text(odd.ca.read_text() + elsewhere.ca.read_text())

        publish(root.bundle("one"), odd.reference(), login=LOGIN, ca=both)

        assert elsewhere.asked
        assert not [headers for _, _, headers in elsewhere.asked if "Authorization" in headers]


@pytest.mark.parametrize("kind", [basic, bearer])
def test_nothing_goes_anywhere_without_tls(odd, root, kind):
    came = []

    class Plain(http.server.BaseHTTPRequestHandler):
        def do_PUT(self):
            came.append(dict(self.headers))
            self.send_response(201)
            self.end_headers()

    with handled_by(Plain) as plain:
        plain_to = on("", saying(202, Location=f"http://127.0.0.1:{plain.server_port}/upload"), "POST")
        odd.meddle = basic(plain_to) if kind is basic else bearer(odd, plain_to)
        error = fails(odd, root.bundle("one"))

    assert came == []
    assert error.code.startswith("registry.")
    assert "HTTPS" in f"{error.problem} {error.hint}"


@pytest.mark.parametrize("kind", ["location", "realm"])
@pytest.mark.parametrize(
    "place", ["https://[x", "https://x:y/", "https://a:99999/", "https://a\x1b[2J\x9b31m/", "https://a:b\x1b[2J\x9b/"]
)
def test_a_place_that_is_none_has_a_code_and_does_nothing_to_a_terminal(odd, root, kind, place):
    challenge = saying(401, WWW_Authenticate=f'Bearer realm="{place}"')
    odd.meddle = on("", saying(202, Location=place) if kind == "location" else challenge, "POST")
    failed = fails(odd, root.bundle("one"))

    assert failed.code.startswith("registry."), failed
    assert str(failed).isprintable()


def test_a_registry_that_dies_in_the_middle_is_named_soon(odd, root):
    def die(request) -> None:
        request.connection.close()
        request.close_connection = True

    odd.meddle = on("", die, "PUT")
    began = time.monotonic()

    error = fails(odd, root.bundle("one"))

    assert error.code == "registry.unreachable"
    assert time.monotonic() - began < 90


def test_a_registry_that_stumbles_once_is_asked_again(odd, root):
    failed = []

    def stumble(request) -> bool:
        if request.command != "PUT" or request.path in failed:
            return False
        failed.append(request.path)
        return request.say(500)

    odd.meddle = stumble

    assert publish(root.bundle("one"), odd.reference(), login=LOGIN, ca=odd.ca).bytes_sent > 0
    assert len(failed) > 1


@pytest.mark.parametrize(
    ("status", "code"), [(403, "registry.denied"), (405, "registry.answer"), (413, "registry.answer")]
)
def test_a_registry_that_may_be_read_only_is_named(odd, root, status, code):
    odd.meddle = on("", saying(status), "POST", "PUT")

    assert fails(odd, root.bundle("one")).code == code


LARGE = b"x" * (30 << 20)
LARGE_LAYER = ArtifactLayer(FILE, hashlib.sha256(LARGE).hexdigest(), len(LARGE), "model.onnx")


@pytest.fixture
def writer(odd):
    with closing(RegistryWriter(odd.reference(), login=LOGIN, ca=odd.ca)) as made:
        yield made


@pytest.mark.parametrize(("status", "code"), [(413, "registry.answer"), (429, "registry.busy")])
def test_a_body_that_is_refused_while_it_is_sent_is_sent_once_and_the_answer_is_told(odd, writer, status, code):
    refused = []
    odd.refuse = on("", lambda request: refused.append(request.say(status, headers={"Connection": "close"})), "PUT")

    assert code_of(writer.put, LARGE_LAYER, LARGE) == code
    assert len(refused) == 1


def test_a_token_that_runs_out_while_a_body_is_sent_is_fetched_anew(odd, writer):
    odd.meddle = bearer(odd)
    refused = []

    def refuse(request) -> bool:
        if request.command != "PUT" or refused:
            return False
        realm = f'Bearer realm="https://{odd.host}/token",service="odd",scope="repository:farms/gates:pull,push"'
        refused.append(request.say(401, headers={"Connection": "close", "WWW-Authenticate": realm}))
        return True

    odd.refuse = refuse
    writer.put(LARGE_LAYER, LARGE)

    assert (len(refused), odd.blobs[LARGE_LAYER.sha256]) == (1, LARGE)


@pytest.mark.parametrize("status", [400, 403, 405])
def test_what_a_registry_does_not_let_be_seen_is_sent(odd, root, status):
    odd.meddle = on("/blobs/", saying(status), "HEAD")
    bundle = root.bundle("one")

    assert publish(bundle, odd.reference(), login=LOGIN, ca=odd.ca).tags == (bundle.manifest.release, "stable-all")


def test_a_tag_that_cannot_be_looked_at_for_a_moment_is_looked_at_again(odd, writer, monkeypatch):
    monkeypatch.setattr("edge.deploy.publish._PAUSES_S", (0.01,))
    failed = []

    def meddle(request) -> bool:
        if request.command == "PUT" and "/manifests/" in request.path:
            odd.tags["stable-all"] = request.content
            return request.say(201)  # without a digest
        if request.command == "GET" and not failed:
            failed.append(request.say(502))
            return True
        return False

    odd.meddle = meddle

    assert writer.tag(b"{}", "stable-all") == f"sha256:{hashlib.sha256(b'{}').hexdigest()}"
    assert len(failed) == 1


def test_an_address_without_tls_is_told_without_its_query_which_may_be_a_login(odd, writer):
    odd.meddle = saying(202, Location="http://h/v2/u?_state=SECRET")

    problem = error_of(writer.put, LARGE_LAYER, LARGE).problem

    assert ("http://h/v2/u" in problem, "SECRET" in problem) == (True, False)


def test_an_upload_that_is_taken_as_something_else_is_named(odd, root):
    odd.meddle = on("/manifests/", saying(201, Docker_Content_Digest="sha256:" + "0" * 64), "PUT")

    error = fails(odd, root.bundle("one"))

    assert error.code == "registry.damaged"


def test_a_file_that_vanishes_meanwhile_is_named_and_the_connections_are_closed(odd, root, monkeypatch):
    bundle, closed, close = root.bundle("one"), [], RegistryWriter.close
    monkeypatch.setattr(RegistryWriter, "close", lambda writer: closed.append(close(writer)))

    def vanish(request) -> bool:
        if request.command == "POST":
            for file in bundle.manifest.files:
                (bundle.path / file.path).unlink(missing_ok=True)
        return False

    odd.meddle = vanish

    assert fails(odd, bundle).code == "bundle.file"
    assert len(closed) == 1


__all__ = ["serving"]


def raw(content: bytes):
    """Return what answers by these very bytes, and ends the connection."""

    def answer(request) -> None:
        request.wfile.write(content)
        request.close_connection = True

    return answer


OK = b"HTTP/1.1 200 OK\r\n"
BOMB = gzip.compress(bytes(50_000_000))


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
        (OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB, "registry.artifact"),
    ],
    ids=[
        *("chunk-without-end", "negative-chunk", "no-chunk", "many-headers", "long-header", "http-1.0"),
        *("negative-length", "cut", "continue", "http-9.9", "nothing", "bomb"),
    ],
)
def test_an_answer_that_is_hardly_http_has_a_code_and_nothing_changes(serving, odd, content, code):
    odd.meddle = on("/manifests/", raw(content), "GET")

    refuses(serving, code)


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
