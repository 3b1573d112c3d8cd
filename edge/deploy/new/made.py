"""What `edge-deploy new` has made, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.config.credentials import own_path
from edge.deploy.new.cameras import FoundCamera
from edge.deploy.new.document import Broker, Content, batch_of, look_text, model_text
from edge.untrusted import cleaned

__all__ = ["NewPipeline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPipeline:
    """What was found and written; `secrets` are the new ones, by name."""

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
        """Return plain JSON values; the keys are stable."""
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
        }


def _broker_json(broker: Broker) -> dict[str, Any]:
    return {
        "host": broker.config.host,
        "credential": broker.config.credential,
        "problem": None if broker.problem is None else str(broker.problem),
    }
