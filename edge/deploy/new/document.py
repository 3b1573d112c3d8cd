"""The pipeline file as a person would have written it: what was found out, and what is left to do, beside each key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.config.credentials import own_path
from edge.config.schema import MqttConfig, TlsConfig
from edge.config.yaml_file import scalar_text
from edge.deploy.new.cameras import FoundCamera
from edge.deploy.new.places import path_text
from edge.errors import CertificateError, EdgeError
from edge.media.address import Trust
from edge.media.first_look import FirstLook
from edge.types import ModelSpec
from edge.untrusted import cleaned
from edge.version import __version__

__all__ = ["Broker", "Content", "NewPipeline", "batch_of", "look_text", "model_text", "pipeline_text"]

_LABELS_SHOWN = 4
_MOST_FRAMES = 16
_AS_A_CAMERA = "  # realtime: true and loop: true play it as a camera would, without end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker that was tried; `problem` None: it takes us in."""

    config: MqttConfig
    shown: str
    problem: EdgeError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of a pipeline file; `onnx` is the model's path as the file names it, `folder` the file's.

    At least one of `cameras` has been seen; `snapshots` are names of pictures by the id of their stream.
    """

    spec: ModelSpec
    onnx: str
    folder: Path
    cameras: Sequence[FoundCamera]
    snapshots: dict[str, Path]
    broker: Broker | None

    @property
    def is_on_stdout(self) -> bool:
        """Whether the messages go there, for want of a broker."""
        return self.broker is None or self.broker.problem is not None


def pipeline_text(content: Content) -> str:
    parts = [_head(), _model(content), _batch(content), _streams(content), _mqtt(content.broker), _publish(content)]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def batch_of(spec: ModelSpec, streams: int) -> tuple[int, str]:
    """Return how many frames are inferred at once, and why."""
    most = min(streams, _MOST_FRAMES)
    why = "one frame of each stream at a time"
    if streams > most:
        why = f"{streams} streams take turns; more at once takes memory, edge-runtime bench tells what it gains"
    if spec.batch is not None:
        why += f"; the model's own batch is fixed to {spec.batch}, so that they may run one by one"
    return most, why


def look_text(look: FirstLook) -> str:
    fps = [] if look.fps is None else [f"{look.fps:g} fps"]
    turned = [] if look.turn_deg is None else [f"sideways: players turn it by {look.turn_deg} degrees, this does not"]
    return cleaned(", ".join([look.codec or "unknown codec", str(look.size), *fps, *turned]))


def model_text(spec: ModelSpec) -> str:
    shown = ", ".join(spec.labels[:_LABELS_SHOWN]) + (", ..." if len(spec.labels) > _LABELS_SHOWN else "")
    return cleaned(f"{spec.family.value}, {spec.preprocess.size}, {len(spec.labels)} labels: {shown}")


def _head() -> Iterator[str]:
    yield f"# Written by edge-deploy {__version__} (edge-deploy new); it is yours to change."
    yield "# pipelines/reference.yaml has every key with its default."
    yield ""
    yield "version: 1"


def _model(content: Content) -> Iterator[str]:
    yield "model:"
    yield f"  # {model_text(content.spec)}"
    yield f"  onnx: {scalar_text(content.onnx)}"
    if content.spec.is_quantized:
        yield "  precision: int8  # the model carries Q/DQ pairs, and needs no table"
    else:
        yield "  precision: fp32  # int8 is faster: edge-deploy calibrate makes its table, for the key calibration"
    yield "  score_threshold: 0.25  # detections at or below it are not reported"


def _batch(content: Content) -> Iterator[str]:
    frames, why = batch_of(content.spec, sum(camera.look is not None for camera in content.cameras))
    yield "batch:"
    yield f"  max_frames: {frames}  # {why}"


def _streams(content: Content) -> Iterator[str]:
    yield "streams:"
    for camera in content.cameras:
        if camera.look is not None:
            yield from _seen(content, camera, camera.look)
    for camera in content.cameras:
        if camera.problem is not None:
            yield from _not_seen(content, camera, camera.problem)


def _seen(content: Content, camera: FoundCamera, look: FirstLook) -> Iterator[str]:
    snapshot = content.snapshots[camera.place.id]
    yield f"  - id: {scalar_text(camera.place.id)}  # {look_text(look)}; {cleaned(snapshot.name)}"
    note = _AS_A_CAMERA if camera.place.address.scheme == "file" else ""
    yield f"    uri: {scalar_text(camera.place.uri)}{note}"
    if (trust := camera.place.address.trust) is not None:
        yield f"    tls: {_trust_text(trust, content.folder)}"
    if camera.credential is not None:
        yield f"    credential: {scalar_text(camera.credential)}  # the name of its login, which is kept apart"


def _not_seen(content: Content, camera: FoundCamera, problem: EdgeError) -> Iterator[str]:
    yield f"  # Not seen: {cleaned(str(problem))}"
    yield "  # Once it can be reached, take the signs away, or run edge-deploy new --force again."
    yield f"  # - id: {scalar_text(camera.place.id)}"
    yield f"  #   uri: {scalar_text(camera.place.uri)}"
    trust = camera.place.address.trust
    if isinstance(problem, CertificateError):
        trust = Trust(fingerprint=problem.fingerprint.partition(":")[2])
    if trust is not None:
        yield f"  #   tls: {_trust_text(trust, content.folder)}"
    if camera.credential is not None:
        where = cleaned(str(own_path(camera.credential)))
        yield f"  #   credential: {scalar_text(camera.credential)}  # {where}: one line, user:password; chmod 600"


def _trust_text(trust: Trust, folder: Path) -> str:
    if trust.ca is not None:
        return f"{{ca: {scalar_text(path_text(trust.ca, folder))}}}  # the authorities of its certificate"
    return f'{{fingerprint: "sha256:{trust.fingerprint}"}}  # of its certificate'


def _mqtt(broker: Broker | None) -> Iterator[str]:
    if broker is None:
        yield "# No broker was named (--broker). With one, detections go there:"
        yield "# mqtt:"
        yield "#   host: broker.local"
        return
    if broker.problem is not None:
        yield f"# Not reached: {cleaned(str(broker.problem))}"
        yield "# Once it is there, take the signs away."
    sign = "" if broker.problem is None else "# "
    yield from (f"{sign}{line}" for line in _mqtt_keys(broker))


def _mqtt_keys(broker: Broker) -> Iterator[str]:
    config = broker.config
    yield f"mqtt:  # {cleaned(broker.shown)}"
    yield f"  host: {scalar_text(config.host)}"
    if config.port is not None:
        yield f"  port: {config.port}"
    yield f"  site: {scalar_text(config.site)}"
    if isinstance(config.tls, TlsConfig):
        yield "  tls:"
        yield f"    ca: {scalar_text(config.tls.ca or '')}"
    elif not config.tls:
        yield "  tls: false  # plain text: anyone on the network can read and change it"
    if config.credential is not None:
        yield f"  credential: {scalar_text(config.credential)}  # the name of its login, which is kept apart"


def _publish(content: Content) -> Iterator[str]:
    yield "publish:"
    yield "  mode: change  # a message when something has changed, and one each second: all | nonempty | change"
    if content.is_on_stdout:
        yield '  jsonl: "-"  # one JSON line a message on stdout; take it out once there is a broker'


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPipeline:
    """Result of `new`; `secrets` are the new ones, by name."""

    out: Path
    content: Content
    secrets: Sequence[str]
    passed_over: int

    @property
    def is_complete(self) -> bool:
        """Whether every camera was seen, and the broker takes us in if one was named."""
        broker = self.content.broker
        return all(camera.problem is None for camera in self.content.cameras) and (
            broker is None or broker.problem is None
        )

    def as_json(self) -> dict[str, Any]:
        content = self.content
        seen = sum(camera.look is not None for camera in content.cameras)
        return {
            "pipeline": str(self.out),
            "model": {"onnx": content.onnx, "sha256": content.spec.sha256, "family": content.spec.family.value},
            "batch": batch_of(content.spec, seen)[0],
            "streams": [self._camera_json(camera) for camera in content.cameras],
            "broker": None if content.broker is None else _broker_json(content.broker),
            "secrets": list(self.secrets),
            "passed_over": self.passed_over,
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield a name and what came of it, for people."""
        content = self.content
        for camera in content.cameras:
            yield (
                camera.place.id,
                cleaned(f"not seen: {camera.problem}") if camera.look is None else look_text(camera.look),
            )
        yield "model", model_text(content.spec)
        frames, why = batch_of(content.spec, sum(camera.look is not None for camera in content.cameras))
        yield "batch", f"{frames}: {why}"
        if content.broker is not None:
            broker = content.broker
            yield (
                "broker",
                cleaned(f"not reached: {broker.problem}") if broker.problem else f"{broker.shown} takes us in",
            )
        if self.passed_over:
            yield "passed over", f"{self.passed_over} other {'file' if self.passed_over == 1 else 'files'}"
        for name in self.secrets:
            yield "secret", f"{name}, kept in {own_path(name).parent}"

    def _camera_json(self, camera: FoundCamera) -> dict[str, Any]:
        look, snapshot = camera.look, self.content.snapshots.get(camera.place.id)
        return {
            "id": camera.place.id,
            "uri": camera.place.uri,
            "credential": camera.credential,
            "codec": None if look is None else look.codec,
            "size": None if look is None else [look.size.width, look.size.height],
            "fps": None if look is None else look.fps,
            "turn_deg": None if look is None else look.turn_deg,
            "snapshot": None if snapshot is None else str(snapshot),
            "problem": None if camera.problem is None else str(camera.problem),
            "wants_login": camera.wants_login,
            "fingerprint": camera.problem.fingerprint if isinstance(camera.problem, CertificateError) else None,
        }


def _broker_json(broker: Broker) -> dict[str, Any]:
    return {
        "host": broker.config.host,
        "credential": broker.config.credential,
        "problem": None if broker.problem is None else str(broker.problem),
    }
