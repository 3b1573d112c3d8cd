"""The tunnel to a camera that speaks TLS: whole in both directions, closed to others, and clear where it ends."""

import hashlib
import os
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from edge.config.schema import CameraTlsConfig
from edge.errors import ConfigError
from edge.media.address import parse_address
from edge.media.tunnel import Tunnel, require_trust
from tests.support.manifests import fingerprint_of, make_self_signed
from tests.support.ports import free_port
from tests.support.tcp_server import TcpServer
from tests.support.wait import wait_until


class Camera(TcpServer):
    """Gives back what it gets, over TLS."""

    def __init__(self, folder):
        super().__init__()
        self.own = make_self_signed(folder)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.own.certificate, self.own.key)

    def serve(self, link):
        with self.context.wrap_socket(link, server_side=True) as link:
            while piece := link.recv(1 << 16):
                link.sendall(piece)

    def address(self, **tls):
        uri = f"rtsps://127.0.0.1:{self.port}/a?b=c"
        tls = tls or {"fingerprint": fingerprint_of(self.own)}
        return parse_address(uri, base_dir=Path("/"), tls=CameraTlsConfig(**tls))


@pytest.fixture
def camera(tmp_path):
    with Camera(tmp_path) as made:
        yield made


@pytest.fixture
def tunnel(camera):
    made = Tunnel(camera.address())
    yield made
    made.close()


def port_of(tunnel):
    return int(tunnel.address.location.partition("127.0.0.1:")[2].partition("/")[0])


def test_everything_comes_through_whole_both_ways_and_side_by_side(tunnel):
    sent = os.urandom(3 << 20)

    def through():
        with socket.create_connection(("127.0.0.1", port_of(tunnel))) as link:
            writer = threading.Thread(target=link.sendall, args=(sent,))
            writer.start()
            came = hashlib.sha256()
            count = 0
            while count < len(sent):
                piece = link.recv(1 << 16)
                assert piece
                came.update(piece)
                count += len(piece)
            writer.join()
        digests.append(came.hexdigest())

    digests = []
    threads = [threading.Thread(target=through) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert digests == [hashlib.sha256(sent).hexdigest()] * 3


def test_it_shows_the_address_that_it_stands_for(camera, tunnel):
    address = tunnel.address

    assert (address.scheme, address.shown) == ("rtsp", camera.address().shown)
    assert address.location.endswith("/a?b=c")


def test_a_camera_that_sends_on_to_itself_is_followed_through_the_tunnel(camera, tunnel):
    itself = camera.address().location.removesuffix("/a?b=c")
    with socket.create_connection(("127.0.0.1", port_of(tunnel)), 10) as link:
        link.sendall(f"Location: {itself}/login\r\n".encode())
        assert link.recv(100) == f"Location: rtsp://127.0.0.1:{port_of(tunnel)}/login\r\n".encode()


def test_closing_ends_what_is_led_through(tunnel):
    with socket.create_connection(("127.0.0.1", port_of(tunnel)), 10) as link:
        link.sendall(b"OPTIONS")
        assert link.recv(100) == b"OPTIONS"
        tunnel.close()
        assert link.recv(100) == b""
    wait_until(lambda: not any(one.name == "tls 127.0.0.1" for one in threading.enumerate()), what="ends")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("port", ["any", "one that we have just let go"])
def test_another_user_of_this_machine_does_not_get_through(camera, tunnel, port):
    ours = 0
    if port != "any":
        with socket.socket() as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            link.bind(("127.0.0.1", 0))
            link.connect(("127.0.0.1", camera.port))
            ours = link.getsockname()[1]
    look = (
        "import socket, sys; link = socket.socket(); link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); "
        "link.bind(('127.0.0.1', int(sys.argv[2]))); link.settimeout(10); "
        "link.connect(('127.0.0.1', int(sys.argv[1]))); print(link.recv(100))"
    )
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-c", look, str(port_of(tunnel)), str(ours)],  # not in a folder of root
        user=65534,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert "b''" in done.stdout or "ConnectionReset" in done.stderr, done


@pytest.mark.parametrize(
    ("there", "words"),
    [("nothing", "cannot be reached: Connection refused"), ("plain text", "expected TLS 1.2 or newer")],
)
def test_a_camera_without_tls_is_told_from_one_that_is_away(there, words):
    port = free_port()
    with socket.create_server(("127.0.0.1", 0 if there == "nothing" else port)) as listener:

        def answer():
            link, _ = listener.accept()
            with link:
                link.recv(100)
                link.sendall(b"RTSP/1.0 400 Bad Request\r\n\r\n")

        if there != "nothing":
            threading.Thread(target=answer, daemon=True).start()
        tunnel = Tunnel(parse_address(f"rtsps://127.0.0.1:{port}/a", base_dir=Path("/")))
        with socket.create_connection(("127.0.0.1", port_of(tunnel)), 10) as link:
            assert link.recv(100) == b""
        tunnel.close()

    assert words in str(tunnel.problem)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_that_holds_no_authority_is_said_before_anything_is_opened(tmp_path, content):
    if content is not None:
        (tmp_path / "ca.pem").write_text(content)
    address = parse_address("rtsps://c/a", base_dir=tmp_path, tls=CameraTlsConfig(ca="ca.pem"))

    with pytest.raises(ConfigError, match=f"tls.ca: {tmp_path}/ca.pem"):
        require_trust(address)


def test_closing_ends_a_handshake_that_the_camera_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tunnel = Tunnel(parse_address(f"rtsps://127.0.0.1:{silent.getsockname()[1]}/a", base_dir=Path("/")))
        with socket.create_connection(("127.0.0.1", port_of(tunnel)), 2) as link, silent.accept()[0] as camera:
            camera.recv(1)  # the handshake has begun
            tunnel.close()
            assert link.recv(100) == b""
            wait_until(
                lambda: not any(one.name == "tls 127.0.0.1" for one in threading.enumerate()),
                what="its threads have ended",
            )


def test_a_camera_that_ends_the_handshake_is_away_and_not_one_without_tls():
    with socket.create_server(("127.0.0.1", 0)) as starting:
        tunnel = Tunnel(parse_address(f"rtsps://127.0.0.1:{starting.getsockname()[1]}/a", base_dir=Path("/")))
        with socket.create_connection(("127.0.0.1", port_of(tunnel)), 10) as link:
            camera = starting.accept()[0]
            camera.recv(1 << 16)
            camera.close()
            assert link.recv(100) == b""
        tunnel.close()

    assert "cannot be reached" in str(tunnel.problem)
    assert not tunnel.problem.is_permanent


@pytest.mark.parametrize(
    ("uri", "answer", "is_led_back"),
    [
        ("https://camera/a", b"Location: https://camera/b\r\n", True),
        ("https://camera/a", b"location:https://camera:443/b\r\n", True),
        ("https://camera:443/a", b"Location: https://camera/b\r\n", True),
        ("https://Camera/a", b"Location: HTTPS://camera?b\r\n", True),
        ("rtsps://[::1]/a", b"Location: rtsps://[::1]:322/b\r\n", True),
        ("https://camera:8443/a", b"Location: https://camera:8443/b\r\n", True),
        ("https://camera/a", b"Location: https://camera.example/b\r\n", False),
        ("https://camera/a", b"Location: https://camera:8443/b\r\n", False),
        ("https://camera:8443/a", b"Location: https://camera/b\r\n", False),
    ],
)
def test_only_what_sends_on_to_the_same_server_is_led_back_into_the_tunnel(uri, answer, is_led_back):
    tunnel = Tunnel(parse_address(uri, base_dir=Path("/")))
    tunnel.close()
    here = tunnel.address.location.removesuffix("/a").encode()

    led = tunnel._led_back(b"HTTP/1.1 302 Found\r\n" + answer)

    assert ((here + answer[-4:]) in led, led.endswith(answer)) == (is_led_back, not is_led_back)


def test_connections_that_come_and_go_leave_no_thread_and_no_descriptor(camera):
    def held():
        return len(os.listdir("/proc/self/fd")), sum(one.name == "tls 127.0.0.1" for one in threading.enumerate())

    before = held()
    for index in range(50):
        tunnel = Tunnel(camera.address() if index % 2 else camera.address(fingerprint="sha256:" + "0" * 64))
        with socket.create_connection(("127.0.0.1", port_of(tunnel)), 10) as link:
            if index % 2:
                link.sendall(b"OPTIONS")
            assert link.recv(100) == (b"OPTIONS" if index % 2 else b"")
        tunnel.close()
    wait_until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)), what="all is let go")
