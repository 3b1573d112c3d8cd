"""An agent that holds FIDO keys and signs as a touched token does, in the forms of OpenSSH's PROTOCOL.u2f."""

from __future__ import annotations

import base64
import hashlib
import socketserver
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_APPLICATION = b"ssh:"
_TOUCHED = 1
_FAILURE, _IDENTITIES, _THESE, _SIGN, _SIGNED = 5, 11, 12, 13, 14


class _Ed25519:
    kind = b"sk-ssh-ed25519@openssh.com"

    def __init__(self) -> None:
        self._key = ed25519.Ed25519PrivateKey.generate()
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = _string(self.kind) + _string(public) + _string(_APPLICATION)

    def signature(self, content: bytes) -> bytes:
        return self._key.sign(content)


class _Ecdsa:
    kind = b"sk-ecdsa-sha2-nistp256@openssh.com"

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        point = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.public = _string(self.kind) + _string(b"nistp256") + _string(point) + _string(_APPLICATION)

    def signature(self, content: bytes) -> bytes:
        numbers = decode_dss_signature(self._key.sign(content, ec.ECDSA(SHA256())))
        return b"".join(_string(number.to_bytes(33, "big").lstrip(b"\0").rjust(33, b"\0")) for number in numbers)


_Key = _Ed25519 | _Ecdsa
KINDS: dict[str, type[_Key]] = {"ed25519-sk": _Ed25519, "ecdsa-sk": _Ecdsa}


@contextmanager
def fido_agent(socket: Path, kinds: Sequence[str]) -> Iterator[list[str]]:
    """Serve an agent at `socket` with one key of each of `kinds`; give their public halves as lines of a file."""
    keys = [KINDS[kind]() for kind in kinds]
    with _Agent(str(socket), keys) as agent:
        threading.Thread(target=agent.serve_forever, daemon=True).start()
        try:
            yield [f"{key.kind.decode()} {base64.b64encode(key.public).decode()}" for key in keys]
        finally:
            agent.shutdown()


class _Agent(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, keys: Sequence[_Key]) -> None:
        super().__init__(path, _Conversation)
        self.keys = {key.public: key for key in keys}
        self.signatures = 0

    def answer(self, kind: int, content: bytes) -> bytes:
        if kind == _IDENTITIES:
            listed = b"".join(_string(public) + _string(b"") for public in self.keys)
            return bytes([_THESE]) + struct.pack(">I", len(self.keys)) + listed
        if kind == _SIGN:
            public, rest = _taken(content)
            signed, _ = _taken(rest)
            return bytes([_SIGNED]) + _string(self._signed(self.keys[public], signed))
        return bytes([_FAILURE])

    def _signed(self, key: _Key, content: bytes) -> bytes:
        self.signatures += 1
        pressed = bytes([_TOUCHED]) + struct.pack(">I", self.signatures)
        sealed = hashlib.sha256(_APPLICATION).digest() + pressed + hashlib.sha256(content).digest()
        return _string(key.kind) + _string(key.signature(sealed)) + pressed


class _Conversation(socketserver.StreamRequestHandler):
    server: _Agent

    def handle(self) -> None:
        while head := self.rfile.read(4):
            message = self.rfile.read(struct.unpack(">I", head)[0])
            self.wfile.write(_string(self.server.answer(message[0], message[1:])))


def _string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _taken(content: bytes) -> tuple[bytes, bytes]:
    length = struct.unpack(">I", content[:4])[0]
    return content[4 : 4 + length], content[4 + length :]
