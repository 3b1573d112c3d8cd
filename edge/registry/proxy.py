"""The proxy of `https_proxy`, as a connection to a registry needs it."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from edge.errors import DeployError
from edge.registry.login import Login
from edge.registry.problems import UNREACHABLE

__all__ = ["Proxy", "proxy_for"]

_USUAL_PORT = 3128


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where it is, and the login that its URL states."""

    host: str
    port: int
    login: Login | None = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """What it is told besides where to."""
        return {} if self.login is None else {"Proxy-Authorization": self.login.header}


def proxy_for(host: str) -> Proxy | None:
    """Return the proxy for `host[:port]`; None where `no_proxy` names it, or there is none.

    Raises:
        DeployError: `registry.unreachable`, for an URL that is none; without what is in it, which may be a password.
    """
    url = urllib.request.getproxies().get("https")
    if not url or urllib.request.proxy_bypass(host):
        return None
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        name, port = parts.hostname, parts.port or _USUAL_PORT
    except ValueError:
        name, port = None, 0
    if not name or parts.scheme not in ("", "http"):
        problem = f"{host}: https_proxy: expected http://[user:password@]host[:port], got something else"
        raise DeployError(UNREACHABLE, problem, hint="write / @ : in a password as %2F %40 %3A") from None
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Proxy(name, port, Login(user, password) if user else None)
