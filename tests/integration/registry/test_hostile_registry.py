"""A registry that lies, stalls, sends too much, or sends elsewhere: no device ends on anything that nobody signed."""

import json
import random
import threading
import time

import pytest

from edge.registry.artifact import ARTIFACT_TYPE
from edge.registry.login import Login
from tests.support.manifests import ssh_key
from tests.support.registry import OddRegistry, on, saying
from tests.support.wait import QuietWatch, wait_until

MODEL = random.Random(1).randbytes(300_000)  # no part of it is another one
pytestmark = pytest.mark.slow_but(
    "test_what_is_no_release_is_named_as_such",
    "test_another_content_under_a_digest_is_seen",
    "test_a_file_of_other_content_never_gets_into_the_store",
    "test_a_release_of_a_stranger_is_refused",
    "test_a_tag_that_flips_between_two_questions_gives_one_of_both_whole",
    "test_a_lost_connection_goes_on_where_it_was",
    "test_a_login_is_not_sent_to_where_a_blob_was_moved",
    "test_an_answer_that_is_of_no_use_has_a_code_of_its_own",
    reason="further pulls over real registries",
)


@pytest.fixture
def serving(led, odd, root):
    """The device, which serves a first release, and is to take a second one."""
    odd.take(root.bundle("first"))
    assert led.pull().outcome.result == "committed"
    odd.take(root.bundle("second", sequence=2, model=MODEL))
    return led


def sha256_of(root) -> str:
    return root.bundle("second", sequence=2, model=MODEL).manifest.files[0].sha256


def refuses(device, code) -> None:
    """Pull, and see that it was refused by `code`, that the first release serves, and that nothing is held."""
    before = device.current
    outcome = device.pull().outcome
    assert outcome.code == code, outcome
    assert device.current == before


def begin(request, content, most, *, whole=None) -> None:
    """Say that there are `whole` bytes (those of `content`), send at most so many, and end the connection."""
    request.send_response(206 if "Range" in request.headers and whole is None else 200)
    request.send_header("Content-Length", str(whole or len(content)))
    request.end_headers()
    request.wfile.write(content[:most])
    request.close_connection = True


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no json", "cannot be read"),
        (b"[1]", "list"),
        (b"[" * 100_000, "cannot be read"),
        (json.dumps({"artifactType": "application/vnd.other"}).encode(), "vnd.other"),
        (json.dumps({"artifactType": ARTIFACT_TYPE, "layers": {}}).encode(), "no layers"),
        (json.dumps({"artifactType": ARTIFACT_TYPE, "layers": []}).encode(), "0 layers"),
    ],
)
def test_what_is_no_release_is_named_as_such(serving, odd, content, said):
    odd.tags["stable-all"] = content

    outcome = serving.pull().outcome

    assert outcome.code == "registry.artifact"
    assert said in outcome.problem


def test_an_endless_manifest_is_not_read_to_its_end(serving, odd):
    sent = [0]

    def endless(request) -> None:
        request.send_response(200)
        request.send_header("Connection", "close")
        request.end_headers()
        while sent[0] < 100 * 2**20:
            request.wfile.write(b"x" * 65536)
            sent[0] += 65536

    odd.meddle = on("/manifests/", endless, "GET")

    refuses(serving, "registry.artifact")
    assert sent[0] < 20 * 2**20


@pytest.mark.parametrize("kind", ["manifest", "signature"])
def test_another_content_under_a_digest_is_seen(serving, odd, root, kind):
    bundle = root.bundle("second", sequence=2, model=MODEL)
    wanted = bundle.manifest_bytes if kind == "manifest" else bundle.signature
    (sha256,) = [sha256 for sha256, content in odd.blobs.items() if content == wanted]
    odd.blobs[sha256] = wanted + b" "

    refuses(serving, "registry.damaged")


def test_a_file_of_other_content_never_gets_into_the_store(serving, odd, root):
    sha256 = sha256_of(root)
    odd.blobs[sha256] = b"n" * 300_000

    refuses(serving, "transfer.hash")
    assert not root.layout.blob(sha256).exists()


def test_a_release_of_a_stranger_is_refused(serving, odd, root):
    ours, root.key = root.key, ssh_key(root.directory, "stranger")
    odd.take(root.bundle("foreign", sequence=9))
    root.key = ours

    refuses(serving, "verify.signature.signer")


def test_a_tag_that_flips_between_two_questions_gives_one_of_both_whole(serving, odd, root):
    third = root.bundle("third", sequence=3)

    def flip(request) -> None:
        request.usual()
        odd.take(third)

    odd.meddle = on("/manifests/", flip)

    assert serving.pull().outcome.result == "committed"
    assert serving.current == third.manifest.release
    assert serving.record.release == third.manifest.release


def test_a_lost_connection_goes_on_where_it_was(serving, odd, root):
    sha256, offsets = sha256_of(root), []

    def cut(request) -> None:
        offsets.append(int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-")))
        begin(request, odd.blobs[sha256][offsets[-1] :], 120_000)

    odd.meddle = on(sha256, cut)

    assert serving.pull().outcome.result == "committed"
    assert offsets == sorted(offsets)
    assert len(offsets) == 3


@pytest.mark.parametrize(("status", "retry_after", "wait_s"), [(429, "3600", 3600), (503, None, 60), (429, "soon", 60)])
def test_a_registry_that_wants_to_be_left_alone_is_left_alone(serving, odd, status, retry_after, wait_s):
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    odd.meddle = on("/manifests/", lambda request: request.say(status, headers=headers))

    busy = serving.pull()
    count = len(odd.asked)
    left_alone = serving.pull()

    assert (busy.outcome.code, busy.outcome.exit_code) == ("registry.busy", 12)
    assert abs(serving.record.not_before_s - time.time() - wait_s) < 30
    assert (left_alone.is_asked, left_alone.outcome.exit_code, len(odd.asked)) == (False, 0, count)
    odd.meddle = None
    assert serving.pull(is_forced=True).outcome.result == "committed"


def test_who_was_told_to_wait_before_the_clock_was_set_back_asks_all_the_same(serving, odd):
    odd.meddle = on("/manifests/", saying(429, Retry_After="60"))
    serving.pull()
    object.__setattr__(serving.record, "not_before_s", time.time() + 10 * 365 * 86400)
    odd.meddle = None

    assert serving.pull().outcome.result == "committed"


def test_a_login_is_not_sent_to_where_a_blob_was_moved(serving, odd, root, tmp_path):
    with OddRegistry(tmp_path / "elsewhere") as elsewhere:
        sha256 = sha256_of(root)
        elsewhere.blobs[sha256] = odd.blobs[sha256]
        serving.ca = tmp_path / "both.pem"
        serving.ca.write_text(odd.ca.read_text() + elsewhere.ca.read_text())
        serving.login = Login("edge", "secret")
        challenge = {"WWW-Authenticate": 'Basic realm="odd"'}

        def meddle(request) -> bool:
            if "Authorization" not in request.headers:
                request.say(401, headers=challenge)
            elif sha256 in request.path:
                request.say(307, headers={"Location": f"https://{elsewhere.host}/storage/{sha256}?key=1"})
            else:
                request.usual()
            return True

        odd.meddle = meddle
        elsewhere.meddle = saying(200, odd.blobs[sha256])

        assert serving.pull().outcome.result == "committed"
        ((_, path, headers),) = elsewhere.asked
        assert path == f"/storage/{sha256}?key=1"
        assert "Authorization" not in headers


def giving_tokens_at(host, *, more="", answer=b'{"token": "abc.def"}'):
    """Return how a registry meddles that sends whoever asks to `host`, and takes its tokens."""

    def meddle(request) -> bool:
        if request.path.startswith("/token"):
            request.say(200, answer)
        elif request.headers.get("Authorization") != "Bearer abc.def":
            request.say(401, headers={"WWW-Authenticate": f'Bearer realm="https://{host}/token"{more}'})
        else:
            request.usual()
        return True

    return meddle


def test_a_token_is_fetched_with_the_login_and_used(serving, odd):
    serving.login = Login("edge", "secret")
    odd.meddle = giving_tokens_at(odd.host, more=',service="lab",scope="repository:farms/gates:pull"')

    assert serving.pull().outcome.result == "committed"
    (path, headers), *more = [(path, headers) for _, path, headers in odd.asked if path.startswith("/token")]
    assert (path, more) == ("/token?service=lab&scope=repository%3Afarms%2Fgates%3Apull", [])
    assert headers["Authorization"] == serving.login.header


def test_a_registry_that_names_another_place_for_tokens_has_no_login_sent_there(serving, odd):
    elsewhere = odd.host.replace("localhost", "127.0.0.1")
    odd.meddle = giving_tokens_at(elsewhere)
    serving.login = Login("edge", "secret")

    refuses(serving, "registry.login")

    assert not [path for _, path, _ in odd.asked if path.startswith("/token")]
    serving.login = Login("edge", "secret", realm=elsewhere)
    assert serving.pull().outcome.result == "committed"
    odd.meddle = giving_tokens_at(odd.host)
    refuses(serving, "registry.login")  # of a login that was stored for elsewhere


def test_tokens_for_nobody_are_taken_from_anywhere(serving, odd):
    odd.meddle = giving_tokens_at(odd.host.replace("localhost", "127.0.0.1"))
    serving.login = None

    assert serving.pull().outcome.result == "committed"


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"token": "a\\nX: b"}', b"x" * 100_000])
def test_a_token_that_is_none_is_named(serving, odd, answer):
    serving.login = Login("edge", "secret")
    odd.meddle = giving_tokens_at(odd.host, answer=answer)

    refuses(serving, "registry.answer")


@pytest.mark.parametrize("where", ["/manifests/", "manifest blob"])
@pytest.mark.parametrize("how", ["headers", "body"])
def test_who_sends_a_byte_now_and_then_is_given_up_in_time(serving, odd, root, where, how):
    serving.within_s = 2.0
    gone = threading.Event()

    def drip(request) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\n")
        if how == "body":
            request.wfile.write(b"Content-Length: 1000\r\n\r\n")
        try:
            while not gone.wait(0.05):
                request.wfile.write(b"X")
        finally:
            request.close_connection = True

    if where == "manifest blob":
        where = next(sha256 for sha256, content in odd.blobs.items() if b'"sequence": 2' in content)
    odd.meddle = on(where, drip, "GET")
    watch = QuietWatch()
    try:
        refuses(serving, "registry.slow")
    finally:
        gone.set()
    assert watch.seconds() < 30


def test_who_says_nothing_at_all_can_be_left_by_a_stop(serving, odd, root):
    asked, gone, stop = threading.Event(), threading.Event(), threading.Event()

    def hang(request) -> None:
        asked.set()
        gone.wait(60)
        request.close_connection = True

    odd.meddle = on(sha256_of(root), hang)
    ended = []
    pulling = threading.Thread(target=lambda: ended.append(serving.pull(stop=stop)))
    pulling.start()
    try:
        wait_until(asked.is_set, what="the blob is asked for")
        stop.set()
    finally:
        gone.set()
        pulling.join(60)
    assert ended[0].outcome.result == "interrupted"


@pytest.mark.parametrize(
    ("path", "answer", "code"),
    [
        ("/manifests/", saying(500), "registry.failed"),
        ("/manifests/", saying(404), "registry.missing"),
        ("/manifests/", saying(403), "registry.denied"),
        ("/manifests/", saying(418), "registry.answer"),
        ("/manifests/", lambda request: request.wfile.write(b"220 mail.example ESMTP\r\n"), "registry.unreachable"),
        ("/blobs/", lambda request: request.say(302, headers={"Location": request.path}), "registry.answer"),
        ("/blobs/", saying(302, Location="http://127.0.0.1/blob"), "registry.answer"),
        ("/blobs/", saying(302, Location="file:///etc/shadow"), "registry.answer"),
        ("/blobs/", saying(302, Location="https://user:pass@localhost/x"), "registry.answer"),
    ],
    ids=["500", "404", "403", "418", "no-http", "circle", "moved-to-http", "moved-to-a-file", "moved-with-a-login"],
)
def test_an_answer_that_is_of_no_use_has_a_code_of_its_own(serving, odd, path, answer, code):
    odd.meddle = on(path, answer)

    refuses(serving, code)
