"""The manifest: one spelling, a name from content, and limits that hostile bytes do not get past (F-16)."""

import hashlib
import json
import math
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.bundle.checks import check_evidence, read_object
from edge.bundle.manifest import (
    MAX_FILES,
    MAX_MANIFEST_BYTES,
    GoldenFrames,
    HealthLimits,
    Role,
    decode_manifest,
    encode_manifest,
    release_name,
)
from edge.errors import DeployError
from tests.support.manifests import bundled, manifest
from tests.support.raised import code_of

FIELDS = ("field", "duplicate", "files")


def values(**changes):
    return {**json.loads(encode_manifest(manifest())), **changes}


def refused(content):
    return code_of(decode_manifest, content if isinstance(content, bytes) else json.dumps(content).encode())


def named(told):
    """Return the fields with the name of their content, as whoever signs them would give it."""
    content = {key: told[key] for key in told if key not in ("release", "sequence", "created_at", "expires_at")}
    spelled = json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    return {**told, "release": hashlib.sha256(spelled.encode()).hexdigest()[:12]}


def with_file(**changes):
    made = values()
    made["files"][0].update(changes)
    return made


def test_what_is_written_is_read_back():
    made = manifest(
        channel="beta",
        expires_at="2027-01-01T00:00:00Z",
        compatible=("jetson-orin", "jetson-thor"),
        targets=("gate-01",),
        tensorrt=("10.3", "11"),
        l4t=(None, "37"),
        engine={"max_batch": 4, "precision": "int8"},
        calibration={"evidence": {"metric": "mAP50-95", "float": 0.5}},
        health=HealthLimits(hold_s=5),
        max_fps={"east": 2.5},
        golden_frames=GoldenFrames.UNKNOWN,
        files=(
            bundled("golden.json", Role.GOLDEN),
            bundled("golden/00.png", Role.GOLDEN_IMAGE),
            bundled("model.onnx", Role.MODEL),
            bundled("pipeline.yaml", Role.PIPELINE),
        ),
    )

    assert decode_manifest(encode_manifest(made)) == made


def test_equal_content_has_an_equal_name_whenever_it_was_made():
    later = manifest(sequence=9, created_at="2027-11-20T12:00:00Z", expires_at="2028-01-01T00:00:00Z")

    assert later.release == manifest().release
    assert manifest(channel="beta").release != manifest().release
    assert len(release_name(later)) == 12


def test_keys_of_a_later_version_are_ignored_but_count_for_the_name():
    told = values(note="of a later version")
    told["files"][0]["compression"] = "none"

    assert refused(told) == "verify.manifest.release"  # the name is not that of this content
    assert decode_manifest(json.dumps(named(told)).encode()).files == manifest().files


@pytest.mark.parametrize("format_", ["edge.release/2", "edge.bundle/1", None, 1, []])
def test_another_format_is_refused(format_):
    assert refused(values(format=format_)) == "verify.manifest.format"


@pytest.mark.parametrize(
    "path",
    [
        "../etc/passwd",
        "a/../b",
        "/etc/passwd",
        "//x",
        "a//b",
        "a/",
        "",
        ".",
        "..",
        "./a",
        ".hidden",
        "-rf",
        "a\0b",
        "a\nb",
        "a\x7fb",
        "a\\b",
        "a b",
        "C:x",
        "bücher",
        "x" * 101,
        "a/b/c/d/e",
        "manifest.json",
        "manifest.json.sig",
        "engine",
        "engine/x",
        7,
        None,
        ["a"],
    ],
)
def test_f16_a_path_that_could_leave_the_release_is_refused(path):
    assert refused(with_file(path=path)) == "verify.manifest.path"


def test_f16_ten_thousand_files_are_refused():
    file = values()["files"][0]
    many = [{**file, "path": f"clips/{index:05}", "role": "clip"} for index in range(10_000)]

    assert refused(values(files=many)) == "verify.manifest.size"
    assert refused(values(files=many[:65])) == "verify.manifest.files"
    assert refused(values(files=[{} for _ in range(10_000)])) == "verify.manifest.files"


@pytest.mark.parametrize(
    "told",
    [
        {"role": "link"},
        *({"sha256": one} for one in ("", "a" * 63, "A" * 64, "g" * 64, "a" * 65, None, 1)),
        *({"length_bytes": one} for one in (-1, 1.5, True, "1", None, 2**63)),
    ],
)
def test_f16_a_link_cannot_be_said_nor_what_is_no_digest_or_no_length(told):
    assert refused(named(with_file(**told))) == "verify.manifest.field"


def test_f16_a_pipeline_of_one_gib_is_refused():
    made = values()
    made["files"][1]["length_bytes"] = 1024**3

    assert refused(made) == "verify.manifest.field"
    assert refused(with_file(length_bytes=10**30)) == "verify.manifest.json"


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_f16_a_depth_bomb_is_refused(opening):
    assert refused(opening * (MAX_MANIFEST_BYTES // len(opening))) in ("verify.manifest.depth", "verify.manifest.json")


def test_f16_seventeen_levels_are_refused_and_what_stays_below_is_read():
    deep = {"x": 1}
    for _ in range(20):
        deep = {"x": deep}

    assert refused(values(engine=deep)) == "verify.manifest.depth"


def test_f16_a_hostile_manifest_takes_little_memory():
    bombs = [
        b"[" * (10 * MAX_MANIFEST_BYTES),
        b'{"files":[' + b"{}," * (MAX_MANIFEST_BYTES // 3 - 10) + b"{}]}",
        b"[" + b"[]," * (MAX_MANIFEST_BYTES // 3 - 10) + b"[]]",
        json.dumps({"format": "x" * (MAX_MANIFEST_BYTES - 20)}).encode(),
        b'{"a":' + b"9" * (MAX_MANIFEST_BYTES - 10) + b"}",
    ]
    tracemalloc.start()
    for bomb in bombs:
        assert refused(bomb).startswith("verify.manifest.")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak_bytes < 50 * 1024 * 1024


def test_what_is_given_twice_is_refused_be_it_a_key_a_path_or_a_file_that_is_also_a_folder():
    first, *others = files = values()["files"]
    folder = [{**first, "path": path, "role": "clip"} for path in ("a", "a/b")]

    for twice in ([first, first, *others], [*folder, *files]):
        assert refused(values(files=twice)) == "verify.manifest.duplicate"
    text = encode_manifest(manifest()).replace(b'"sequence": 7', b'"sequence": 7, "sequence": 1')
    assert refused(text) == "verify.manifest.duplicate"


def test_files_that_are_unsorted_too_many_or_of_two_lengths_are_refused():
    files = values()["files"]
    clip = {**files[0], "path": "clips/0", "role": "clip"}
    longer = {**clip, "path": "clips/1", "length_bytes": clip["length_bytes"] + 1}
    many = [{**clip, "path": f"clips/{number:05d}"} for number in range(MAX_FILES)]

    for unfit in (files[::-1], in_order([*files, clip, longer]), in_order([*files, *many])):
        assert refused(named(values(files=unfit))) == "verify.manifest.files"
    assert decode_manifest(json.dumps(named(values(files=in_order([*files, clip])))).encode())


def in_order(files):
    return sorted(files, key=lambda one: one["path"])


@pytest.mark.parametrize("content", [b'{"a": 1e999}', b'{"a": "\\ud800"}'])
def test_what_json_could_not_carry_again_is_refused_when_it_is_read(content):
    assert code_of(read_object, content, max_bytes=100) == "verify.manifest.json"


@pytest.mark.parametrize(("evidence", "code"), [([], "field"), ({"x": math.inf}, "json"), ({"x": "\ud800"}, "json")])
def test_evidence_that_json_could_not_carry_is_refused_when_it_is_made(evidence, code):
    assert code_of(check_evidence, "calibration", evidence) == f"verify.manifest.{code}"


@pytest.mark.parametrize("content", [b"", b"\xff", b"null", b"[]", b"{", b'{"a": NaN}', b'{"a": 1e999}', b'"\\ud800"'])
def test_what_is_no_json_object_is_refused(content):
    assert refused(content).startswith("verify.manifest.")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("release", "../../../x"),
        ("pipeline_name", "a/b"),
        ("channel", "Stable"),
        ("channel", "a\n"),
        ("sequence", -1),
        ("sequence", True),
        ("sequence", 1.0),
        ("created_at", "2026-11-20 12:00:00"),
        ("created_at", "2026-13-20T12:00:00Z"),
        ("created_at", "2026-1-20T12:00:00Z"),
        ("expires_at", "2026-11-20T12:00:00Z"),
        ("compatible", []),
        ("compatible", "any"),
        ("compatible", ["any", "any"]),
        ("compatible", [["any"]]),
        ("compatible", ["any device"]),
        ("secrets", ["../gate"]),
        ("targets", ["gate 01"]),
        ("decoders", ["soft ware"]),
        ("max_fps", []),
        ("max_fps", {"east": -1}),
        ("max_fps", {"east": "2"}),
        ("l4t", ["36.4", "36.3"]),
        ("downgrade_from", -1),
        ("tensorrt", ["10"]),
        ("tensorrt", ["11", "10"]),
        ("tensorrt", ["ten", None]),
        ("engine", []),
        ("golden", {"min_recall": 2}),
        ("golden", []),
        ("health", {"hold_s": 10, "deadline_s": 5}),
        ("health", {"hold_s": "long"}),
        ("golden_frames", "perhaps"),
        ("golden_frames", "unknown"),  # says that there are some, and lists none
        ("files", None),
        ("files", [1]),
        ("files", []),
        ("made_by", "a\x1b[31m"),
    ],
)
def test_a_field_that_is_not_well_formed_is_refused(key, value):
    told = values(**{key: value})
    assert refused(told if key == "release" else named(told)) in {f"verify.manifest.{part}" for part in FIELDS}


@pytest.mark.parametrize(
    "limits",
    [
        {"hold_s": -1.0},
        {"hold_s": 10.0, "deadline_s": 5.0},
        {"deadline_s": 1e6},
        {"min_rate_share": 1.5},
        {"max_slowdown": 0.5},
        {"min_available_bytes": -1},
        {"infer_p95_ms": -1.0},
        {"age_p95_ms": -1.0},
    ],
)
def test_a_limit_of_the_trial_out_of_its_range_is_refused(limits):
    assert code_of(HealthLimits, **limits) == "verify.manifest.field"


def test_a_field_that_is_missing_is_refused():
    for key in ("release", "files", "compatible", "created_at", "sequence"):
        made = values()
        del made[key]
        assert refused(made) in {"verify.manifest.field", "verify.manifest.files"}, key


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(key=st.sampled_from(sorted(values())), value=JSON)
def test_f16_whatever_a_field_holds_only_typed_errors_come_out(key, value):
    try:
        decode_manifest(json.dumps(values(**{key: value})).encode())
    except DeployError as error:
        assert error.code.startswith("verify.manifest.")  # noqa: PT017 - to accept it is fine as well
