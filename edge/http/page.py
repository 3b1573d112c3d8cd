"""The status page: one HTML file, which asks for `status.json` and `pictures/STREAM.jpg` beside it."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.resources
import re

from edge.http.exchange import HttpResponse

__all__ = ["page_response", "picture_of", "picture_response"]

_PICTURE = re.compile(r"/pictures/([a-z0-9-]{1,32})\.jpg")


@functools.cache
def page_response() -> HttpResponse:
    """Return the page, with leave for its own script and style and for nothing else."""
    text = (importlib.resources.files("edge.http") / "page.html").read_text("utf-8")
    policy = (
        f"default-src 'none'; script-src '{_digest(text, 'script')}'; style-src '{_digest(text, 'style')}'; "
        "img-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    headers = {"Content-Security-Policy": policy}
    return HttpResponse(status=200, kind="text/html; charset=utf-8", body=text.encode(), headers=headers)


def picture_response(jpeg: bytes) -> HttpResponse:
    """Return a picture."""
    return HttpResponse(status=200, kind="image/jpeg", body=jpeg)


def picture_of(path: str) -> str | None:
    """Return the stream whose picture a path asks for; None: it asks for something else."""
    match = _PICTURE.fullmatch(path)
    return None if match is None else match[1]


def _digest(text: str, element: str) -> str:
    content = text.partition(f"<{element}>")[2].partition(f"</{element}>")[0]
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
