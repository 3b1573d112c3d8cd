"""Keys of a PKCS#11 token (SoftHSM) and FIDO keys of a stand-in agent sign all that is signed; a device takes it."""

import base64
import hashlib
import shutil
import socketserver
import struct
import subprocess
import threading
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from edge.bundle.statement import encode_chain
from edge.deploy.provision.keys import TrustChange, next_chain, public_of, read_public_key
from tests.support.manifests import ssh_agent, ssh_key
from tests.support.pulling import StatingClock, StatingDesk, into_ring, published, pulling_from

MODULE = Path("/usr/lib/softhsm/libsofthsm2.so")
KEYS = {"root": "EC:prime256v1", "release": "rsa:3072", "promoter": "EC:prime256v1"}
PIN = "123456"
_APPLICATION = b"ssh:"
_TOUCHED = 1
_FAILURE, _IDENTITIES, _THESE, _SIGN, _SIGNED = 5, 11, 12, 13, 14

needs_token = pytest.mark.skipif(
    not MODULE.is_file() or shutil.which("pkcs11-tool") is None, reason="softhsm2 and opensc are not installed"
)


@pytest.fixture
def keys(request, tmp_path, monkeypatch):
    """The public halves of keys that an agent signs with and does not give out."""
    with request.param(tmp_path / "token", monkeypatch) as keys:
        yield keys


@contextmanager
def in_a_token(folder, monkeypatch):
    (folder / "tokens").mkdir(parents=True)
    (folder / "conf").write_text(f"directories.tokendir = {folder}/tokens\n")
    (folder / "askpass").write_text(f"#!/bin/sh\necho {PIN}\n")
    (folder / "askpass").chmod(0o755)
    monkeypatch.setenv("SOFTHSM2_CONF", str(folder / "conf"))
    monkeypatch.setenv("SSH_ASKPASS", str(folder / "askpass"))
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    _run("softhsm2-util", "--init-token", "--free", "--label", "edge", "--pin", PIN, "--so-pin", PIN * 2)
    for number, (name, kind) in enumerate(KEYS.items(), start=1):
        made = ("--keypairgen", "--key-type", kind, "--id", f"{number:02}", "--label", name)
        _run("pkcs11-tool", "--module", MODULE, "--login", "--pin", PIN, *made)
    with ssh_agent(folder, monkeypatch):
        _run("ssh-add", "-q", "-s", MODULE)
        for line in _run("ssh-keygen", "-D", MODULE).splitlines():
            (folder / f"{line.split()[2]}.pub").write_text(f"{line}\n")
        yield {name: folder / f"{name}.pub" for name in KEYS}


def _run(*words: object) -> str:
    return subprocess.run(
        list(map(str, words)), check=True, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    ).stdout


class _Ed25519:
    kind = b"sk-ssh-ed25519@openssh.com"

    def __init__(self):
        self._key = ed25519.Ed25519PrivateKey.generate()
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = _string(self.kind) + _string(public) + _string(_APPLICATION)

    def signature(self, content):
        return self._key.sign(content)


class _Ecdsa:
    kind = b"sk-ecdsa-sha2-nistp256@openssh.com"

    def __init__(self):
        self._key = ec.generate_private_key(ec.SECP256R1())
        point = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.public = _string(self.kind) + _string(b"nistp256") + _string(point) + _string(_APPLICATION)

    def signature(self, content):
        numbers = decode_dss_signature(self._key.sign(content, ec.ECDSA(SHA256())))
        return b"".join(_string(number.to_bytes(33, "big").lstrip(b"\0").rjust(33, b"\0")) for number in numbers)


class _Agent(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path, keys):
        super().__init__(path, _Conversation)
        self.keys = {key.public: key for key in keys}
        self.signatures = 0

    def answer(self, kind, content):
        if kind == _IDENTITIES:
            listed = b"".join(_string(public) + _string(b"") for public in self.keys)
            return bytes([_THESE]) + struct.pack(">I", len(self.keys)) + listed
        if kind == _SIGN:
            public, rest = _taken(content)
            signed, _ = _taken(rest)
            return bytes([_SIGNED]) + _string(self._signed(self.keys[public], signed))
        return bytes([_FAILURE])

    def _signed(self, key, content):
        self.signatures += 1
        pressed = bytes([_TOUCHED]) + struct.pack(">I", self.signatures)
        sealed = hashlib.sha256(_APPLICATION).digest() + pressed + hashlib.sha256(content).digest()
        return _string(key.kind) + _string(key.signature(sealed)) + pressed


class _Conversation(socketserver.StreamRequestHandler):
    def handle(self):
        while head := self.rfile.read(4):
            message = self.rfile.read(struct.unpack(">I", head)[0])
            self.wfile.write(_string(self.server.answer(message[0], message[1:])))


def _string(content):
    return struct.pack(">I", len(content)) + content


def _taken(content):
    length = struct.unpack(">I", content[:4])[0]
    return content[4 : 4 + length], content[4 + length :]


@contextmanager
def of_fido(folder, monkeypatch):
    """Have an agent that signs as touched tokens do, in the forms of OpenSSH's PROTOCOL.u2f."""
    folder.mkdir()
    monkeypatch.setenv("SSH_AUTH_SOCK", str(folder / "agent"))
    keys = dict(zip(KEYS, (_Ed25519(), _Ecdsa(), _Ed25519()), strict=True))
    with _Agent(str(folder / "agent"), keys.values()) as agent:
        threading.Thread(target=agent.serve_forever, daemon=True).start()
        for name, key in keys.items():
            public = base64.b64encode(key.public).decode()
            (folder / f"{name}.pub").write_text(f"{key.kind.decode()} {public} {name}\n")
        try:
            yield {name: folder / f"{name}.pub" for name in KEYS}
        finally:
            agent.shutdown()


@pytest.mark.slow(reason="a registry, a device and a token with three keys")
@pytest.mark.parametrize("keys", [pytest.param(in_a_token, marks=needs_token), of_fido], indirect=True)
def test_release_statement_and_who_counts_are_signed_by_keys_in_hardware(registry, root, keys, tmp_path):
    now = datetime.now(timezone.utc)
    signers = [(keys["release"], ("edge-release",)), (keys["promoter"], ("edge-ring",))]
    change = TrustChange(added=[(read_public_key(key), spaces) for key, spaces in signers])
    chain = next_chain((), change, root=keys["root"], now=now)
    root.layout.trust_root.write_text(public_of(keys["root"]) + "\n")
    root.layout.first_trust.write_bytes(encode_chain(chain))
    into_ring(root, registry, keys["promoter"], "all")
    root.layout.allowed_signers.write_text("")  # what counts is the word of the root
    root.key = keys["release"]
    device = pulling_from(registry, root)
    with closing(StatingDesk(registry, keys["promoter"], StatingClock())) as desk:
        release = published(registry, desk, root.bundle("one"))
        desk.promoter.promote(release, "all")
        assert device.pull().outcome.result == "committed"

        other = read_public_key(ssh_key(tmp_path, "other").with_suffix(".pub"))
        gone = TrustChange(revoked=[read_public_key(keys["release"])], added=[(other, ("edge-release",))])
        desk.desk.tell_trust(encode_chain(next_chain(chain, gone, root=keys["root"], now=now)))
        desk.promoter.promote(published(registry, desk, root.bundle("two", sequence=2)), "all")

        assert device.pull().outcome.code == "verify.signature.revoked"
        assert device.current == release.manifest.release
