"""What lies at the tag of a note, whoever put it there."""

import json

import pytest

from edge.errors import DeployError
from edge.registry.artifact import TRUST_TYPE, ArtifactLayer, encode_note, layer_of_note

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
