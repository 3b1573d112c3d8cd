"""One kept connection to a host, by TLS and the proxy of `https_proxy`, and what its answers mean. For one thread."""

from __future__ import annotations

import email.utils
import http.client
import os
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from edge.errors import DeployError
from edge.registry.login import Login
from edge.tls import client_context
from edge.untrusted import cleaned

__all__ = [
    "BUSY",
    "SILENCE_S",
    "Https",
    "RegistryResponse",
    "broken",
    "is_passing",
    "refused",
    "retry_after_s",
    "tls_context",
]

_UNREACHABLE, _FAILED, BUSY = "registry.unreachable", "registry.failed", "registry.busy"
_LONGEST_S = 24 * 3600.0
_USUAL_S = 60.0
_OTHER_VERSION = ("TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL")


def is_passing(error: DeployError) -> bool:
    """Return whether it may help to ask again in a moment."""
    return error.code in (_UNREACHABLE, _FAILED)


def broken(error: Exception, *, host: str, was_cut: bool) -> DeployError:
    """Return what went wrong with a connection; `was_cut`: by us, because it took too long."""
    if was_cut:
        return DeployError(
            "registry.slow",
            f"{host} has not answered in time",
            hint="look at the network and at the registry; what came is kept",
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return DeployError(
            "registry.tls",
            f"{host}: its certificate is not to be trusted: {error.verify_message}",
            hint="if the clock here is right, renew the registry's certificate; for a CA of your own: docs/fleet.md",
        )
    if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        what = "no TLS 1.3" if error.reason in _OTHER_VERSION else "no TLS"
        hint = "a registry is always reached by HTTPS, with TLS 1.3"
        return DeployError("registry.tls", f"{host}: {what}: {error.reason or error}", hint=hint)
    if isinstance(error, (http.client.HTTPException, ValueError)) and not isinstance(error, OSError):
        what = f"its answer is no HTTP: {type(error).__name__} {cleaned(str(error)[:80])}"
        return DeployError(_UNREACHABLE, f"{host}: {what}", hint="look whether a registry listens there")
    what = "it is not known" if isinstance(error, socket.gaierror) else getattr(error, "strerror", None) or str(error)
    return DeployError(
        _UNREACHABLE, f"{host}: {cleaned(str(what)[:200])}", hint="look at the network, the proxy and the address"
    )


def refused(status: int, what: str, *, retry_s: float | None = None) -> DeployError:
    if status == 404:
        return DeployError(
            "registry.missing", f"{what}: it is not there", hint="look at the address and the tag; publish it first"
        )
    if status in (401, 403):
        return DeployError(
            "registry.denied", f"{what}: the registry refuses this login ({status})", hint="renew the login"
        )
    if status in (429, 503):
        after_s = _USUAL_S if retry_s is None else retry_s
        return DeployError(
            BUSY,
            f"{what}: the registry wants to be asked again in {after_s:.0f} s ({status})",
            hint="it is asked again then; nothing was changed",
            evidence={"retry_after_s": after_s},
        )
    if status >= 500:
        return DeployError(_FAILED, f"{what}: the registry has failed ({status})", hint="look at the registry's log")
    return DeployError(
        "registry.answer", f"{what}: the registry answers {status}", hint="look whether this is an OCI registry"
    )


def retry_after_s(header: str | None) -> float | None:
    """Return for how long a registry wants to be left alone, seconds, at most a day (RFC 9110, 10.2.3)."""
    if header is None:
        return None
    if header.strip().isascii() and header.strip().isdigit():
        return min(_LONGEST_S, float(header.strip()[:9]))
    moment = email.utils.parsedate_tz(header)
    return None if moment is None else min(_LONGEST_S, max(0.0, email.utils.mktime_tz(moment) - time.time()))


_PROXY_PORT = 3128
SILENCE_S = 20.0
_HTTPS_PORT = 443
_LITTLE_BYTES = 8192


def _proxy_for(host: str) -> tuple[str, int, dict[str, str]] | None:
    """Return host, port and headers of the proxy for `host[:port]`; None where `no_proxy` names it, or there is none.

    DeployError `registry.unreachable`, for an URL that is none; without what is in it, which may be a password.
    """
    url = urllib.request.getproxies().get("https")
    if not url or urllib.request.proxy_bypass(host):
        return None
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        name, port = parts.hostname, parts.port or _PROXY_PORT
    except ValueError:
        name, port = None, 0
    if not name or parts.scheme not in ("", "http"):
        problem = f"{host}: https_proxy: expected http://[user:password@]host[:port], got something else"
        raise DeployError(_UNREACHABLE, problem, hint="write / @ : in a password as %2F %40 %3A") from None
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return name, port, {"Proxy-Authorization": Login(user, password).header} if user else {}


def tls_context(ca: Path | None, *, is_alone: bool = False) -> ssl.SSLContext:
    """Return a context of the system's CAs and those in `ca`, or these alone; DeployError `registry.tls`."""
    context = client_context(has_system_cas=not is_alone)
    # What registries speak since 2018. Its greeting is half as long, which is a third of a look that finds nothing new.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if ca is None:
        return context
    try:
        context.load_verify_locations(ca)
    except OSError as error:  # an ssl.SSLError, too
        hint = "write the CA's certificate there, in PEM"
        raise DeployError("registry.tls", f"{ca}: no certificate can be read: {error}", hint=hint) from None
    return context


class Https:
    """Asks one host; through the proxy of `https_proxy`, unless `no_proxy` names the host."""

    def __init__(self, host: str, context: ssl.SSLContext, *, silence_s: float = SILENCE_S) -> None:
        self.host = host
        self._context, self._silence_s = context, silence_s
        self._connection: http.client.HTTPSConnection | None = None

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], *, within_s: float, body: BinaryIO | None = None
    ) -> RegistryResponse:
        """Return the answer, whose body is to be read within the rest of `within_s`; a connection closed meanwhile is
        renewed once. `body` is sent from its beginning, and `headers` have its length.

        DeployError `registry.unreachable`, `registry.slow`, `registry.tls`.
        """
        is_kept = self._connection is not None
        try:
            return self._ask(method, target, headers, within_s, body)
        except DeployError as error:
            if not is_kept or error.code != "registry.unreachable":
                raise
            return self._ask(method, target, headers, within_s, body)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(
        self, method: str, target: str, headers: Mapping[str, str], within_s: float, body: BinaryIO | None
    ) -> RegistryResponse:
        cut: _Cut | None = None
        if body is not None:
            body.seek(0)
        try:
            connection = self._connected(within_s)
            cut = _Cut(connection.sock, within_s)
            # A registry that refuses a body does not read to its end, and says why.
            with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                connection.request(method, target, body, dict(headers))
            return RegistryResponse(self, connection.getresponse(), cut)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._failed(error, cut) from None

    def _failed(self, error: Exception, cut: _Cut | None) -> DeployError:
        was_cut = cut is not None and cut.is_done
        if cut is not None:
            cut.cancel()
        self.close()
        return broken(error, host=self.host, was_cut=was_cut or isinstance(error, TimeoutError))

    def _connected(self, within_s: float) -> http.client.HTTPSConnection:
        if self._connection is None:
            connection = self._new()
            _connect(connection, within_s)
            connection.sock.settimeout(self._silence_s)
            self._connection = connection
        return self._connection

    def _new(self) -> http.client.HTTPSConnection:
        url = urlsplit(f"//{self.host}")
        host, port = url.hostname or "", url.port or _HTTPS_PORT
        way = _proxy_for(self.host)
        if way is None:
            return http.client.HTTPSConnection(host, port, context=self._context, timeout=SILENCE_S)
        proxy_host, proxy_port, headers = way
        made = http.client.HTTPSConnection(proxy_host, proxy_port, context=self._context, timeout=SILENCE_S)
        made.set_tunnel(host, port, headers=headers)
        return made


def _connect(connection: http.client.HTTPSConnection, within_s: float) -> None:
    """Connect; a proxy that sends headers without end is left after `within_s`, by a TimeoutError."""
    is_late = threading.Event()

    def leave() -> None:
        is_late.set()
        with suppress(OSError, AttributeError):  # not connected yet: that has a time-out of its own
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(within_s, leave)
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
    except (OSError, http.client.HTTPException):
        connection.close()
        if is_late.is_set():
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


class RegistryResponse:
    """A status, headers, and a body that is read in parts. Ends the connection unless it was read to its end."""

    def __init__(self, https: Https, response: http.client.HTTPResponse, cut: _Cut) -> None:
        self._https, self._response, self._cut = https, response, cut
        self.status = response.status

    def header(self, name: str) -> str | None:
        return self._response.headers.get(name)

    def read(self, most_bytes: int) -> bytes:
        """Return what has come, at most `most_bytes`; b"" at the end. DeployError as `Https.ask`."""
        try:
            part = self._response.read1(most_bytes)
            if len(part) > most_bytes:  # http.client takes a chunk of negative length
                raise http.client.HTTPException(f"{len(part)} bytes in a part of {most_bytes}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._https._failed(error, self._cut) from None
        if not part and self._cut.is_done:
            raise self._https._failed(OSError("cut"), self._cut)
        if not part and most_bytes and self._response.length:
            lost = OSError(f"the connection was lost, {self._response.length} bytes before the end")
            raise self._https._failed(lost, self._cut)
        return part

    def read_all(self, most_bytes: int) -> bytes | None:
        """Return the body; None if it is longer than `most_bytes`, of which no more is read."""
        content = b""
        while len(content) <= most_bytes:
            part = self.read(most_bytes + 1 - len(content))
            if not part:
                return content
            content += part
        return None

    def close(self) -> None:
        """Leave the connection to the next question, if nothing of this answer is left in it."""
        with suppress(OSError, http.client.HTTPException, ValueError):
            if self._response.length is not None and self._response.length <= _LITTLE_BYTES:
                self._response.read()  # what an error says besides; cheaper than another connection
        self._cut.cancel()
        if not self._response.isclosed() or self._response.will_close:
            self._response.close()
            self._https.close()


class _Cut:
    """Ends a connection from outside after `within_s`: a host that sends a byte now and then would never time out."""

    def __init__(self, connected: socket.socket, within_s: float) -> None:
        # A descriptor of our own: the other one may be closed, and its number used again, in the meantime.
        self._own = socket.socket(fileno=os.dup(connected.fileno()))
        self._lock = threading.Lock()
        self.is_done = False
        self._timer = threading.Timer(within_s, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._own.close()

    def _cut(self) -> None:
        with self._lock, suppress(OSError):
            self.is_done = True
            self._own.shutdown(socket.SHUT_RDWR)
