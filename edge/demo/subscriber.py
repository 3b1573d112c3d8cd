"""The independent subscriber of the demo: `edge-deploy listen` in a process of its own, and what it has seen."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.config.schema import MqttConfig
from edge.deadline import Deadline
from edge.demo.cameras import SyntheticCamera, Truth
from edge.errors import PublishError
from edge.vision.boxes import iou_matrix

__all__ = ["DemoSubscriber", "Score"]

_STOP_TIMEOUT_S = 5.0
_SAME_OBJECT_IOU = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How many objects were found; scores of frames add up."""

    hits: int = 0
    detected: int = 0
    labelled: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(
            hits=self.hits + other.hits,
            detected=self.detected + other.detected,
            labelled=self.labelled + other.labelled,
        )

    @property
    def precision(self) -> float:
        """0 when nothing was detected."""
        return self.hits / self.detected if self.detected else 0.0

    @property
    def recall(self) -> float:
        """0 when there was no object."""
        return self.hits / self.labelled if self.labelled else 0.0


def _count_hits(xyxy: NDArray[np.float32], class_id: NDArray[np.int32], truth: Truth) -> Score:
    """Return the score of one frame: a detection hits the object of its class that it overlaps most, each only once.

    `xyxy`: float32 (N, 4), highest score first. `class_id`: int32 (N,).
    """
    iou = iou_matrix(xyxy, truth.xyxy)
    iou[class_id[:, None] != truth.class_id[None, :]] = 0
    hits = 0
    for row in range(len(iou)):
        best = int(iou[row].argmax()) if iou.shape[1] else -1
        if best >= 0 and iou[row, best] >= _SAME_OBJECT_IOU:
            hits += 1
            iou[:, best] = 0
    return Score(hits=hits, detected=len(xyxy), labelled=len(truth.xyxy))


class DemoSubscriber:
    """Counts what arrives (`duplicates`: again) and compares it with the truth; ends its process as a context manager.
    Raises `PublishError` if the subscriber cannot be started or does not reach the broker.
    """

    def __init__(self, mqtt: MqttConfig, cameras: Mapping[str, SyntheticCamera]) -> None:
        self._cameras = cameras
        self._lock = threading.Lock()
        self._numbers: dict[str, set[int]] = defaultdict(set)
        self._scores: dict[str, Score] = defaultdict(Score)
        self.duplicates = 0
        # In a session of its own: Ctrl-C is for the demo, whose last messages it has yet to count.
        self._process = subprocess.Popen(
            _command(mqtt), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
            start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, name="subscriber", daemon=True)

    def __enter__(self) -> DemoSubscriber:
        told = self._process.stderr
        line = told.readline() if told is not None else ""
        if not line.startswith("listening"):
            self._process.kill()
            raise PublishError(f"the subscriber did not start: {line.strip() or 'no reason given'}")
        self._reader.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_STOP_TIMEOUT_S)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def wait_for(self, count: int, *, timeout_s: float) -> bool:
        """Wait until `count` different detection messages have arrived; return whether they have."""
        deadline = Deadline.after(timeout_s)
        while self.received < count and not deadline.is_over and self._process.poll() is None:
            self._reader.join(0.05)
        return self.received >= count

    @property
    def received(self) -> int:
        """How many different detection messages have arrived."""
        with self._lock:
            return sum(len(numbers) for numbers in self._numbers.values())

    def score_of(self, camera: str) -> Score:
        with self._lock:
            return self._scores[camera]

    def _read(self) -> None:
        for line in self._process.stdout or ():
            message = json.loads(line)["payload"]
            if message is None:  # takes away what the broker keeps of a camera of an earlier demo
                continue
            if message["schema"] == "edge.detections/1" and message["stream"] in self._cameras:
                self._take(message)

    def _take(self, message: Mapping[str, Any]) -> None:
        found = message["detections"]
        xywh = np.array([one["bbox"] for one in found], np.float32).reshape(-1, 4)
        xyxy = np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1)
        class_id = np.array([one["class_id"] for one in found], np.int32)
        stream = message["stream"]
        score = _count_hits(xyxy, class_id, self._cameras[stream].truth_at(message["pts_us"]))
        with self._lock:
            if message["seq"] in self._numbers[stream]:
                self.duplicates += 1
                return
            self._numbers[stream].add(message["seq"])
            self._scores[stream] += score


def _command(mqtt: MqttConfig) -> list[str]:
    command = [sys.executable, "-m", "edge.cli.edge_deploy", "listen", "--json", "--host", mqtt.host]
    command += ["--site", mqtt.site, "--protocol", mqtt.protocol, "--tls" if mqtt.tls else "--no-tls"]
    return command if mqtt.port is None else [*command, "--port", str(mqtt.port)]
