"""Files of a proof: the demo's model, its table, a clip and labelled pictures, and clips of colour bars."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.config.load import load_pipeline
from edge.config.pipeline import Pipeline
from edge.media.stills import StillSource
from edge.model.inspect import inspect_model
from edge.quantize.feed import canvases_of
from edge.quantize.forms import Forms
from edge.quantize.precision import computed_precision
from edge.types import ModelSpec, Precision, StreamId

__all__ = [
    "BARS",
    "CLIP",
    "CLIP_FPS",
    "MODEL",
    "TABLE",
    "UNIT",
    "forms_of",
    "golden_canvases",
    "model_spec",
    "pictures",
    "pipeline",
]

# Paths within the package: what they name travels to a device (`edge.deploy.provision.own_wheel`).
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


def model_spec() -> ModelSpec:
    return inspect_model(MODEL)


def forms_of(spec: ModelSpec) -> Forms:
    computed = computed_precision(spec, precision=Precision.INT8, table=TABLE)
    return Forms(spec, computed.table)


def pictures() -> Sequence[Path]:
    """Return pictures of the clip's street."""
    return sorted(_IMAGES.parent.glob(f"{_IMAGES.name}-*.jpg"))


def golden_canvases(spec: ModelSpec) -> Sequence[NDArray[np.uint8]]:
    """Return pictures of the clip's street, uint8 (H, W, 3) RGB each, as the model takes them."""
    with closing(StillSource(StreamId("prove"), pictures()[:_GOLDEN], preprocess=spec.preprocess)) as source:
        source.open()
        return list(canvases_of(source, spec.preprocess))
