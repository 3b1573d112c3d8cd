"""The pipeline file as a person would have written it: what was found out, and what is left to do, beside each key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.config.credentials import own_path
from edge.config.schema import MqttConfig, TlsConfig
from edge.config.yaml_file import scalar_text
from edge.deploy.new.cameras import FoundCamera
from edge.errors import EdgeError
from edge.media.first_look import FirstLook
from edge.types import ModelSpec
from edge.untrusted import cleaned
from edge.version import __version__

__all__ = ["Broker", "Content", "batch_of", "look_text", "model_text", "pipeline_text"]

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
    """What the file says.

    Attributes:
        spec: of the model.
        onnx: the model file, as the pipeline file names it.
        cameras: one at least has been seen.
        snapshots: the name of a picture of each camera that was seen, by the id of its stream.
        broker: None: none was named.
    """

    spec: ModelSpec
    onnx: str
    cameras: Sequence[FoundCamera]
    snapshots: dict[str, Path]
    broker: Broker | None

    @property
    def is_on_stdout(self) -> bool:
        """Whether the messages go there, for want of a broker."""
        return self.broker is None or self.broker.problem is not None


def pipeline_text(content: Content) -> str:
    """Return the file."""
    parts = [
        _head(),
        _model(content),
        _batch(content),
        _streams(content),
        _mqtt(content.broker),
        _publish(content),
    ]
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
    """Return what was seen of a stream, in a line."""
    fps = [] if look.fps is None else [f"{look.fps:g} fps"]
    turned = [] if look.turn_deg is None else [f"sideways: players turn it by {look.turn_deg} degrees, this does not"]
    return cleaned(", ".join([look.codec or "unknown codec", str(look.size), *fps, *turned]))


def model_text(spec: ModelSpec) -> str:
    """Return what a model is, in a line."""
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
            yield from _seen(camera, camera.look, content.snapshots[camera.place.id])
    for camera in content.cameras:
        if camera.problem is not None:
            yield from _not_seen(camera, camera.problem)


def _seen(camera: FoundCamera, look: FirstLook, snapshot: Path) -> Iterator[str]:
    yield f"  - id: {scalar_text(camera.place.id)}  # {look_text(look)}; {cleaned(snapshot.name)}"
    note = _AS_A_CAMERA if camera.place.address.scheme == "file" else ""
    yield f"    uri: {scalar_text(camera.place.uri)}{note}"
    if camera.credential is not None:
        yield f"    credential: {scalar_text(camera.credential)}  # the name of its login, which is kept apart"


def _not_seen(camera: FoundCamera, problem: EdgeError) -> Iterator[str]:
    yield f"  # Not seen: {cleaned(str(problem))}"
    yield "  # Once it can be reached, take the signs away, or run edge-deploy new --force again."
    yield f"  # - id: {scalar_text(camera.place.id)}"
    yield f"  #   uri: {scalar_text(camera.place.uri)}"
    if camera.credential is not None:
        where = cleaned(str(own_path(camera.credential)))
        yield f"  #   credential: {scalar_text(camera.credential)}  # {where}: one line, user:password; chmod 600"


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
        yield "  tls: false  # plain text: whoever is on the network can read and change it"
    if config.credential is not None:
        yield f"  credential: {scalar_text(config.credential)}  # the name of its login, which is kept apart"


def _publish(content: Content) -> Iterator[str]:
    yield "publish:"
    yield "  mode: change  # a message when something has changed, and one each second: all | nonempty | change"
    if content.is_on_stdout:
        yield '  jsonl: "-"  # one JSON line a message on stdout; take it out once there is a broker'
