"""A table from a calibrator of the engine's own library: it is shown our canvases, and what it writes is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from edge.calibrate.cache import parse_cache
from edge.calibrate.convert import table_from_cache
from edge.calibrate.findings import ModelFacts, Severity, facts_of_graph
from edge.calibrate.lint import lint_table
from edge.calibrate.observations import Observations
from edge.calibrate.table import CalibrationTable, MadeBy, TensorRange
from edge.engine.kind import CalibratingKind, EngineKind
from edge.errors import CalibrationError, ConfigError, DatasetError
from edge.quantize.feed import still_canvases
from edge.quantize.forms import Forms
from edge.quantize.new_tables import DEAD, DEAD_RANGE
from edge.quantize.stills import StillImage
from edge.types import Preprocess

__all__ = ["able_kind", "seen_by_calibrator", "table_by_calibrator"]

_FOUND = "calibrator"  # how a range was chosen, in the table


def able_kind(kind: EngineKind, calibrator: str) -> CalibratingKind:
    """Return `kind`, whose library has `calibrator`. Raises `ConfigError` if it has no calibrators, or not that one."""
    if not isinstance(kind, CalibratingKind):
        raise ConfigError(
            f"engine {kind.name} has no calibrators of its own",
            hint="choose ranges by --method, which every engine can, or name an --engine whose library has calibrators",
        )
    if calibrator not in kind.calibrators:
        known = ", ".join(kind.calibrators)
        raise ConfigError(f"engine {kind.name} has no calibrator {calibrator!r}; expected one of {known}")
    return kind


def table_by_calibrator(
    forms: Forms,
    kind: EngineKind,
    calibrator: str,
    images: Sequence[StillImage],
    *,
    max_batch: int,
    floats: Mapping[str, str],
    on_image: Callable[[], None],
) -> CalibrationTable:
    """Return the table, without evidence, in which lint finds no error.
    Raises `ConfigError` if the kind has no such calibrator; DatasetError if the images make no whole batches, or one
    cannot be decoded; EngineError if the calibrator cannot be run here, or wrote nothing; CalibrationError if what it
    wrote is no cache, or makes no table that the model could be run by.

    `forms`: of the float model. `max_batch`: rows of a batch, where the model's own is not fixed; some choose other
    ranges by it. `floats`: layers that stay in float, and why. `on_image`: called when an image was handed over.
    """
    spec, able = forms.spec, able_kind(kind, calibrator)
    rows = _whole_batches(images, spec.batch or max_batch)
    content = able.calibrator_cache(
        forms,
        calibrator,
        _batches(images, spec.preprocess, rows, on_image),
    )
    where, facts = f"the cache of {kind.name}'s {calibrator}", facts_of_graph(forms.graph, spec)
    cache = parse_cache(_text(content, where), where)
    drawn = table_from_cache(cache, spec)
    table = msgspec.structs.replace(
        drawn,
        dataset=seen_by_calibrator(images).dataset,
        method=calibrator,
        made_by=MadeBy(engine=f"{kind.name} {cache.tensorrt}"),
        tensors=_ranges(drawn, facts),
        keep_float=tuple(sorted(floats)),
        float_reasons=floats,
    )
    _require_sound(table, facts, where)
    return table


def seen_by_calibrator(images: Sequence[StillImage]) -> Observations:
    """Return which images were looked at; what was seen on them the library keeps to itself."""
    return Observations(image_sha256s=tuple(sorted(image.sha256 for image in images)), histograms={})


def _whole_batches(images: Sequence[StillImage], rows: int) -> int:
    if len(images) % rows:
        raise DatasetError(
            f"{len(images)} images make no whole batches of {rows}, and a calibrator takes no other ones",
            hint=f"add {rows - len(images) % rows} images or remove {len(images) % rows}, or state another --batch",
        )
    return rows


def _batches(
    images: Sequence[StillImage], preprocess: Preprocess, rows: int, on_image: Callable[[], None]
) -> Iterator[NDArray[np.uint8]]:
    batch: list[NDArray[np.uint8]] = []
    for canvas in still_canvases([image.path for image in images], preprocess):
        batch.append(canvas)
        on_image()
        if len(batch) == rows:
            yield np.stack(batch)
            batch.clear()


def _text(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise CalibrationError(f"{where}: expected a text, got {content[:16]!r}") from None


def _ranges(drawn: CalibrationTable, facts: ModelFacts) -> dict[str, TensorRange]:
    """Return the ranges of a cache. TensorRT writes scale 0 for constants, which are left out, and for dead tensors."""
    activations = frozenset(facts.activations)
    found = {}
    for name, tensor in drawn.tensors.items():
        if tensor.scale.value:
            found[name] = msgspec.structs.replace(tensor, method=_FOUND)
        elif name in activations:
            found[name] = TensorRange(amax=DEAD_RANGE, method=DEAD)
    return found


def _require_sound(table: CalibrationTable, facts: ModelFacts, where: str) -> None:
    for finding in lint_table(table, facts):
        if finding.severity is Severity.ERROR:
            raise CalibrationError(f"{where}: {finding.problem}", hint=finding.fix)
