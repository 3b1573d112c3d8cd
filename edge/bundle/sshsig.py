"""What an SSH signature says of itself: the key that made it and what it was made for. Proves nothing."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from dataclasses import dataclass

__all__ = ["MAX_SIGNATURE_BYTES", "SshSignature", "read_signature"]

MAX_SIGNATURE_BYTES = 16 * 1024
_ARMOUR = re.compile(rb"\s*-----BEGIN SSH SIGNATURE-----\n([A-Za-z0-9+/=\s]+)-----END SSH SIGNATURE-----\s*")
_MAGIC = b"SSHSIG"


@dataclass(frozen=True, slots=True)
class SshSignature:
    """`public_key` is in base64, as a line of an allowed-signers file has it."""

    public_key: str
    namespace: str


def read_signature(signature: bytes) -> SshSignature:
    """Return what `signature` says of itself.

    Raises:
        ValueError: if it is no SSH signature.

    Source: OpenSSH, PROTOCOL.sshsig.
    """
    armour = _ARMOUR.fullmatch(signature[:MAX_SIGNATURE_BYTES])
    if armour is None or len(signature) > MAX_SIGNATURE_BYTES:
        raise ValueError("not an armoured SSH signature")
    try:
        blob = base64.b64decode(b"".join(armour.group(1).split()), validate=True)
        if not blob.startswith(_MAGIC) or struct.unpack_from(">I", blob, len(_MAGIC)) != (1,):
            raise ValueError("not an SSH signature of version 1")
        key, offset = _string(blob, len(_MAGIC) + 4)
        namespace, _ = _string(blob, offset)
        return SshSignature(base64.b64encode(key).decode("ascii"), namespace.decode("utf-8"))
    except (binascii.Error, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"damaged: {error}") from None


def _string(blob: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">I", blob, offset)
    end = offset + 4 + length
    if end > len(blob):
        raise ValueError("damaged: it ends too early")
    return blob[offset + 4 : end], end
