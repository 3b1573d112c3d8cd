"""`edge-deploy bundle` as a user types it, on the demo's model and table and scenes of its street."""

import json
import re
import shutil
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import cv2
import msgspec
import onnx
import pytest

from edge.bundle.folder import open_bundle, write_bundle
from edge.bundle.manifest import GoldenFrames, GoldenLimits, Role, encode_manifest
from edge.bundle.sign import DOWNGRADE, namespace_of, verify
from edge.calibrate.table import TensorRange, read_table, write_table
from edge.deploy.fleet.over_ssh import BoundOfDevices
from edge.deploy.provision.wheels import own_wheel
from edge.errors import DeployError
from edge.evaluate.golden import decode_golden
from edge.media.images import write_image
from edge.types import ImageSize
from edge.version import __version__
from tests.support.command_line import command
from tests.support.demo_model import MODEL, TABLE
from tests.support.manifests import allowed, bundled, manifest, ssh_key
from tests.support.models import with_nan
from tools.street.scene import Scene

pytestmark = pytest.mark.slow_but(reason="commands on further models and options: the first row of each test is quick")

AT = "1795132800"  # 2026-11-20T00:00:00Z


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A pipeline of two cameras with the demo's model and table, pictures of a street, and a key."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copy(MODEL, folder)
    shutil.copy(TABLE, folder)
    (folder / "golden").mkdir()
    for seed in range(8):
        picture, _ = Scene(1000 + seed, ImageSize(width=640, height=360)).frame(40)
        write_image(folder / "golden" / f"{seed}.png", picture)
    ssh_key(folder)
    write_pipeline(folder / "gates.yaml", "traffic.calib.json")
    return folder


def write_pipeline(path, table):
    path.write_text(
        f"version: 1\nmodel: {{onnx: traffic.onnx, calibration: {table}, precision: int8}}\n"
        "streams:\n  - {id: east, uri: rtsp://east/main}\n  - {id: west, uri: rtsp://west/main}\n"
        "publish: {jsonl: '-'}\n"
    )


def bundle(place, *options, pipeline="gates.yaml", expected=0):
    return command("edge-deploy", "bundle", place / pipeline, "--key", place / "key", *options, expected=expected)


def refused(place, *options, **how):
    """Return what is told of a bundle that has to be refused; nothing is written then."""
    told = bundle(place, "-o", place / "none", *options, expected=2, **how).stderr
    assert not (place / "none").exists()
    return told


def refused_with(place, changed, *options):
    """Have it refused with a table whose range of the input was changed."""
    table = read_table(place / "traffic.calib.json")
    wrong = {"images": TensorRange(amax=changed(table.tensors["images"].amax), method="mse")}
    write_table(place / "wrong.calib.json", msgspec.structs.replace(table, tensors={**table.tensors, **wrong}))
    write_pipeline(place / "wrong.yaml", "wrong.calib.json")
    return refused(place, *options, pipeline="wrong.yaml")


def test_a_model_whose_output_is_nan_is_refused(place):
    onnx.save(with_nan(onnx.load(place / "traffic.onnx")), place / "nan.onnx")
    text = (place / "gates.yaml").read_text().replace("traffic.onnx, calibration: traffic.calib.json", "nan.onnx")
    (place / "nan.yaml").write_text(text.replace("int8", "fp32"))

    told = refused(place, "--golden", place / "golden", pipeline="nan.yaml")

    assert "nan: the model's output is not a number" in told


def content_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.promised(reason="a release is the same bytes for the same inputs")
def test_the_same_inputs_give_the_same_bytes_signature_included(place, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", AT)

    for name in ("one", "two"):
        bundle(place, "--golden", place / "golden", "-o", tmp_path / name)

    assert len(content_of(tmp_path / "one")) > 10
    assert content_of(tmp_path / "one") == content_of(tmp_path / "two")


def test_a_bundle_holds_what_a_device_needs_and_its_signature_counts(place, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", AT)
    options = ("--channel", "beta", "--compatible", "jetson-orin", "--target", "gate-01", "--expires-days", "30")
    ranges = ("--tensorrt", "10.3..11", "--l4t", "36..")
    told = json.loads(bundle(place, "--golden", place / "golden", "-o", tmp_path, *options, *ranges, "--json").stdout)

    made = open_bundle(Path(told["bundle"]))
    manifest = made.manifest
    assert (told["release"], told["sequence"], told["channel"]) == (manifest.release, int(AT), "beta")
    assert (manifest.created_at, manifest.expires_at) == ("2026-11-20T00:00:00Z", "2026-12-20T00:00:00Z")
    assert (manifest.compatible, manifest.targets) == (("jetson-orin",), ("gate-01",))
    assert (manifest.tensorrt, manifest.l4t) == (("10.3", "11"), ("36", None))
    assert (manifest.secrets, manifest.decoders) == ((), ("auto",))
    assert manifest.engine["max_batch"] == 2  # two live cameras, never more than two frames at once
    assert manifest.golden_frames is GoldenFrames.UNKNOWN
    assert manifest.calibration["evidence"]["metric"] == "mAP50-95"
    assert {file.role for file in manifest.files} == {
        Role.PIPELINE,
        Role.MODEL,
        Role.CALIBRATION,
        Role.GOLDEN,
        Role.GOLDEN_IMAGE,
        Role.SBOM,
    }
    golden = decode_golden(made.path_of(manifest.files_of(Role.GOLDEN)[0]).read_bytes())
    assert [image.path for image in golden.images] == [file.path for file in manifest.files_of(Role.GOLDEN_IMAGE)]
    assert told["golden"]["passed"] is True
    assert told["model_license"] == "Apache-2.0"  # as the demo's model file says
    of_release, of_software = (json.loads(made.path_of(one).read_bytes()) for one in manifest.files_of(Role.SBOM))
    assert "device:aarch64-cp310" in {one["bom-ref"] for one in of_software["components"]}
    (link,) = of_release["metadata"]["component"]["externalReferences"]
    assert link["hashes"][0]["content"] == manifest.files_of(Role.SBOM)[1].sha256
    principal = verify(
        made.manifest_bytes,
        made.signature,
        allowed_signers=allowed(tmp_path / "signers", place / "key"),
        revoked=None,
        at=datetime(2026, 11, 21, tzinfo=timezone.utc),
    )
    assert principal == "ana@example"


def test_a_license_that_the_pipeline_file_states_is_in_the_sbom_and_not_on_the_device(place, tmp_path):
    text = (place / "gates.yaml").read_text().replace("precision: int8", "precision: int8, license: AGPL-3.0")
    (place / "licensed.yaml").write_text(text)

    told = json.loads(bundle(place, "--no-golden", "-o", tmp_path, "--json", pipeline="licensed.yaml").stdout)

    made = open_bundle(Path(told["bundle"]))
    assert told["model_license"] == "AGPL-3.0"
    assert b"AGPL-3.0" in made.path_of(made.manifest.files_of(Role.SBOM)[0]).read_bytes()
    assert b"license" not in made.path_of(made.manifest.files_of(Role.PIPELINE)[0]).read_bytes()


def test_a_bundle_names_the_secrets_and_decoders_that_the_device_has_to_have(place, tmp_path):
    head, streams, rest = (place / "gates.yaml").read_text().partition("streams:\n")
    cameras = "".join(
        f"  - {{id: {name}, uri: 'rtsp://10.0.0.9/{name}', credential: {login}, decoder: {decoder}{more}}}\n"
        for name, login, decoder, more in (
            ("n", "cam", "software", ""),
            ("m", "cam", "auto", ", max_fps: 2"),
            ("o", "other", "auto", ""),
        )
    )
    (place / "secrets.yaml").write_text(head + streams + cameras + rest)
    bundle(place, "--no-golden", "-o", tmp_path, pipeline="secrets.yaml")
    manifest = open_bundle(next(tmp_path.glob("*.bundle"))).manifest
    assert (manifest.secrets, manifest.decoders) == (("cam", "other"), ("auto", "software"))
    assert manifest.max_fps == {"m": 2}


@pytest.mark.slow(reason="builds and proves an engine more than once")
def test_another_table_is_another_release_and_a_higher_sequence_follows_a_clock_that_was_ahead(
    place, tmp_path, monkeypatch
):
    table = read_table(place / "traffic.calib.json")
    other = msgspec.structs.replace(table, evidence=None)
    write_table(place / "other.calib.json", other)
    write_pipeline(place / "other.yaml", "other.calib.json")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(AT) + 1000))
    first = json.loads(bundle(place, "--golden", place / "golden", "-o", tmp_path, "--json").stdout)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", AT)

    second = json.loads(
        bundle(place, "--golden", place / "golden", "-o", tmp_path, "--json", pipeline="other.yaml").stdout
    )

    assert second["release"] != first["release"]
    assert second["sequence"] == first["sequence"] + 1


@pytest.mark.parametrize(
    ("epoch", "options", "told"),
    [
        ("4070908800", (), "a day ahead of this machine's clock"),
        (AT, ("--sequence", str(2**53)), "is above"),
        (AT, ("--sequence", "20261120001"), "is above"),
        ("yesterday", (), "SOURCE_DATE_EPOCH"),
    ],
    ids=["made in 2099", "highest sequence", "a date as a number", "no date"],
)
def test_a_release_from_far_ahead_or_of_no_date_is_not_signed(place, monkeypatch, epoch, options, told):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)

    assert told in refused(place, "--no-golden", *options)


@pytest.mark.parametrize("lacks", ["--target", "--expires-days"])
def test_a_permission_to_go_back_without_a_bound_is_not_signed(place, lacks):
    bounds = {"--target": "gate-01", "--expires-days": "1"}
    given = [word for pair in bounds.items() if pair[0] != lacks for word in pair]

    assert "permission to go back" in refused(place, "--no-golden", "--downgrade", "7", *given)


def test_a_permission_to_go_back_names_its_counter_and_is_signed_for_nothing_else(place, tmp_path):
    bounds = ("--downgrade", "7", "--target", "gate-01", "--expires-days", "1")
    told = json.loads(bundle(place, "--no-golden", "-o", tmp_path, *bounds, "--json").stdout)

    made = open_bundle(Path(told["bundle"]))
    assert (made.manifest.downgrade_from, made.manifest.sequence, told["downgrade_from"]) == (7, 7, 7)
    assert namespace_of(made.signature) == DOWNGRADE


def test_a_table_with_one_scale_four_times_too_small_is_refused_with_the_numbers(place):
    told = refused_with(place, lambda amax: amax / 4, "--golden", place / "golden")

    assert "bundle.golden" in told
    assert "0.95" in told or "0.1" in told
    assert re.search(r'\n  found again: "[a-z]+ \d+ of \d+[^{\n]*"\n', told)


@pytest.mark.parametrize(("factor", "told"), [(10, "times too large"), (0.1, "other normalisation")])
def test_a_table_whose_input_range_is_ten_times_off_is_refused_even_where_nothing_is_to_be_proven(place, factor, told):
    found = refused_with(place, lambda amax: amax * factor, "--no-golden")

    assert 'input "images" has range' in found
    assert told in found


def test_without_golden_frames_it_has_to_be_said_and_is_recorded(place, tmp_path):
    told = refused(place)
    assert "--golden DIR" in told
    assert "--no-golden" in told

    shown = bundle(place, "-o", tmp_path, "--no-golden").stdout

    assert "allow_unproven" in shown
    (made,) = tmp_path.glob("*.bundle")
    assert open_bundle(made).manifest.golden_frames is GoldenFrames.NONE


def test_int8_without_a_table_is_refused(place):
    (place / "bare.yaml").write_text(
        (place / "gates.yaml").read_text().replace("calibration: traffic.calib.json, ", "")
    )

    told = refused(place, "--golden", place / "golden", pipeline="bare.yaml")

    assert "bare.yaml:2: model.precision: int8 needs a calibration table" in told


def test_limits_wider_than_the_defaults_are_told_where_a_release_is_signed_again_and_pushed(place, tmp_path):
    files = {"model.onnx": b"model", "pipeline.yaml": b"version: 1\n"}
    made = manifest(
        golden=GoldenLimits(min_recall=0, max_extra=0.5, max_score_error=0.05),
        files=(bundled("model.onnx", Role.MODEL, b"model"), bundled("pipeline.yaml", Role.PIPELINE, b"version: 1\n")),
    )
    path = write_bundle(tmp_path, made, manifest_bytes=encode_manifest(made), signature=b"sig", files=files).path

    again = command("edge-deploy", "bundle", "--again", path, "--key", place / "key", "-o", tmp_path / "again")
    pushed = command("edge-deploy", "push", path, "nobody", "--plan", expected=3)

    for told in (again.stderr, pushed.stderr):
        assert "wider than the defaults: recall 0 (0.95), extra 0.5 (0.05)\n" in told


@pytest.mark.parametrize("make", ["key", "folder"])
def test_a_key_and_a_folder_of_no_use_are_told_before_the_golden_frames(place, tmp_path, make):
    key, out = ssh_key(tmp_path), tmp_path / "out"
    if make == "key":
        key.chmod(0o644)
    else:
        out.write_text("a file")

    told = bundle(place, "--golden", place / "golden", "--key", key, "-o", out, expected=2).stderr

    assert "golden frames" not in told
    assert str(key if make == "key" else out) in told


@pytest.mark.parametrize("verb", ["bundle", "push"])
def test_few_golden_frames_and_copies_of_one_are_told_as_a_weak_proof(place, tmp_path, verb):
    (tmp_path / "copies").mkdir()
    for number in range(8):
        shutil.copy(place / "golden" / "0.png", tmp_path / "copies" / f"{number}.png")
    options = ("-o", tmp_path / "out") if verb == "bundle" else ("nobody", "--plan")

    told = command(
        "edge-deploy", verb, place / "gates.yaml", *options, "--key", place / "key", "--golden", tmp_path / "copies",
        "--golden-limit", "recall=0",
        expected=0 if verb == "bundle" else 3,
    ).stderr  # fmt: skip

    assert "7 of 8 images are copies" in told
    assert "wider than the defaults: recall 0 (0.95)\n" in told
    assert re.search(r"\b[1-9] of 40 sure detections, on 1 images", told)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--key", "none"), "none: "),
        (("--key", "/"), "/: is a folder"),
        (("--channel", "Not A Channel", "--no-golden"), "channel"),
        (("--tensorrt", "ten"), "expected two versions"),
        (("--golden", "none"), "none: "),
        (("--no-golden", "--golden", "x"), "contradicts"),
        (("--no-golden", "--golden-limit", "recall=0.9"), "contradicts"),
        (("--golden-limit", "map=0.9"), "recall, extra, iou, score-error"),
        (("--golden-limit", "recall"), "expected a number from 0 to 1"),
        (("--golden-limit", "recall=97"), "'recall=97': expected a number from 0 to 1"),
        (("--golden-limit", "recall=nan"), "'recall=nan': expected a number from 0 to 1"),
        (("--golden-limit", "recall=1", "--golden-limit", "recall=0.5"), "recall is given twice"),
        (("--libraries", "aarch64-cp310"), "--libraries are those of --software, which is missing"),
        (("--software", "--libraries", "riscv64-cp312"), "wheels are locked for no 'riscv64-cp312'; expected one of"),
    ],
)
def test_a_wrong_option_is_explained(place, options, told):
    assert told in " ".join(refused(place, *options).split())


@pytest.mark.slow(reason="builds and proves an engine more than once")
def test_limits_that_are_given_hold_here_and_on_the_device(place, tmp_path):
    named = ("--golden", place / "golden", "--golden-limit", "recall=0.97", "--golden-limit", "score-error=0.05")
    told = json.loads(bundle(place, "-o", tmp_path, *named, "--json").stdout)

    limits = open_bundle(Path(told["bundle"])).manifest.golden
    assert (limits.min_recall, limits.max_extra, limits.min_iou) == (0.97, 0.05, 0.5)
    assert limits.max_score_error <= 0.05

    assert "at most 0 expected" in refused(place, *named[:2], "--golden-limit", "score-error=0")


@pytest.mark.slow(reason="builds and proves an engine more than once")
def test_frames_of_the_pipelines_clips_prove_it_where_no_images_are_given(place, tmp_path):
    scene = Scene(1000, ImageSize(width=640, height=360))
    writer = cv2.VideoWriter(str(place / "street.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 30, (640, 360))
    for index in range(40, 100):
        writer.write(scene.frame(index)[0][..., ::-1])
    writer.release()
    text = (place / "gates.yaml").read_text()
    (place / "clip.yaml").write_text(text.replace("uri: rtsp://east/main", "uri: street.avi"))

    told = json.loads(bundle(place, "-o", tmp_path, "--json", pipeline="clip.yaml").stdout)

    assert told["golden"]["images"] == 2  # every thirtieth of sixty
    assert (Path(told["bundle"]) / "clips" / "street.avi").is_file()


def many(place, *, policy="warn", count=40, max_fps=1000):
    """A pipeline that states more than a small Orin can do with the demo's model in INT8."""
    streams = "".join(f"  - {{id: c{n}, uri: 'rtsp://x/{n}', max_fps: {max_fps}}}\n" for n in range(count))
    (place / "many.yaml").write_text(
        "version: 1\nmodel: {onnx: traffic.onnx, calibration: traffic.calib.json, precision: int8}\n"
        f"streams:\n{streams}publish: {{jsonl: '-'}}\noverload: {{at_start: {policy}}}\n"
    )
    return "many.yaml"


@pytest.mark.slow(reason="builds and proves an engine more than once")
def test_a_device_class_that_cannot_serve_it_is_told_or_refused(place, tmp_path):
    options = ("--no-golden", "-o", tmp_path / "out", "--json")

    def made(*classes, **how):
        named = [word for one in classes for word in ("--compatible", one)]
        done = bundle(place, *options, *named, pipeline=many(place, **how))
        return json.loads(done.stdout)["beyond_bound"], done.stderr

    beyond, told = made("orin-nano-4gb", "agx-orin-64gb")
    assert len(beyond) == 1
    assert beyond[0].startswith("orin-nano-4gb-super: 40000 fps are stated, and no engine infers more than ")
    assert f"warning: the streams ask for more than can be served: {beyond[0]}" in told
    assert made("orin-nano-4gb", policy="ignore")[0] == []
    assert made("jetson-orin")[0] == []
    assert made("orin-nano-4gb", max_fps=30)[0] == []
    told = bundle(
        place, *options, "--compatible", "orin-nano-4gb", pipeline=many(place, policy="refuse"), expected=6
    ).stderr
    assert "orin-nano-4gb-super: 40000 fps are stated" in told
    assert "lower max_fps" in told


@pytest.mark.slow(reason="builds and proves an engine more than once")
def test_a_device_of_such_a_class_is_judged_before_a_push_sends_anything(place, tmp_path):
    def judge(**how):
        done = bundle(place, "--no-golden", "-o", tmp_path / "out", "--json", pipeline=many(place, **how))
        return BoundOfDevices(open_bundle(Path(json.loads(done.stdout)["bundle"])))

    def facts(*classes):
        return SimpleNamespace(compatible=classes)

    warned = judge()
    assert [one.partition(":")[0] for one in warned(facts("any", "orin-nano-4gb"))] == ["orin-nano-4gb-super"]
    assert warned(facts("any")) == ()
    assert warned(facts("agx-orin-64gb")) == ()
    assert judge(policy="ignore")(facts("orin-nano-4gb")) == ()
    refusing = judge(policy="refuse")
    for _ in range(2):
        with pytest.raises(DeployError, match="orin-nano-4gb-super") as raised:
            refusing(facts("orin-nano-4gb"))
        assert raised.value.code == "preflight.capacity"


@pytest.mark.parametrize("verb", ["bundle", "push"])
def test_the_secrets_that_a_device_has_to_have_are_named_and_nothing_of_them(place, tmp_path, verb):
    text = (place / "gates.yaml").read_text().replace("rtsp://east/main}", "rtsp://east/main, credential: yard}")
    text = text.replace("publish:", "mqtt: {host: broker.local, credential: mosquitto}\npublish:")
    (place / "secret.yaml").write_text(text)
    (place / "hosts").write_text("Host nobody\n  HostName 127.0.0.1\n  Port 1\n")
    options = ("-o", tmp_path) if verb == "bundle" else ("nobody", "--plan")

    told = command(
        "edge-deploy", verb, place / "secret.yaml", *options, "--key", place / "key", "--golden", place / "golden",
        expected=0 if verb == "bundle" else 3,
    )  # fmt: skip

    assert "each device needs these secrets of its own (docs/first-device.md): mosquitto, yard" in told.stderr


@pytest.mark.slow(reason="builds and proves an engine more than once")
def test_what_was_bundled_is_signed_again_for_a_new_sequence(place, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", AT)
    told = json.loads(bundle(place, "--no-golden", "-o", tmp_path, "--json").stdout)
    old, signing = told["bundle"], ("edge-deploy", "bundle", "--again", told["bundle"], "--key", place / "key")

    made = json.loads(command(*signing, "-o", tmp_path / "again", "--json").stdout)
    shown = command(*signing, "-o", tmp_path / "again", "--sequence", str(int(AT) + 5)).stdout

    assert (made["release"], made["sequence"]) == (told["release"], told["sequence"] + 1)
    assert f"sequence {int(AT) + 5} of stable" in shown
    assert made["files"] == told["files"]
    for wrong in (("--golden", place / "golden"), ("--channel", "beta"), (place / "gates.yaml",)):
        assert "again" in command(*signing, *wrong, expected=2).stderr
    assert "--again" in command("edge-deploy", "bundle", expected=2).stderr
    assert "not above" in command(*signing, "--sequence", AT, "-o", tmp_path, expected=2).stderr
    assert open_bundle(Path(old)).manifest.sequence == int(AT)


def test_the_software_that_runs_here_travels_if_it_is_asked_for(place, tmp_path):
    plain = json.loads(bundle(place, "-o", tmp_path / "plain", "--golden", place / "golden", "--json").stdout)

    made = json.loads(
        bundle(place, "-o", tmp_path / "with", "--golden", place / "golden", "--software", "--json").stdout
    )

    brought = open_bundle(Path(made["bundle"]))
    (wheel,) = brought.manifest.files_of(Role.SOFTWARE)
    assert (plain["software"], made["software"]) == (None, __version__)
    assert brought.path_of(wheel).read_bytes() == own_wheel()
    assert wheel.path == f"wheels/edge_deploy-{__version__}-py3-none-any.whl"
    assert made["release"] != plain["release"]
    sbom = json.loads((Path(made["bundle"]) / "sbom.cdx.json").read_text())
    assert wheel.sha256 in json.dumps(sbom)


@pytest.mark.slow(reason="builds and proves an engine more than once")
def test_a_bundle_that_was_made_takes_no_software_on(place, tmp_path):
    made = json.loads(bundle(place, "-o", tmp_path, "--golden", place / "golden", "--json").stdout)

    done = command("edge-deploy", "push", made["bundle"], "gate-01", "--software", expected=2)

    assert "is a bundle already" in " ".join(done.stderr.split())
