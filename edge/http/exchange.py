"""A request as it came, and an answer as it goes; what no answer may lack is added here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "BadRequestError",
    "HttpRequest",
    "HttpResponse",
    "json_response",
    "read_http_request",
    "text_response",
    "wire_bytes",
]

_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]{0,1024}) HTTP/1\.[01]")
_REASONS = {
    200: "OK",
    303: "See Other",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    421: "Misdirected Request",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
# No page of anybody else may frame, read or keep what is shown here, and no browser may guess what it is.
_ALWAYS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class BadRequestError(Exception):
    """What came is no request that is answered here; `status` says why in HTTP's words."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """`path` begins with a slash and has no query; the names of `headers` are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """What is sent; `headers` come over those that every answer has."""

    status: int
    kind: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def text_response(status: int, text: str) -> HttpResponse:
    """Return a line of plain text."""
    return HttpResponse(status=status, kind="text/plain; charset=utf-8", body=f"{text}\n".encode())


def json_response(content: Any, *, status: int = 200) -> HttpResponse:
    """Return plain values as JSON."""
    body = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    return HttpResponse(status=status, kind="application/json", body=body)


def read_http_request(head: bytes) -> HttpRequest:
    """Return the request whose line and headers are `head`.

    Raises:
        BadRequestError: if it is none, or one with a body.
    """
    lines = head.decode("latin-1").split("\r\n")
    match = _LINE.fullmatch(lines[0])
    if match is None:
        raise BadRequestError(400, "expected a request line of HTTP/1.1 with a path")
    headers: dict[str, str] = {}
    for line in filter(None, lines[1:]):
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip() or name in headers:
            raise BadRequestError(400, "expected headers as NAME: VALUE, each once")
        headers[name] = value.strip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequestError(413, "a request has no body here")
    return HttpRequest(method=match[1], path=match[2].partition("?")[0], headers=headers)


def wire_bytes(answer: HttpResponse, *, has_body: bool = True) -> bytes:
    """Return the answer as it goes over the wire; without its body for HEAD."""
    headers = {**_ALWAYS, "Content-Type": answer.kind, "Content-Length": str(len(answer.body)), **answer.headers}
    lines = [f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (answer.body if has_body else b"")
