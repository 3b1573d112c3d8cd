"""Errors for a registry's answers, each with a code and a fix (docs/push-codes.md)."""

from __future__ import annotations

import email.utils
import http.client
import socket
import ssl
import time

from edge.errors import DeployError
from edge.untrusted import cleaned

__all__ = ["BUSY", "FAILED", "SLOW", "UNREACHABLE", "broken", "is_passing", "refused", "retry_after_s"]

UNREACHABLE, FAILED, BUSY, SLOW = "registry.unreachable", "registry.failed", "registry.busy", "registry.slow"
_LONGEST_S = 24 * 3600.0
_USUAL_S = 60.0
_OTHER_VERSION = ("TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL")


def is_passing(error: DeployError) -> bool:
    """Return whether it may help to ask again in a moment."""
    return error.code in (UNREACHABLE, FAILED)


def broken(error: Exception, *, host: str, was_cut: bool) -> DeployError:
    """Return what went wrong with a connection; `was_cut`: by us, because it took too long."""
    if was_cut:
        return DeployError(
            SLOW, f"{host} has not answered in time", hint="look at the network and at the registry; what came is kept"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return DeployError(
            "registry.tls",
            f"{host}: its certificate is not to be trusted: {error.verify_message}",
            hint="set the clock; for a CA of your own: docs/fleet.md",
        )
    if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        what = "no TLS 1.3" if error.reason in _OTHER_VERSION else "no TLS"
        hint = "a registry is always reached by HTTPS, with TLS 1.3"
        return DeployError("registry.tls", f"{host}: {what}: {error.reason or error}", hint=hint)
    if isinstance(error, (http.client.HTTPException, ValueError)) and not isinstance(error, OSError):
        what = f"its answer is no HTTP: {type(error).__name__} {cleaned(str(error)[:80])}"
        return DeployError(UNREACHABLE, f"{host}: {what}", hint="look whether a registry listens there")
    what = "it is not known" if isinstance(error, socket.gaierror) else getattr(error, "strerror", None) or str(error)
    return DeployError(
        UNREACHABLE, f"{host}: {cleaned(str(what)[:200])}", hint="look at the network, the proxy and the address"
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
        return DeployError(FAILED, f"{what}: the registry has failed ({status})", hint="look at the registry's log")
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
