"""What steps share: rows, and files: the demo's model, its table, a clip, labelled pictures, clips of colour bars."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from edge.config.pipeline import Pipeline, load_pipeline
from edge.errors import EdgeError, MissingDependencyError
from edge.quantize.feed import still_canvases
from edge.quantize.forms import Forms
from edge.quantize.precision import computed_precision
from edge.roofline.proof import Row, Verdict
from edge.types import ModelSpec, Precision

__all__ = [
    "BARS",
    "CLIP",
    "CLIP_FPS",
    "MODEL",
    "UNIT",
    "NotHereError",
    "Rows",
    "forms_of",
    "golden_canvases",
    "held",
    "parts",
    "pipeline",
    "told",
    "watched",
]

T = TypeVar("T")

# Paths within the package: what they name travels to a device (`edge.deploy.provision.wheels`).
_HOME = Path(__file__).parents[3]
MODEL = _HOME / "edge/demo/model/traffic.onnx"
CLIP = _HOME / "edge/demo/clips/camera-1.mp4"
_IMAGES = _HOME / "edge/demo/clips/images/camera-1"
UNIT = _HOME / "edge/systemd/edge-runtime.service"
BARS = Path(__file__).parent / "bars"
TABLE = Path(__file__).with_name("traffic.calib.json")

CLIP_FPS = 15
_GOLDEN = 16


def pipeline(folder: Path, *, streams: int, engine: Mapping[str, Any] = {}, **more: Any) -> Pipeline:
    """Return a pipeline of the clip, that many times, as fast as cameras would send it; its file is in `folder`.

    Messages are made and go nowhere.
    """
    content = {
        "version": 1,
        "device": "prove",
        "model": {"onnx": str(MODEL), "precision": "int8", "calibration": str(TABLE)},
        "engine": dict(engine),
        "batch": {"max_frames": streams},
        "streams": [
            {"id": f"camera-{number + 1}", "uri": str(CLIP), "loop": True, "realtime": True, **more}
            for number in range(streams)
        ],
        "publish": {"mode": "all", "jsonl": "/dev/null"},
    }
    path = folder / f"prove-{streams}.yaml"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")  # JSON is YAML
    return load_pipeline(path)


def forms_of(spec: ModelSpec) -> Forms:
    computed = computed_precision(spec, precision=Precision.INT8, table=TABLE)
    return Forms(spec, computed.table)


def golden_canvases(spec: ModelSpec) -> Sequence[NDArray[np.uint8]]:
    """Return pictures of the clip's street, uint8 (H, W, 3) RGB each, as the model takes them."""
    paths = sorted(_IMAGES.parent.glob(f"{_IMAGES.name}-*.jpg"))[:_GOLDEN]
    return list(still_canvases(paths, spec.preprocess))


@contextmanager
def watched(look: Callable[[], T], *, every_s: float) -> Iterator[list[T]]:
    """Look now, and every so often meanwhile; give what was seen so far."""
    seen, stop = [look()], threading.Event()

    def watch() -> None:
        while not stop.wait(every_s):
            seen.append(look())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()


Rows = Iterator[Row]


class NotHereError(Exception):
    """The machine lacks what a step, or a part of it, takes; the text says what."""


def told(name: str, detail: str, /, **values: Any) -> Row:
    """Return a fact, or a figure that nothing is held against."""
    return Row(name=name, verdict=Verdict.TOLD, detail=detail, values=values)


def held(name: str, is_good: bool, detail: str, /, *, else_: Verdict = Verdict.FAILS, **values: Any) -> Row:
    """Return what was held against an expectation."""
    return Row(name=name, verdict=Verdict.PROVEN if is_good else else_, detail=detail, values=values)


def parts(*each: tuple[str, Callable[[], Rows]]) -> Rows:
    """Yield the rows of each part in turn; one that cannot be done is a row of its name, and the next one is begun."""
    for name, make in each:
        try:
            yield from make()
        except (NotHereError, MissingDependencyError) as error:
            yield Row(name=name, verdict=Verdict.ABSENT, detail=str(error))
        except EdgeError as error:
            yield Row(name=name, verdict=Verdict.FAILS, detail=str(error))
        except Exception as error:  # a part of a proof that breaks is what it is to find, and not the end
            yield Row(name=name, verdict=Verdict.FAILS, detail=f"{type(error).__name__}: {error}")
