"""The comparison as a whole: images through both models, errors layer by layer, times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.calibrate.apply import usable_table
from edge.calibrate.histogram import Histogram
from edge.engine.kind import EngineKind, QdqForm
from edge.evaluate.layers import LayerError
from edge.media.stills import StillSource, list_images
from edge.model.cost import resolved_for_one
from edge.model.file import read_model_file
from edge.model.inspect import inspect_file
from edge.model.qdq.float_copies import with_float_copies
from edge.quantize.comparison.layers import compared_layers
from edge.quantize.comparison.noise import Comparing, Noise
from edge.quantize.comparison.times import times_of
from edge.quantize.crew import Crew, Here
from edge.quantize.feed import canvases_of
from edge.quantize.forms import Forms
from edge.quantize.stills import UnreadImage
from edge.types import ModelSpec, StreamId

__all__ = ["Comparison", "ComparisonOptions", "compare_model", "images_to_compare"]

_TIMED_CANVASES = 4  # of the first images, to time both models with


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """What to compare; `limit` is how many images are taken at most, by name."""

    model: Path
    table: Path
    images: Path
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit is a number of images, got {self.limit}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came out of it.

    Attributes:
        layers: the weighted nodes, in the order of the model.
        output_sqnr_db: signal to noise of the model's output tensor.
        inputs: |x| of each activation that a layer reads, in float.
        untimed: why no layer was timed; None: they were, as far as each is known alone.
    """

    spec: ModelSpec
    table: Path
    images: int
    engine: str
    output_sqnr_db: float
    layers: tuple[LayerError, ...]
    inputs: Mapping[str, Histogram]
    untimed: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable, and what is not finite is null."""
        return {
            "model": self.spec.name,
            "table": str(self.table),
            "images": self.images,
            "engine": self.engine,
            "output_sqnr_db": round(self.output_sqnr_db, 3) if np.isfinite(self.output_sqnr_db) else None,
            "layers": [layer.as_json() for layer in self.layers],
        }


def images_to_compare(options: ComparisonOptions) -> list[Path]:
    """Return the images that `options` choose.

    Raises:
        DatasetError: if there is none.
    """
    return list_images(options.images)[: options.limit]


def compare_model(
    options: ComparisonOptions,
    kind: EngineKind,
    *,
    on_step: Callable[[], None] = lambda: None,
    crew: Crew | None = None,
) -> Comparison:
    """Return what each layer loses and saves in INT8 by a table.

    Args:
        options: model, table, images.
        kind: of the engines that run both models.
        on_step: called after each image, and after each of the TIMED_RUNS.
        crew: who runs the images; None: this process. Times are those of this machine in any case.

    Raises:
        EdgeError: if model, table or images cannot be used; nothing has run then, but for an image that is damaged.
    """
    file, paths = read_model_file(options.model), images_to_compare(options)
    spec = inspect_file(file)
    forms = Forms(spec, usable_table(options.table, spec, file.graph), file=file)
    quantized = forms.qdq_model(QdqForm())
    resolved = resolved_for_one(file.graph, spec)
    with_copies, copies = with_float_copies(quantized, resolved)
    layers = compared_layers(resolved, spec, quantized, copies)
    noise = Noise(layers)
    work = Comparing(kind=kind, forms=forms, max_batch=spec.batch or 1, layers=layers, with_copies=with_copies)
    with (crew or Here()).take_on(work) as job:
        for part in job.each([UnreadImage(path) for path in paths], on_item=on_step):
            noise.join(part)
        engine = job.engine
    times = times_of(kind, forms, quantized.model, layers, canvases=_first_canvases(paths, spec), on_run=on_step)
    return Comparison(
        spec=spec,
        table=options.table,
        images=len(paths),
        engine=engine,
        output_sqnr_db=noise.errors.sqnr_db(spec.output_name),
        layers=noise.of_layers(times.by_layer),
        inputs=noise.inputs,
        untimed=times.why_none,
    )


def _first_canvases(paths: Sequence[Path], spec: ModelSpec) -> list[NDArray[np.uint8]]:
    """Return uint8 (batch of the model or 1, H, W, 3) of the first images, as often as need be."""
    rows = spec.batch or 1
    source = StillSource(StreamId("images"), paths[: _TIMED_CANVASES * rows], preprocess=spec.preprocess)
    source.open()
    singles = list(canvases_of(source, spec.preprocess))
    singles += singles * (-len(singles) % rows)
    return [np.stack(singles[first : first + rows]) for first in range(0, len(singles) // rows * rows, rows)]
