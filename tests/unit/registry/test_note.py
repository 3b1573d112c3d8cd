"""What lies at the tag of a note or of a release, whoever put it there."""

import json

import pytest

from edge.errors import DeployError
from edge.registry.artifact import (
    ARTIFACT_TYPE,
    MANIFEST,
    TRUST_TYPE,
    ArtifactLayer,
    decode_artifact,
    encode_note,
    layer_of_note,
)
from tests.support.raised import error_of

LAYER = ArtifactLayer("application/x", "a" * 64, 3)


def changed(**values):
    return json.dumps({**encode_note(TRUST_TYPE, LAYER), **values}).encode()


def test_a_note_is_read_as_it_was_written():
    assert layer_of_note(changed(), TRUST_TYPE, where="t") == LAYER


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        changed(artifactType="application/other"),
        changed(layers=[]),
        changed(layers="text"),
        changed(layers=[{"mediaType": "application/x", "digest": "sha256:" + "A" * 64, "size": 3}]),
        changed(layers=[{"mediaType": "application/x", "digest": "sha512:" + "a" * 64, "size": 3}]),
        changed(layers=[{"mediaType": "application/x", "digest": 7, "size": 3}]),
        changed(layers=[{"mediaType": "application/x", "digest": "sha256:" + "a" * 64, "size": "many"}]),
        *(changed(layers=[{"mediaType": "application/x", "digest": LAYER.digest, "size": n}]) for n in (True, "3", -3)),
        changed(layers=[{"mediaType": ["x"], "digest": LAYER.digest, "size": 3}]),
        changed(layers=[{"mediaType": "application/x", "digest": LAYER.digest, "size": float("inf")}]),
        json.dumps(encode_note(TRUST_TYPE)).encode(),
    ],
)
def test_what_is_no_note_of_the_kind_is_named_by_its_place(content):
    with pytest.raises(DeployError, match=r"^here: ") as failed:
        layer_of_note(content, TRUST_TYPE, where="here")
    assert failed.value.code == "registry.artifact"


@pytest.mark.parametrize(
    ("layers", "said"),
    [([None, 1, {"mediaType": MANIFEST}], "no SHA-256 or no size"), ([{"mediaType": MANIFEST}] * 2, "2 layers of")],
)
def test_an_artifact_type_alone_makes_no_release(layers, said):
    content = json.dumps({"artifactType": ARTIFACT_TYPE, "layers": layers}).encode()

    assert said in error_of(decode_artifact, content, where="here").problem


@pytest.mark.parametrize(("sha256", "length_bytes"), [("../x", 1), ("A" * 64, 1), ("0" * 63, 1), ("0" * 64, -1)])
def test_what_has_no_digest_or_no_length_is_no_blob(sha256, length_bytes):
    with pytest.raises(ValueError, match="is no blob"):
        ArtifactLayer("application/json", sha256, length_bytes)
