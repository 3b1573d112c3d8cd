"""The pipeline file as a person would have written it: what was found out, and what is left to do, beside each key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.config.credentials import own_path
from edge.config.schema import MqttConfig, TlsConfig
from edge.config.yaml_file import scalar_text
from edge.deploy.new.places import Place, path_text
from edge.errors import CertificateError, EdgeError, SourceError
from edge.media.address import Trust
from edge.media.select import FirstLook
from edge.types import ModelSpec
from edge.untrusted import cleaned
from edge.version import __version__

__all__ = ["Broker", "FoundCamera", "NewPipeline", "look_text", "needs_login", "pipeline_text"]

_LABELS_SHOWN = 4
_MOST_FRAMES = 16
_AS_A_CAMERA = "  # realtime: true and loop: true play it as a camera would, without end"


def needs_login(found: object) -> bool:
    """Return whether a camera was not seen because of user and password."""
    return isinstance(found, SourceError) and found.wants_login


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCamera:
    """A look at a place, or why there is none; `credential` is the name of its secret, None where it wants none."""

    place: Place
    look: FirstLook | None
    problem: EdgeError | None
    credential: str | None

    @property
    def wants_login(self) -> bool:
        """Whether it was not seen because of user and password."""
        return needs_login(self.problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker that was tried; `problem` None: it takes us in."""

    config: MqttConfig
    shown: str
    problem: EdgeError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPipeline:
    """A pipeline file `out` and what is in it; `onnx` is the model's path as the file names it.

    At least one of `cameras` has been seen; `snapshots` are pictures by the id of their stream. `secrets`: the names of
    new ones. `passed_over`: how many files beside clips are none.
    """

    out: Path
    spec: ModelSpec
    onnx: str
    cameras: Sequence[FoundCamera]
    snapshots: dict[str, Path]
    broker: Broker | None
    secrets: Sequence[str]
    passed_over: int

    @property
    def is_on_stdout(self) -> bool:
        return self.broker is None or self.broker.problem is not None

    @property
    def is_complete(self) -> bool:
        """Whether every camera was seen, and the broker takes us in if one was named."""
        is_reached = self.broker is None or self.broker.problem is None
        return is_reached and all(camera.problem is None for camera in self.cameras)

    @property
    def batch(self) -> tuple[int, str]:
        """How many frames are inferred at once, and why."""
        streams = sum(camera.look is not None for camera in self.cameras)
        most = min(streams, _MOST_FRAMES)
        why = "one frame of each stream at a time"
        if streams > most:
            why = f"{streams} streams take turns; more at once takes memory, edge-runtime bench tells what it gains"
        if self.spec.batch is not None:
            why += f"; the model's own batch is fixed to {self.spec.batch}, so that they may run one by one"
        return most, why

    def as_json(self) -> dict[str, Any]:
        return {
            "pipeline": str(self.out),
            "model": {"onnx": self.onnx, "sha256": self.spec.sha256, "family": self.spec.family.value},
            "batch": self.batch[0],
            "streams": [self._camera_json(camera) for camera in self.cameras],
            "broker": None if self.broker is None else _broker_json(self.broker),
            "secrets": list(self.secrets),
            "passed_over": self.passed_over,
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        for camera in self.cameras:
            yield (
                camera.place.id,
                cleaned(f"not seen: {camera.problem}") if camera.look is None else look_text(camera.look),
            )
        yield "model", model_text(self.spec)
        frames, why = self.batch
        yield "batch", f"{frames}: {why}"
        if (broker := self.broker) is not None:
            yield (
                "broker",
                cleaned(f"not reached: {broker.problem}") if broker.problem else f"{broker.shown} takes us in",
            )
        if self.passed_over:
            yield "passed over", f"{self.passed_over} other {'file' if self.passed_over == 1 else 'files'}"
        for name in self.secrets:
            yield "secret", f"{name}, kept in {own_path(name).parent}"

    def _camera_json(self, camera: FoundCamera) -> dict[str, Any]:
        look, snapshot = camera.look, self.snapshots.get(camera.place.id)
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


def pipeline_text(new: NewPipeline) -> str:
    parts = [_head(), _model(new), _batch(new), _streams(new), _mqtt(new.broker), _publish(new)]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


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


def _model(new: NewPipeline) -> Iterator[str]:
    yield "model:"
    yield f"  # {model_text(new.spec)}"
    yield f"  onnx: {scalar_text(new.onnx)}"
    if new.spec.is_quantized:
        yield "  precision: int8  # the model carries Q/DQ pairs, and needs no table"
    else:
        yield "  precision: fp32  # int8 is faster: edge-deploy calibrate makes its table, for the key calibration"
    yield "  score_threshold: 0.25  # detections at or below it are not reported"


def _batch(new: NewPipeline) -> Iterator[str]:
    frames, why = new.batch
    yield "batch:"
    yield f"  max_frames: {frames}  # {why}"


def _streams(new: NewPipeline) -> Iterator[str]:
    yield "streams:"
    for camera in new.cameras:
        if camera.look is not None:
            yield from _seen(new, camera, camera.look)
    for camera in new.cameras:
        if camera.problem is not None:
            yield from _not_seen(new, camera, camera.problem)


def _seen(new: NewPipeline, camera: FoundCamera, look: FirstLook) -> Iterator[str]:
    snapshot = new.snapshots[camera.place.id]
    yield f"  - id: {scalar_text(camera.place.id)}  # {look_text(look)}; {cleaned(snapshot.name)}"
    note = _AS_A_CAMERA if camera.place.address.scheme == "file" else ""
    yield f"    uri: {scalar_text(camera.place.uri)}{note}"
    if look.is_slow:
        yield "    stall_s: 30  # its frames are far apart: it is connected to anew after so long without one"
    if (trust := camera.place.address.trust) is not None:
        yield f"    tls: {_trust_text(trust, new.out.parent)}"
    if camera.credential is not None:
        yield f"    credential: {scalar_text(camera.credential)}  # the name of its login, which is kept apart"


def _not_seen(new: NewPipeline, camera: FoundCamera, problem: EdgeError) -> Iterator[str]:
    yield f"  # Not seen: {cleaned(str(problem))}"
    yield "  # Once it can be reached, take the signs away, or run edge-deploy new --force again."
    yield f"  # - id: {scalar_text(camera.place.id)}"
    yield f"  #   uri: {scalar_text(camera.place.uri)}"
    trust = camera.place.address.trust
    if isinstance(problem, CertificateError):
        trust = Trust(fingerprint=problem.fingerprint.partition(":")[2])
    if trust is not None:
        yield f"  #   tls: {_trust_text(trust, new.out.parent)}"
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


def _publish(new: NewPipeline) -> Iterator[str]:
    yield "publish:"
    yield "  mode: change  # a message when something has changed, and one each second: all | nonempty | change"
    if new.is_on_stdout:
        yield '  jsonl: "-"  # one JSON line a message on stdout; take it out once there is a broker'
