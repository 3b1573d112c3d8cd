"""The parsers, each as a function of bytes that fails where the product would: anything but an `EdgeError` is a defect.

A target also holds what has to be true of what was read: written again it is the same, nothing of a password is shown.
"""

import json
import socket
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from unittest import mock

from prometheus_client.parser import text_string_to_metric_families

from edge.bundle.manifest import decode_manifest, encode_manifest
from edge.calibrate.cache import cache_text, parse_cache
from edge.calibrate.table import (
    DatasetId,
    Evidence,
    ModelId,
    read_table,
    table_text,
    write_table,
)
from edge.client.order import Resequencer
from edge.config.pipeline import load_pipeline
from edge.config.targets import load_inventory
from edge.errors import DeployError, EdgeError
from edge.http.prometheus import Exposition, metric
from edge.http.server import BadRequestError, read_http_request
from edge.media.address import parse_address, redact
from edge.media.probe import is_there
from edge.publish.messages import DetectionsMessage, EventMessage, GapMessage
from edge.publish.mqtt.subscriber import message_from_payload
from edge.types import ImageSize, Preprocess
from tests.support.manifests import manifest
from tests.support.values import calibration_table
from tests.support.wire_messages import birth, crossing, detections

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`run` reads; `seeds` are what the product itself writes, or documents; `words` help to find the way in."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    words: tuple[bytes, ...] = ()


@cache
def _folder() -> Path:
    """A folder of this process with what a pipeline file names."""
    folder = Path(tempfile.mkdtemp(prefix="edge-fuzz-"))
    for name in ("m.onnx", "clip.mp4"):
        (folder / name).touch()
    return folder


def _written(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(data)
    return path


def _pipeline(data: bytes) -> None:
    path = _written("p.yaml", data)
    try:
        pipeline = load_pipeline(path, is_for_here=False)
    except EdgeError as error:
        if not str(error).startswith(str(path)):
            raise AssertionError(f"it does not say where: {error}") from error
        return
    for stream in pipeline.config.streams:
        with suppress(EdgeError):
            parse_address(stream.uri, base_dir=path.parent)


def _inventory(data: bytes) -> None:
    path = _written("targets.toml", data)
    with suppress(EdgeError):
        load_inventory(path)


def _messages(data: bytes) -> None:
    """Each line is a message; a subscriber's program gets each number once, and in order."""
    order = Resequencer(wait_s=2.0, most_held=50)
    seen: dict[tuple, list[int]] = {}
    for second, line in enumerate(data.split(b"\n")):
        message = message_from_payload(line)
        if message is None:
            continue
        assert message_from_payload(message.encode()) is not None
        assert message.topic
        if isinstance(message, DetectionsMessage | EventMessage | GapMessage):
            for item in order.enter(message, float(second)):
                if isinstance(item, DetectionsMessage | EventMessage):
                    account = (type(item), item.device, item.stream)
                    seen.setdefault(account, []).append((item.epoch, item.seq))
    for numbers in seen.values():
        assert numbers == sorted(set(numbers)), numbers


def _cache(data: bytes) -> None:
    with suppress(EdgeError):
        found = parse_cache(data.decode("utf-8", "surrogateescape"), "cache")
        assert parse_cache(cache_text(found), "again") == found


def _table(data: bytes) -> None:
    path = _written("t.calib.json", data)
    with suppress(EdgeError):
        found = read_table(path)
        write_table(path, found)
        assert read_table(path) == found


def _manifest(data: bytes) -> None:
    try:
        found = decode_manifest(data)
    except DeployError as error:
        if not error.code.startswith("verify.manifest."):
            raise
    else:
        with suppress(EdgeError):
            assert decode_manifest(encode_manifest(found)).files == found.files


def _metrics(data: bytes) -> None:
    """What a device or a file calls itself stands in labels: Prometheus reads the same names and numbers back."""
    texts = data.decode("utf-8", "replace").split("\n")
    samples = {(text, "x"): float(number) for number, text in enumerate(texts)}
    found = metric("gauge", "edge_fuzz", texts[0], ("stream", "reason"), MappingProxyType(samples))
    text = Exposition(lambda: [found]).text().decode()
    families = [one for one in text_string_to_metric_families(text) if one.name == "edge_fuzz"]
    read = {(sample.labels["stream"], sample.labels["reason"]): sample.value for sample in families[0].samples}
    assert read == samples, (read, samples)


def _http(data: bytes) -> None:
    with suppress(BadRequestError):
        request = read_http_request(data)
        assert request.path.startswith("/")


def _address(data: bytes) -> None:
    """The password of an address is nowhere in what is shown of it, and a probe of it answers."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        address = parse_address(text, base_dir=_folder())
    except EdgeError as error:
        shown = str(error)
    else:
        with mock.patch.object(socket, "create_connection", side_effect=OSError):
            assert is_there(address) in (None, False, True)
        shown = f"{address.shown} {address!r} {address.location}"
    password = _password_of(text)
    assert not password or password not in f"{shown} {redact(text)}", shown


def _password_of(text: str) -> str | None:
    """Return the canary where it stands as the password of a network address, and nowhere else."""
    scheme, separator, rest = text.partition("://")
    before, at, after = rest.partition("@")
    is_password = separator and at and before.endswith(f":{_CANARY}") and scheme.lower() in ("rtsp", "rtsps", "http")
    is_alone = (
        not set("/?#") & set(before) and text.count(_CANARY) == 1 and after.isprintable() and before.isprintable()
    )
    return _CANARY if is_password and is_alone and " " not in before else None


_CANARY = "canary-4711"


def _pipeline_seeds() -> list[bytes]:
    rich = {
        "version": 1,
        "device": "gate-01",
        "model": {"onnx": "m.onnx", "precision": "int8", "labels": ["a", "b"], "input_size": [640, 384]},
        "engine": {"kind": "auto"},
        "streams": [
            {
                "id": "a",
                "uri": "rtsp://camera/main",
                "tracking": {
                    "zones": [{"id": "z", "polygon": [[0, 0], [1, 0], [1, 1]], "dwell_s": 3}],
                    "lines": [{"id": "l", "start": [0, 0.5], "end": [1, 0.5]}],
                },
            },
            {"id": "b", "uri": "clip.mp4", "loop": True, "realtime": True, "max_age_ms": 50},
        ],
        "mqtt": {"host": "broker", "tls": {"ca": "ca.crt"}, "home_assistant": "ha"},
        "publish": {"mode": "change", "heartbeat_s": 0.5},
        "http": {"port": 9100, "page": True},
    }
    reference = (ROOT / "pipelines/reference.yaml").read_bytes()
    return [
        reference,
        json.dumps(rich).encode(),
        b"version: 1\nmodel: {onnx: ~no-such-user/m.onnx}\nstreams: [{id: a, uri: test://}]\npublish: {jsonl: '-'}\n",
    ]


def _inventory_seeds() -> list[bytes]:
    return [
        b'[defaults]\nuser = "edge"\nmax_parallel = 4\n[wave]\ncanary = ["a"]\nsteps = ["10%", "100%"]\n'
        b'max_failed = "5%"\nsoak_s = 1\n[[target]]\nname = "a"\nhost = "a.example"\nidentity = "~/key"\n'
        b'labels = { site = "north" }\n'
    ]


def _message_seeds() -> list[bytes]:
    gap = GapMessage(
        device="gate-01", stream="east", epoch=41, from_=2, to=3, count=2, reason="oversize",
        first_at="2026-11-20T10:15:02.113402Z", last_at="2026-11-20T10:15:02.113402Z",
    )  # fmt: skip
    single = [detections(1), detections(4, count=3), birth(), crossing(1), gap]
    stream = [detections(1), detections(4), detections(2), gap, detections(5), detections(1, epoch=42)]
    return [*(one.encode() for one in single), b"\n".join(one.encode() for one in stream)]


def _table_seeds() -> list[bytes]:
    table = calibration_table(
        {"images": 1.0, "/a: b [é]": 2.5},
        preprocess=Preprocess(size=ImageSize(width=64, height=32)),
        model=ModelId(name="m", sha256="ab" * 32),
        dataset=DatasetId(images=128, sha256="cd" * 32),
        keep_float=("/z",),
        evidence=Evidence(metric="mAP50-95", images=64, float_=0.335, int8=0.333, int8_mac_share=0.97),
    )
    return [table_text(table).encode()]


TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "pipeline": Target(
            run=_pipeline,
            seeds=_pipeline_seeds,
            words=(b"&a", b"*a", b"<<:", b"~no-such-user/", b"!!int", b"!!bool ", b"!!timestamp x"),
        ),
        "inventory": Target(
            run=_inventory, seeds=_inventory_seeds, words=(b"[[target]]", b"~no-such-user/", b"\\u0000")
        ),
        "messages": Target(
            run=_messages,
            seeds=_message_seeds,
            words=(b'"seq":', b'"epoch":', b'"to":null', b"9007199254740993", b"1e400", b"\n"),
        ),
        "cache": Target(
            run=_cache,
            seeds=lambda: [b"TRT-100300-EntropyCalibration2\nimages: 3c010204\na: b: 3f800000\n", b"TRT-8601-X\r\n"],
        ),
        "table": Target(run=_table, seeds=_table_seeds, words=(b"NaN", b"1e999", b'"amax":', b"-0.0")),
        "manifest": Target(
            run=_manifest,
            seeds=lambda: [
                encode_manifest(manifest()),
                encode_manifest(manifest(tensorrt=("10.3", "11"), l4t=(None, "37"), targets=("gate-01",))),
            ],
            words=(b"..", b'"files":', b"1e999", b"null"),
        ),
        "metrics": Target(run=_metrics, seeds=lambda: [b"gate-east", b'a"b\\n\\\\n{c="d"}\ne', "Ä\u2028ü".encode()]),
        "http": Target(
            run=_http,
            seeds=lambda: [b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n", b"HEAD /?a=b HTTP/1.0"],
            words=(b"Content-Length: 0", b"Transfer-Encoding: chunked", b"\r\n"),
        ),
        "address": Target(
            run=_address,
            seeds=lambda: [
                f"rtsp://bob:{_CANARY}@camera.example:8554/main?profile=1".encode(),
                f"rtsps://bob:{_CANARY}@[fe80::1]:322/a".encode(),
                f"http://bob:{_CANARY}@camera/a.mp4#t".encode(),
                b"file://clips/a%20b.mp4",
                b"v4l2:///dev/video0?width=640&fps=30",
                b"~no-such-user/a.mp4",
            ],
            words=(_CANARY.encode(), b"://", b"@", b"[::", b"%00", b"?"),
        ),
    }
)
"""By name."""
