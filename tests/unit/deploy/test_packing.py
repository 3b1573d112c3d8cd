"""What goes into a bundle and what does not, and which images prove it."""

import hashlib

import cv2
import msgspec
import numpy as np
import pytest
import yaml

from edge.bundle.manifest import GoldenFrames, Role
from edge.calibrate.table import DatasetId
from edge.config.pipeline import load_pipeline
from edge.deploy.packing.contents import collect_contents
from edge.deploy.packing.golden import find_golden_candidates
from edge.deploy.provision.keys import find_key
from edge.errors import DeployError
from edge.media.images import write_image
from edge.model.inspect import inspect_model
from edge.quantize.subject import find_images, split_images
from edge.types import ImageSize
from tests.support import models
from tests.support.values import calibration_table
from tools.street.scene import Scene

HEAD = "version: 1\nmodel: {onnx: models/net.onnx, calibration: t.json, precision: int8}\n"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "models").mkdir()
    models.yolov8(tmp_path / "models" / "net.onnx")
    (tmp_path / "t.json").write_text("{}")
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "clips").mkdir()
    for name in ("a.mp4", "Straße 1.mp4"):
        (tmp_path / "clips" / name).write_bytes(name.encode())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.mp4").write_bytes(b"another a")
    return tmp_path


def pipeline_of(place, text):
    (place / "gates.yaml").write_text(HEAD + text, encoding="utf-8")
    return load_pipeline(place / "gates.yaml", is_for_here=False)


def collect(place, text, *, needs_table=True):
    contents = collect_contents(pipeline_of(place, text), needs_table=needs_table)
    return contents.entries, yaml.safe_load(contents.entries["pipeline.yaml"].content)


def test_the_pipeline_names_what_lies_beside_it_and_keeps_the_rest(place):
    entries, written = collect(
        place,
        """streams:
  - {id: a, uri: clips/a.mp4, loop: true}
  - {id: b, uri: ./other/a.mp4}
  - {id: c, uri: file://clips/a.mp4}
  - {id: d, uri: 'clips/Straße 1.mp4'}
  - {id: e, uri: /var/clips/x.mp4}
  - {id: f, uri: file:///var/clips/x.mp4}
  - {id: g, uri: rtsp://camera/main, credential: gate}
publish: {jsonl: "-"}
""",
    )

    assert written["model"] == {"onnx": "model.onnx", "calibration": "model.calib.json", "precision": "int8"}
    uris = [stream["uri"] for stream in written["streams"]]
    assert uris == [
        "clips/a.mp4",
        "clips/a-2.mp4",
        "clips/a.mp4",
        "clips/Stra-e-1.mp4",
        "/var/clips/x.mp4",
        "file:///var/clips/x.mp4",
        "rtsp://camera/main",
    ]
    assert written["streams"][0]["loop"] is True
    assert written["streams"][6]["credential"] == "gate"
    assert [path for path, entry in entries.items() if entry.role is Role.CLIP] == [
        "clips/a.mp4",
        "clips/a-2.mp4",
        "clips/Stra-e-1.mp4",
    ]
    assert entries["clips/a-2.mp4"].content.read_bytes() == b"another a"


def test_a_table_that_is_not_used_stays_here(place):
    entries, written = collect(place, "streams: [{id: a, uri: rtsp://x/y}]\npublish: {jsonl: '-'}\n", needs_table=False)

    assert "calibration" not in written["model"]
    assert "model.calib.json" not in entries


def test_the_pipeline_in_the_bundle_loads_where_its_files_lie(place, tmp_path):
    entries, _ = collect(place, "streams: [{id: a, uri: clips/a.mp4}]\npublish: {jsonl: '-'}\n")
    for path, entry in entries.items():
        target = tmp_path / "release" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(entry.content if isinstance(entry.content, bytes) else entry.content.read_bytes())

    loaded = load_pipeline(tmp_path / "release" / "pipeline.yaml")

    assert loaded.config.streams[0].uri == "clips/a.mp4"


STREAMS = "streams: [{id: a, uri: rtsp://x/y}]\n"


def test_certificates_travel_and_keys_do_not(place):
    tls = "{ca: ca.pem, certificate: /etc/ssl/me.pem, key: /etc/ssl/me.key}"
    entries, written = collect(place, f"{STREAMS}mqtt: {{host: broker, tls: {tls}}}\n")

    assert written["mqtt"]["tls"] == {
        "ca": "certificates/ca.pem",
        "certificate": "/etc/ssl/me.pem",
        "key": "/etc/ssl/me.key",
    }
    assert entries["certificates/ca.pem"].role is Role.CERTIFICATE


def test_the_authority_of_cameras_travels_once_and_a_device_may_have_its_own(place):
    streams = [
        "{id: a, uri: rtsps://x/y, tls: {ca: ca.pem}}",
        "{id: b, uri: https://x/y, tls: {ca: ./ca.pem}}",
        "{id: c, uri: rtsps://x/z, tls: {ca: /etc/ssl/cameras.pem}}",
        f'{{id: d, uri: rtsps://x/w, tls: {{fingerprint: "sha256:{"0a" * 32}"}}}}',
    ]
    entries, written = collect(place, f"streams: [{', '.join(streams)}]\npublish: {{jsonl: '-'}}\n")

    assert [stream["tls"] for stream in written["streams"]] == [
        {"ca": "certificates/ca.pem"},
        {"ca": "certificates/ca.pem"},
        {"ca": "/etc/ssl/cameras.pem"},
        {"fingerprint": f"sha256:{'0a' * 32}"},
    ]
    assert [path for path in entries if path.startswith("certificates/")] == ["certificates/ca.pem"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("streams: [{id: a, uri: rtsps://x/y, tls: {ca: both.pem}}]\npublish: {jsonl: '-'}\n", "bundle.secret"),
        ("mqtt: {host: b, tls: {certificate: me.pem, key: me.key}}\n", "bundle.secret"),
        ("mqtt: {host: b, tls: {ca: both.pem}}\n", "bundle.secret"),
        ("mqtt: {host: b, tls: {ca: none.pem}}\n", "bundle.path"),
        ("publish: {jsonl: out/messages.jsonl}\n", "bundle.path"),
    ],
)
def test_what_must_not_travel_or_means_nothing_there_is_refused(place, text, code):
    (place / "me.key").write_text("-----BEGIN PRIVATE KEY-----\n")
    (place / "both.pem").write_text("-----BEGIN CERTIFICATE-----\n-----BEGIN RSA PRIVATE KEY-----\n")
    (place / "me.pem").write_text("-----BEGIN CERTIFICATE-----\n")

    with pytest.raises(DeployError, match=r"gates.yaml:\d+: ") as refusal:
        collect(place, text if text.startswith("streams") else STREAMS + text)
    assert refusal.value.code == code


@pytest.fixture
def images(tmp_path):
    """Write `count` different images into a folder, and return it."""

    def write(name, count, seed):
        random = np.random.default_rng(seed)
        (tmp_path / name).mkdir()
        for index in range(count):
            write_image(tmp_path / name / f"{index}.png", random.integers(0, 256, (8, 8, 3), np.uint8))
        return tmp_path / name

    return write


def table_from(images):
    digests = sorted(image.sha256 for image in images)
    whole = hashlib.sha256(b"".join(bytes.fromhex(digest) for digest in digests)).hexdigest()
    return calibration_table(dataset=DatasetId(images=len(digests), sha256=whole))


@pytest.fixture
def ask(place):
    pipeline = pipeline_of(place, STREAMS + "publish: {jsonl: '-'}\n")
    spec = inspect_model(place / "models" / "net.onnx")

    def asked(table, folder, calibration_images=None):
        found = find_golden_candidates(pipeline, spec, table, folder=folder, calibration_images=calibration_images)
        return found.proof, len(list(found.canvases))

    return asked


def test_images_that_made_the_table_are_left_out_where_that_can_be_told(ask, images):
    mine, others = images("mine", 12, 1), images("others", 5, 2)
    table = table_from(find_images(mine)[0])

    assert ask(table, others) == (GoldenFrames.UNKNOWN, 5)
    assert ask(table, others, mine) == (GoldenFrames.OUTSIDE, 5)
    (others / "again.png").write_bytes((mine / "3.png").read_bytes())
    assert ask(table, others, mine) == (GoldenFrames.OUTSIDE, 5)


@pytest.mark.parametrize("name", ["again.png", "again.jpg", "again.webp", "half.bmp"])
def test_a_picture_that_made_the_table_is_left_out_in_whatever_file(ask, tmp_path, name):
    for number, folder in enumerate(("mine", "others")):
        (tmp_path / folder).mkdir()
        for index in range(4):
            write_image(
                tmp_path / folder / f"{index}.jpg",
                Scene(10 * number + index, ImageSize(width=320, height=180)).frame(0)[0],
            )
    known = cv2.imread(str(tmp_path / "mine" / "2.jpg"))
    known = cv2.resize(known, (160, 90), interpolation=cv2.INTER_AREA) if name.startswith("half") else known
    cv2.imwrite(str(tmp_path / "others" / name), known, [cv2.IMWRITE_JPEG_QUALITY, 60, cv2.IMWRITE_WEBP_QUALITY, 80])
    table = table_from(find_images(tmp_path / "mine")[0])

    assert ask(table, tmp_path / "others", tmp_path / "mine") == (GoldenFrames.OUTSIDE, 4)


def test_the_next_frame_of_a_camera_is_another_picture(ask, tmp_path):
    scene = Scene(3, ImageSize(width=640, height=360))
    for folder, index in (("mine", 0), ("others", 1)):
        (tmp_path / folder).mkdir()
        write_image(tmp_path / folder / "frame.jpg", scene.frame(index)[0])

    asked = ask(table_from(find_images(tmp_path / "mine")[0]), tmp_path / "others", tmp_path / "mine")

    assert asked == (GoldenFrames.OUTSIDE, 1)


def test_the_images_that_calibrate_held_out_prove_the_table(ask, images):
    mine = images("mine", 12, 1)
    split = split_images(find_images(mine)[0], held_out=4)

    assert ask(table_from(split.observed), mine) == (GoldenFrames.OUTSIDE, 4)


def test_the_calibration_images_themselves_prove_nothing(ask, images):
    mine = images("mine", 12, 1)

    with pytest.raises(DeployError, match="prove nothing") as refusal:
        ask(table_from(find_images(mine)[0]), mine)
    assert refusal.value.code == "bundle.golden.images"


def test_a_folder_that_did_not_make_the_table_is_not_believed(ask, images):
    mine, others = images("mine", 12, 1), images("others", 20, 2)

    with pytest.raises(DeployError, match="other images"):
        ask(table_from(find_images(mine)[0]), others, others)


def test_a_table_that_does_not_know_its_images_leaves_it_open_and_without_one_every_image_is_outside(ask, images):
    table, mine = msgspec.structs.replace(table_from([]), dataset=None), images("mine", 3, 1)

    assert ask(table, mine) == (GoldenFrames.UNKNOWN, 3)
    assert ask(None, mine) == (GoldenFrames.OUTSIDE, 3)


def test_without_any_images_the_way_out_is_named(ask):
    with pytest.raises(DeployError, match=r"--golden DIR.*edge-deploy bundle --no-golden") as refusal:
        ask(None, None)
    assert refusal.value.code == "bundle.golden.images"


def test_the_key_is_the_one_that_ssh_would_use(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DeployError, match="ssh-keygen -t ed25519"):
        find_key(None)

    (tmp_path / ".ssh").mkdir()
    for name in ("id_rsa", "id_ed25519.pub"):
        (tmp_path / ".ssh" / name).write_text("")
        assert find_key(None).name == name
    assert find_key(tmp_path / ".ssh" / "id_rsa").name == "id_rsa"
    with pytest.raises(DeployError, match="no such file"):
        find_key(tmp_path / "none")
