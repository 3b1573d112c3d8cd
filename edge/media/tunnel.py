"""The TLS of cameras, by one rule for all decoders: these speak plainly to a tunnel that ends in this very process.

GStreamer's web source takes no certificate of a single camera, FFmpeg checks those of RTSP cameras not at all, and
what either says of a wrong one does not help anybody.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import selectors
import socket
import ssl
import sys
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from edge.errors import CertificateError, ConfigError, SourceError
from edge.media.address import PORTS, Address, Trust
from edge.tls import client_context

__all__ = ["Tunnel", "require_trust"]

_PLAIN = {"rtsps": "rtsp", "https": "http"}
_CONNECT_S = 5.0
_CHUNK_BYTES = 1 << 16
_HERE = "127.0.0.1"
_OF_ITS_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def require_trust(address: Address) -> None:
    """Raises `ConfigError` if what a certificate is to be held against cannot be used."""
    if address.is_encrypted:
        _context(address.trust)


class Tunnel:
    """For the decoder of one connection of a source: each time it connects, it is led to the camera.

    `address`: of the camera; `rtsps` or `https`.

    Attributes:
        address: where the decoder is to connect.
        problem: why the camera was not reached; the decoder has only seen that nothing came.

    Raises `ConfigError` if what its certificate is to be held against cannot be read.
    """

    def __init__(self, address: Address) -> None:
        parts = urlsplit(address.location)
        self._address = address
        self._context = _context(address.trust)
        self._host = parts.hostname or ""
        self._port = parts.port or PORTS[address.scheme]
        self._lock = threading.Lock()
        self._links: set[socket.socket] = set()
        self._is_closed = False
        self._listener = socket.create_server((_HERE, 0))
        here = "{}:{}".format(*self._listener.getsockname())
        plain = _PLAIN[address.scheme]
        location = urlunsplit(parts._replace(scheme=plain, netloc=here))
        self.address = replace(address, scheme=plain, location=location, stands_for=address.shown)
        # A web server may ask whose name it was called by, and send us from one of its pages to another.
        self._asked = f"Host: {here}".encode(), f"Host: {parts.netloc}".encode()
        self._sent_on = _sent_on(parts.scheme, self._host, self._port)
        self._here = f"{plain}://{here}".encode()
        self.problem: SourceError | None = None
        threading.Thread(target=self._listen, name=f"tls {self._host}", daemon=True).start()

    def close(self) -> None:
        """End all that is led through; wakes who waits at either end."""
        with self._lock:
            self._is_closed = True
            for link in (self._listener, *self._links):
                _end(link)

    def _listen(self) -> None:
        with self._listener, contextlib.suppress(OSError):
            while not self._is_closed:
                local, peer = self._listener.accept()
                if _is_of_this_user(peer, self._listener.getsockname()):
                    threading.Thread(target=self._lead, args=(local,), name=f"tls {self._host}", daemon=True).start()
                else:
                    local.close()

    def _lead(self, local: socket.socket) -> None:
        remote = None
        self._hold(local)
        try:
            remote = self._reached()
            for link in (local, remote):
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pump(local, remote)
        except SourceError as error:
            self.problem = error
        except OSError:  # one of them has ended
            pass
        finally:
            for held in filter(None, (local, remote)):
                self._let_go(held)

    def _hold(self, link: socket.socket) -> None:
        with self._lock:
            self._links.add(link)
            if self._is_closed:
                _end(link)

    def _let_go(self, link: socket.socket) -> None:
        with self._lock:
            self._links.discard(link)
        link.close()

    def _reached(self) -> ssl.SSLSocket:
        shown, trust = self._address.shown, self._address.trust
        try:
            link = self._connected(self._context)
        except ssl.SSLCertVerificationError as error:
            raise self._not_trusted(error) from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise SourceError(f"{shown}: the camera cannot be reached: it has ended the TLS handshake") from error
        except ssl.SSLError as error:
            raise SourceError(
                f"{shown}: expected TLS 1.2 or newer, got {(error.reason or 'none').lower().replace('_', ' ')}",
                hint=f"write {_PLAIN[self._address.scheme]}:// where the camera speaks plainly at this port",
                is_permanent=True,
            ) from error
        except (OSError, ValueError) as error:
            words = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise SourceError(f"{shown}: the camera cannot be reached: {words}") from error
        came = _fingerprint_of(link)
        if trust is None or trust.fingerprint in (None, came):
            return link
        self._let_go(link)
        raise CertificateError(
            f"{shown}: expected the certificate sha256:{trust.fingerprint}, got sha256:{came}",
            hint="if the camera has a new certificate, write the new fingerprint; else another answers in its place",
            fingerprint=f"sha256:{came}",
        )

    def _connected(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        link = socket.create_connection((self._host, self._port), _CONNECT_S)
        link = context.wrap_socket(link, server_hostname=self._host, do_handshake_on_connect=False)
        self._hold(link)
        try:
            link.do_handshake()
        except BaseException:
            self._let_go(link)
            raise
        return link

    def _not_trusted(self, error: ssl.SSLCertVerificationError) -> SourceError:
        """Return what is wrong with a certificate. It is asked for once more: the library does not keep it."""
        try:
            link = self._connected(_unchecked())
        except OSError as gone:
            return SourceError(f"{self._address.shown}: the camera cannot be reached: {gone.strerror or gone}")
        came = f"sha256:{_fingerprint_of(link)}"
        self._let_go(link)
        trust = self._address.trust
        whose = "of the system" if trust is None or trust.ca is None else f"in {trust.ca}"
        named = f'where the camera itself shows the same, write for its stream: tls: {{fingerprint: "{came}"}}'
        if error.verify_code in _OF_ITS_NAME:
            named = f"write the address with the name in the certificate; or, {named}"
        return CertificateError(
            f"{self._address.shown}: expected a certificate for {self._host} by an authority {whose}, "
            f"got {error.verify_message.rstrip('.')}",
            hint=named,
            fingerprint=came,
        )

    def _pump(self, local: socket.socket, remote: ssl.SSLSocket) -> None:
        """Hand on what comes from either end, until one of them ends. One that does not read does not hold the other.

        While the camera does not take what it is sent, the decoder is not listened to.
        """
        remote.setblocking(False)
        unsent, is_held = b"", False
        with selectors.DefaultSelector() as waiting:
            for link in (local, remote):
                waiting.register(link, selectors.EVENT_READ)
            while True:
                for key, events in waiting.select():
                    if key.fileobj is local:
                        unsent = local.recv(_CHUNK_BYTES).replace(*self._asked)
                        if not unsent:
                            return
                    elif events & selectors.EVENT_READ and not self._down(remote, local):
                        return
                if unsent:
                    unsent = _unsent(remote, unsent)
                if unsent and not is_held:
                    waiting.unregister(local)
                    waiting.modify(remote, selectors.EVENT_READ | selectors.EVENT_WRITE)
                elif is_held and not unsent:
                    waiting.register(local, selectors.EVENT_READ)
                    waiting.modify(remote, selectors.EVENT_READ)
                is_held = bool(unsent)

    def _down(self, remote: ssl.SSLSocket, local: socket.socket) -> bool:
        """Hand on all that is there as one: a picture comes in dozens of little records."""
        came, count, is_going_on = list[bytes](), 0, True
        with contextlib.suppress(ssl.SSLWantReadError):
            while count < _CHUNK_BYTES or remote.pending():
                came.append(remote.recv(_CHUNK_BYTES))
                count += len(came[-1])
                if not came[-1]:
                    is_going_on = False
                    break
        local.sendall(self._led_back(b"".join(came)))
        return is_going_on

    def _led_back(self, answer: bytes) -> bytes:
        """Return an answer of the camera; one that sends on to itself leads here again."""
        if b"ocation:" not in answer:  # as in all pictures; much faster than the expression
            return answer
        return self._sent_on.sub(lambda found: found[1] + self._here, answer)


def _context(trust: Trust | None) -> ssl.SSLContext:
    """Return what a certificate is checked by; a pinned one needs no more than to be that one."""
    if trust is not None and trust.fingerprint is not None:
        return _unchecked()
    if trust is None or trust.ca is None:
        return client_context(has_system_cas=True)
    context = client_context(has_system_cas=False)
    # Only these: with the system's left in, any public certificate for the name would do.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cafile=trust.ca)
    except OSError as error:  # an ssl.SSLError, too
        raise ConfigError(
            f"tls.ca: {trust.ca}: expected certificates (PEM): {getattr(error, 'reason', None) or error.strerror}",
            hint="name the file of the authority that has signed the camera's certificate",
        ) from error
    return context


def _unchecked() -> ssl.SSLContext:
    context = client_context(has_system_cas=False)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _sent_on(scheme: str, host: str, port: int) -> re.Pattern[bytes]:
    """Return what an answer is known by that sends on to the same server, whose usual port may be left out."""
    name = re.escape(f"[{host}]" if ":" in host else host)
    optional = "?" if port == PORTS[scheme] else ""
    return re.compile(rf"(?im)(^location:[ \t]*){scheme}://{name}(?::{port}){optional}(?=[/?#\s])".encode())


def _fingerprint_of(link: ssl.SSLSocket) -> str:
    return hashlib.sha256(link.getpeercert(binary_form=True) or b"").hexdigest()


def _end(link: socket.socket) -> None:
    """Wake who waits at it. An SSLSocket's own `shutdown` would let a thread beside send in plain text."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(link, socket.SHUT_RDWR)


def _unsent(link: ssl.SSLSocket, chunk: bytes) -> bytes:
    """Send what can be sent now, and return the rest."""
    with contextlib.suppress(ssl.SSLWantWriteError, ssl.SSLWantReadError):
        while chunk:
            chunk = chunk[link.send(chunk) :]
    return chunk


def _is_of_this_user(peer: tuple[str, int], here: tuple[str, int]) -> bool:
    """Whether a process of our user has connected: another one would look through our camera.

    By both ends: of a connection that has ended, whose port another may have got, the kernel says that it is root's.
    """
    ends = [f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}" for host, port in (peer, here)]
    rows = (row.split() for row in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:])
    return any(row[1:3] == ends and row[7] == str(os.geteuid()) for row in rows)
