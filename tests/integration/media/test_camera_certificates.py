"""Cameras with certificates of all kinds, by both decoders: read by the expected one, refused with a reason.

Where they answer with whole addresses under their own name, the tunnel leads these, too.
"""

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge.config.schema import CameraTlsConfig
from edge.errors import CertificateError
from edge.media.address import parse_address
from edge.media.tunnel import Tunnel
from edge.types import StreamState
from tests.support.manifests import fingerprint_of, make_certificates, make_self_signed
from tests.support.rtsp import RtspMount, RtspServer
from tests.support.rtsp_cameras import LOGIN, RTSP_CAMERAS, web_cameras
from tests.support.tcp_server import TcpServer
from tests.support.viewer import Viewer, assert_balances
from tests.support.wait import wait_until


class NamedCamera(TcpServer):
    """Stands before a plain server on the loopback; as cameras do, it names tracks by whole addresses.

    Args:
        port: of the plain server.
        name: what it calls itself, such as `127.0.0.1:8322`; None: as it was called by the network.
        sends_on: a path that it sends on from, and where to.
    """

    def __init__(
        self, port: int, tls: tuple[Path, Path], *, name: str | None = None, sends_on: tuple[str, str] | None = None
    ) -> None:
        super().__init__()
        self._plain, self._sends_on = port, sends_on
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*tls)
        self.name = name or f"127.0.0.1:{self.port}"

    def serve(self, link: socket.socket) -> None:
        with (
            contextlib.suppress(EOFError),
            self._context.wrap_socket(link, server_side=True) as outside,
            socket.create_connection(("127.0.0.1", self._plain)) as inside,
        ):
            threading.Thread(target=self._answer, args=(inside, outside), daemon=True).start()
            for head, body in _messages(outside.makefile("rb")):
                moved = self._moved(head)
                if moved:
                    outside.sendall(moved)
                else:
                    inside.sendall(self._inwards(head) + body)
            inside.shutdown(socket.SHUT_RDWR)

    def _moved(self, head: bytes) -> bytes:
        if self._sends_on is None or not re.match(f"DESCRIBE \\S+{self._sends_on[0]} RTSP".encode(), head):
            return b""
        sequence = re.search(rb"CSeq: *(\d+)", head, re.IGNORECASE)
        assert sequence
        where = f"rtsps://{self.name}{self._sends_on[1]}".encode()
        return b"RTSP/1.0 302 Moved\r\nCSeq: %s\r\nLocation: %s\r\n\r\n" % (sequence[1], where)

    def _inwards(self, head: bytes) -> bytes:
        """The first line alone: what a login was reckoned with stays as it is."""
        return re.sub(rb"rtsps?://[^/\s\"]+", f"rtsp://127.0.0.1:{self._plain}".encode(), head, count=1)

    def _answer(self, inside: socket.socket, outside: ssl.SSLSocket) -> None:
        with contextlib.suppress(OSError, EOFError):
            base = b""
            for head, body in _messages(inside.makefile("rb")):
                if not head.startswith(b"$"):
                    head = re.sub(rb"rtsps?://[^/\s\"]+", f"rtsps://{self.name}".encode(), head)
                    based = re.search(rb"Content-Base: *(\S+)", head, re.IGNORECASE)
                    base = based[1].rstrip(b"/") if based else base
                    body = re.sub(rb"a=control:(?=stream)", b"a=control:" + base + b"/", body)
                    head = re.sub(rb"(Content-Length: *)\d+", rb"\g<1>%d" % len(body), head, flags=re.IGNORECASE)
                outside.sendall(head + body)


def _messages(stream: Any) -> Iterator[tuple[bytes, bytes]]:
    """Yield heads and bodies; a packet of media is a head alone, begun with `$`."""
    while first := stream.read(1):
        if first == b"$":
            rest = stream.read(3)
            yield first + rest + stream.read(int.from_bytes(rest[1:], "big")), b""
            continue
        lines = [first + stream.readline()]
        while lines[-1].strip():
            lines.append(stream.readline())
        head = b"".join(lines)
        length = re.search(rb"Content-Length: *(\d+)", head, re.IGNORECASE)
        yield head, stream.read(int(length[1])) if length else b""


pytestmark = pytest.mark.slow_but(
    "test_a_camera_is_read_by_the_certificate_that_is_expected",
    "test_a_camera_with_another_certificate_is_refused_before_it_is_asked_for_anything",
    "test_a_camera_that_sends_on_by_its_whole_address_is_followed",
    reason="further cameras and certificates",
)
BOTH = pytest.mark.parametrize("decoder", ["software", "pyav"])
SCHEMES = pytest.mark.parametrize("scheme", ["rtsps", "https"])
PATHS = {"rtsps": "/main", "https": "/ok"}
MOUNTS = {"/main": RtspMount(launch=RTSP_CAMERAS["plain"].launch, is_shared=False)}


class Site:
    """Cameras with certificates by name, each server begun when it is first asked for."""

    def __init__(self, folder, stack):
        self._stack = stack
        self.of = {
            "signed": make_certificates(folder / "signed", host="127.0.0.1"),
            "expired": make_certificates(folder / "expired", host="127.0.0.1", days=0),
            "of another name": make_certificates(folder / "name", host="camera-7.example"),
            "by another authority": make_certificates(folder / "other", host="127.0.0.1", authority="another"),
            "its own": make_self_signed(folder / "own"),
            "its own, new": make_self_signed(folder / "new"),
        }
        self._uris = {}
        self.asked = []

    def uri(self, scheme, certificate):
        if (scheme, certificate) not in self._uris:
            made = self.of[certificate]
            files = (made.certificate, made.key)
            server = RtspServer(MOUNTS, tls=files) if scheme == "rtsps" else web_cameras(tls=files, asked=self.asked)
            begun = self._stack.enter_context(server)
            self._uris[scheme, certificate] = begun.url("") if scheme == "rtsps" else begun
        return self._uris[scheme, certificate] + PATHS[scheme]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with contextlib.ExitStack() as stack:
        yield Site(tmp_path_factory.mktemp("certificates"), stack)


@BOTH
@SCHEMES
@pytest.mark.parametrize(
    ("certificate", "by"),
    [
        ("its own", "fingerprint"),
        ("signed", "ca"),
        ("signed", "system"),
        ("signed", "fingerprint"),
        ("expired", "fingerprint"),
        ("of another name", "fingerprint"),
    ],
)
@pytest.mark.promised(reason="the cameras that people own")
def test_a_camera_is_read_by_the_certificate_that_is_expected(site, monkeypatch, certificate, by, scheme, decoder):
    made = site.of[certificate]
    tls = None
    if by == "system":
        monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
    elif by == "ca":
        tls = CameraTlsConfig(ca=str(made.ca))
    else:
        tls = CameraTlsConfig(fingerprint=fingerprint_of(made))  # in openssl's spelling: capitals, with colons

    with Viewer(site.uri(scheme, certificate), decoder=decoder, tls=tls) as viewer:
        viewer.await_frames(8)

    assert viewer.states == [StreamState.CONNECTING, StreamState.UP]
    assert_balances(viewer)


@BOTH
@SCHEMES
@pytest.mark.parametrize(
    ("certificate", "by", "words"),
    [
        ("its own", None, "authority of the system, got self-signed"),
        ("its own, new", "the fingerprint of its own", "expected the certificate sha256:"),
        ("expired", "its authority", "certificate has expired"),
        ("of another name", "its authority", "IP address mismatch"),
        ("by another authority", "the authority of signed", "unable to get local issuer"),
        ("signed", None, "authority of the system"),
    ],
)
def test_a_camera_with_another_certificate_is_refused_before_it_is_asked_for_anything(
    site, certificate, by, words, scheme, decoder
):
    tls = {
        None: None,
        "its authority": CameraTlsConfig(ca=str(site.of[certificate].ca)),
        "the authority of signed": CameraTlsConfig(ca=str(site.of["signed"].ca)),
        "the fingerprint of its own": CameraTlsConfig(fingerprint=fingerprint_of(site.of["its own"])),
    }[by]
    uri = site.uri(scheme, certificate)
    site.asked.clear()

    with Viewer(uri, decoder=decoder, tls=tls, credential=LOGIN) as viewer:
        viewer.await_state(StreamState.DOWN)

    assert any(one in viewer.reason for one in words.split("|")), viewer.reason
    assert uri in viewer.reason
    assert (viewer.headers, site.asked) == ([], [])


def test_the_error_has_what_the_camera_showed(site):
    address = parse_address(site.uri("rtsps", "its own"), base_dir=Path("/"))
    tunnel = Tunnel(address)
    with contextlib.closing(tunnel), pytest.raises(CertificateError) as caught:
        tunnel._reached()

    came = fingerprint_of(site.of["its own"]).replace(":", "").lower().replace("sha256", "sha256:")
    assert caught.value.fingerprint == came
    assert f'tls: {{fingerprint: "{came}"}}' in caught.value.hint


@BOTH
def test_a_camera_that_comes_back_with_another_certificate_is_lost(site, decoder):
    first, second = site.of["its own"], site.of["its own, new"]
    tls = CameraTlsConfig(fingerprint=fingerprint_of(first))
    with (
        RtspServer(MOUNTS, tls=(first.certificate, first.key)) as server,
        Viewer(server.url("/main"), decoder=decoder, tls=tls) as viewer,
    ):
        viewer.await_frames(4)
        server.kill()
        server.tls = second.certificate, second.key
        server.start()
        viewer.await_state(StreamState.DOWN)
        seen = len(viewer.headers)
        wait_until(lambda: "expected the certificate" in viewer.reason, what="the reason")
        assert len(viewer.headers) == seen


@BOTH
@pytest.mark.parametrize("path", ["/digest", "/digest-one-picture", "/chunked"])
def test_a_web_camera_behind_tls_is_read_as_without(site, decoder, path):
    made = site.of["its own"]
    site.asked.clear()
    with Viewer(
        site.uri("https", "its own").replace("/ok", path),
        decoder=decoder,
        tls=CameraTlsConfig(fingerprint=fingerprint_of(made)),
        credential=LOGIN,
    ) as viewer:
        viewer.await_frames(2)

    assert set(site.asked) == {site.uri("https", "its own").removeprefix("https://").replace("/ok", path)}


@BOTH
def test_a_login_goes_to_a_camera_over_tls(site, decoder):
    made = site.of["its own"]
    mount = RtspMount(launch=RTSP_CAMERAS["plain"].launch, login=LOGIN, is_digest=True)
    with RtspServer({"/main": mount}, tls=(made.certificate, made.key)) as server:
        tls = CameraTlsConfig(fingerprint=fingerprint_of(made))
        with Viewer(server.url("/main"), decoder=decoder, tls=tls, credential=LOGIN) as viewer:
            viewer.await_frames(4)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    return make_self_signed(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def server(own):
    plain = RtspMount(launch=RTSP_CAMERAS["plain"].launch, is_shared=False)
    login = RtspMount(launch=RTSP_CAMERAS["plain"].launch, is_shared=False, login=LOGIN, is_digest=True)
    with RtspServer({"/main": plain}) as made, RtspServer({"/main": login}) as closed:
        yield {"plain": made, "digest": closed}


@BOTH
@pytest.mark.parametrize("by", ["plain", "digest"])
@pytest.mark.parametrize("name", [None, "camera-7.example", "10.11.12.13:322"])
def test_a_camera_that_names_its_tracks_by_whole_addresses_is_read(server, own, name, by, decoder):
    with NamedCamera(server[by].port, (own.certificate, own.key), name=name) as camera:
        tls = CameraTlsConfig(fingerprint=fingerprint_of(own))
        uri = f"rtsps://127.0.0.1:{camera.port}/main"
        with Viewer(uri, decoder=decoder, tls=tls, credential=LOGIN if by == "digest" else None) as viewer:
            viewer.await_frames(3)


@BOTH
def test_a_camera_that_sends_on_by_its_whole_address_is_followed(server, own, decoder):
    with NamedCamera(server["plain"].port, (own.certificate, own.key), sends_on=("/old", "/main")) as camera:
        tls = CameraTlsConfig(fingerprint=fingerprint_of(own))
        with Viewer(f"rtsps://127.0.0.1:{camera.port}/old", decoder=decoder, tls=tls) as viewer:
            viewer.await_frames(3)
