"""The way to a registry: a proxy that is real, refuses or is none, TLS of other versions, the address of a host."""

import base64
import gc
import http.server
import socket
import ssl
import threading
from contextlib import closing, contextmanager

import pytest

from edge.registry.client import RegistryClient
from edge.registry.login import Login
from edge.registry.reference import Reference
from tests.support.http_client import handled_by
from tests.support.manifests import make_certificates
from tests.support.raised import code_of, error_of
from tests.support.tcp_server import TcpServer

pytestmark = pytest.mark.slow(reason="further pulls over real registries")


@contextmanager
def proxy(*, wants: str | None = None, drips: threading.Event | None = None):
    """Give the port of a CONNECT proxy and what it was asked; it drips headers until `drips` is set."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_CONNECT(self):
            given = self.headers.get("Proxy-Authorization")
            asked.append((self.path, given))
            if drips is not None:
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                while not drips.wait(0.05):
                    self.wfile.write(b"X: y\r\n")
                return
            if wants is not None and given != wants:
                self.send_error(407)
                return
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port))) as far:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=copy, args=(far, self.connection))
                back.start()
                copy(self.connection, far)
                back.join()

        def log_message(self, *_):
            pass

    with handled_by(Handler) as server:
        yield server.server_port, asked


def copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while part := source.recv(65536):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture
def collected():
    """http.client leaves what a proxy said that refused to the garbage collector; it goes while that is known."""
    yield
    gc.collect()


left_to_gc = pytest.mark.filterwarnings("ignore:.*socket.socket:pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def no_proxy_of_ours(monkeypatch):
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def look(odd, *, within_s=60.0) -> str | None:
    with closing(RegistryClient(odd.reference(), ca=odd.ca, within_s=within_s)) as client:
        return client.digest_of("stable-all")


def test_a_proxy_is_given_the_login_of_its_url(odd, monkeypatch):
    odd.tags["stable-all"] = b"{}"
    wants = "Basic " + base64.b64encode(b"ops:p@ss/word").decode()
    with proxy(wants=wants) as (port, asked):
        monkeypatch.setenv("https_proxy", f"http://ops:p%40ss%2Fword@127.0.0.1:{port}")

        assert look(odd) is not None

    assert asked == [(odd.host, wants)]
    assert all("Proxy-Authorization" not in headers for _, _, headers in odd.asked)


@left_to_gc
@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(("code", "problem", "hint"), [("unreachable", "407", "proxy"), ("slow", "", "")])
def test_a_proxy_that_refuses_is_named_and_one_that_sends_headers_without_end_is_left(
    odd, monkeypatch, code, problem, hint
):
    gone = threading.Event() if code == "slow" else None
    with proxy(wants="Basic other", drips=gone) as (port, _):
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        try:
            error = error_of(look, odd, within_s=2.0 if gone else 60.0)
        finally:
            if gone:
                gone.set()

    assert error.code == f"registry.{code}"
    assert problem in error.problem
    assert hint in error.hint


@pytest.mark.parametrize(
    "url", ["http://ops:pa/ss@proxy:3128", "https://proxy:3128", "http://", "http://[bad", "http://a:x"]
)
def test_a_proxy_that_is_none_is_named_without_its_login(odd, monkeypatch, url):
    monkeypatch.setenv("https_proxy", url)

    error = error_of(look, odd)

    assert error.code == "registry.unreachable"
    assert "https_proxy: expected http://" in error.problem
    assert "pa" not in error.problem.replace("password", "")


@pytest.mark.parametrize("with_port", [True, False])
def test_no_proxy_names_a_host_with_or_without_its_port(odd, monkeypatch, with_port):
    odd.tags["stable-all"] = b"{}"
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", odd.host if with_port else "localhost")

    assert look(odd) is not None


class Answering(TcpServer):
    """Does `answer` with each connection."""

    def __init__(self, answer, address="127.0.0.1"):
        super().__init__(address)
        self.serve = answer


def handshake(certificates, **settings):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    for name, value in settings.items():
        setattr(context, name, value)
    return lambda connected: context.wrap_socket(connected, server_side=True).recv(10)


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [("tls 1.2", "registry.tls", "TLS 1.3"), ("plain", "registry.tls", "no TLS"), ("ends", "registry.unreachable", "")],
)
def test_a_handshake_that_fails_says_why(odd, tmp_path, kind, code, said):
    certificates = make_certificates(tmp_path / "tls")
    answers = {
        "tls 1.2": handshake(certificates, maximum_version=ssl.TLSVersion.TLSv1_2),
        "plain": lambda connected: connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9),
        "ends": lambda connected: connected.recv(9999),
    }
    with Answering(answers[kind]) as server:
        client = RegistryClient(Reference(f"localhost:{server.port}", "a/b", "c"), ca=certificates.ca)
        error = error_of(client.digest_of, "c")

    assert error.code == code, error
    assert said in error.problem


def test_an_address_of_ipv6_is_reached():
    with Answering(lambda connected: connected.sendall(b"no TLS, so that it is known who answers"), "::1") as server:
        client = RegistryClient(Reference(f"[::1]:{server.port}", "a/b", "c"))
        assert code_of(client.digest_of, "c") == "registry.tls"


@pytest.mark.parametrize(
    ("host", "url", "is_ours"),
    [
        ("registry.example", "https://registry.example:443/x", True),
        ("registry.example:443", "https://registry.example/x", True),
        ("Registry.example", "https://registry.example/x", True),
        ("registry.example", "https://registry.example:5000/x", False),
        ("registry.example:5000", "https://registry.example/x", False),
        ("registry.example", "https://registry.example.evil/x", False),
    ],
)
def test_port_443_is_the_same_written_or_not(host, url, is_ours):
    client = RegistryClient(Reference(host, "a/b", "c"), login=Login("edge", "secret"))

    assert client._is_ours(url) is is_ours


def test_questions_go_over_one_connection_and_none_over_one_that_has_an_answer_left_in_it(odd):
    ports: list[int] = []
    odd.meddle = lambda request: bool(ports.append(request.client_address[1]))
    odd.tags["one"] = b"{}"
    long = odd._put(bytes(1 << 20))
    with closing(RegistryClient(odd.reference(), ca=odd.ca)) as client:
        for _ in range(3):
            client.digest_of("one")
        assert len(set(ports)) == 1

        answer = client.ask_blob(long, offset=0, length=1 << 20)
        assert answer.read(10)
        answer.close()
        client.digest_of("one")

    assert len(set(ports)) == 2
