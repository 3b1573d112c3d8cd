"""A trust document and a chain of them: what is not well formed is refused, whatever its signatures say."""

import base64
import json

import pytest

from edge.bundle.statement import SignedTrust, TrustDocument, decode_chain, encode_document
from tests.support.raised import code_of

KEY = f"ssh-ed25519 {'A' * 68}"
FIELDS = {
    "version": 1,
    "created_at": "2026-11-20T12:00:00Z",
    "root": KEY,
    "signers": (f'desk namespaces="edge-deploy" {KEY}',),
}


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 0},
        {"version": True},
        {"created_at": "yesterday"},
        {"root": "ssh-ed25519"},
        {"root": f"{KEY}\n"},
        {"signers": ("one",) * 201},
        {"signers": ("one\ntwo",)},
        {"former": ("\x1b[31m",)},
        {"revoked": (1,)},
        {"revoked": "AAAA"},
    ],
)
def test_a_document_that_is_not_well_formed_does_not_exist(changes):
    TrustDocument(**FIELDS)

    assert code_of(TrustDocument, **{**FIELDS, **changes}) in ("verify.trust.field", "verify.manifest.field")


@pytest.mark.parametrize("changes", [{"format": "edge.trust/2"}, {"former": None}, {"revoked": 1}, {"more": 1}])
def test_what_is_no_document_is_refused_before_a_signature_is_looked_at(changes):
    written = json.loads(encode_document(TrustDocument(**FIELDS)))
    unfit = {name: value for name, value in {**written, **changes}.items() if value is not None}

    assert code_of(lambda: SignedTrust(json.dumps(unfit).encode(), ()).document) == "verify.trust.field"


@pytest.mark.parametrize(
    "changes", [{"format": "edge.trust-chain/2"}, {"chain": []}, {"chain": [{}]}, {"chain": [{"document": "?"}]}]
)
def test_what_is_no_chain_is_refused(changes):
    one = {"document": base64.b64encode(b"{}").decode(), "signatures": []}
    chain = {"format": "edge.trust-chain/1", "chain": [one]}
    decode_chain(json.dumps(chain).encode())

    assert code_of(decode_chain, json.dumps({**chain, **changes}).encode()) == "verify.trust.field"
