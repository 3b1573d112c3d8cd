"""Whose requests are answered on a TCP port of this machine: its own programs, and pages that came from here."""

from __future__ import annotations

import re

from edge.http.exchange import HttpRequest, HttpResponse, text_response

__all__ = ["refusal"]

_OURS = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)


def refusal(request: HttpRequest) -> HttpResponse | None:
    """Return why the request is not answered; None where it is.

    A name of somebody else's that leads here (DNS rebinding) shows in Host. A page of somebody else's that asks here
    shows in Origin, and in Sec-Fetch-Site of every browser of these years; it may still link here.
    """
    host = request.headers.get("host")
    if host is None or _OURS.fullmatch(host) is None:
        return text_response(421, "this is served under 127.0.0.1 and localhost only")
    origin = request.headers.get("origin")
    if origin is not None and origin.lower() != f"http://{host.lower()}":
        return text_response(403, "this is not for pages of other origins")
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _is_link(request):
        return text_response(403, "this is not for pages of other origins")
    return None


def _is_link(request: HttpRequest) -> bool:
    """A link that a person follows shows the page to that person alone; a frame or a picture would not."""
    headers = request.headers
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
