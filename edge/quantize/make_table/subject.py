"""What is calibrated: a float model that was read once, the images, and what is known of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edge.errors import DatasetError, ModelError, SourceError
from edge.evaluate.labels import open_labels
from edge.evaluate.truth import Labels
from edge.model.file import ModelFile, read_model_file
from edge.model.inspect import inspect_file
from edge.model.obstacles import INTEGER_OPERATORS
from edge.quantize.forms import Forms
from edge.quantize.make_table.images import ImageSplit, find_images, require_decodable, split_images
from edge.quantize.make_table.layers import layers_of
from edge.quantize.make_table.options import CalibrationOptions

__all__ = ["Subject", "open_subject"]

_FEWEST_TO_SPLIT = 4
_HELD_OUT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is calibrated; `labels` are of the images, `left_out` of them could not be decoded."""

    forms: Forms
    split: ImageSplit
    left_out: tuple[Path, ...]
    labels: Labels | None

    @contextmanager
    def told(self) -> Iterator[None]:
        """Turn one image that cannot be decoded into the list of all of them."""
        try:
            yield
        except (DatasetError, SourceError) as error:
            require_decodable((*self.split.observed, *self.split.held_out))
            raise DatasetError(error.problem, hint=error.hint) from error


def open_subject(options: CalibrationOptions) -> Subject:
    """Return what `options` name.

    Raises:
        ModelError: if the model cannot be read, is no float model, or has no layer of a name that is to stay in float.
        DatasetError: if images or labels cannot be used, or there are too few to prove anything.
    """
    file = read_model_file(options.model)
    forms = _float_forms(file, options)
    split, left_out = _images(options)
    labels = None if options.labels is None else open_labels(options.labels, forms.spec.labels)
    _require_layers(forms, options.keep_float)
    return Subject(forms=forms, split=split, left_out=left_out, labels=labels)


def _float_forms(file: ModelFile, options: CalibrationOptions) -> Forms:
    spec = inspect_file(file, overrides=options.overrides)
    if spec.is_quantized:
        raise ModelError(
            f"{spec.path}: expected a float model, it carries Q/DQ nodes already",
            hint="calibrate the float model; edge-deploy table import makes a table of this one",
        )
    if found := sorted({node.op_type for node in file.graph.nodes}.intersection(INTEGER_OPERATORS)):
        raise ModelError(
            f"{spec.path}: expected a float model, it computes in integers already ({', '.join(found)})",
            hint="calibrate the float model that it was made of",
        )
    return Forms(spec, file=file)


def _images(options: CalibrationOptions) -> tuple[ImageSplit, tuple[Path, ...]]:
    if options.images is None:
        return ImageSplit(observed=(), held_out=()), ()
    images, left_out = find_images(options.images, is_decodable_only=options.is_skipping_undecodable)
    held_out = 0
    if options.is_searched or options.labels is not None:
        if len(images) < _FEWEST_TO_SPLIT:
            raise DatasetError(
                f"{options.images}: {len(images)} images, expected at least {_FEWEST_TO_SPLIT}: some are looked at, "
                "others prove what was found",
                hint="give more images, 100 to 2000 are usual",
            )
        held_out = max(len(images) // 3, min(_HELD_OUT, len(images) // 2))
    return split_images(images, held_out=held_out), tuple(left_out)


def _require_layers(forms: Forms, keep_float: tuple[str, ...]) -> None:
    known = {layer.name for layer in layers_of(forms.graph, forms.spec)}
    unknown = sorted(set(keep_float) - known)
    if unknown:
        raise ModelError(
            f'{forms.spec.path}: --keep-float names "{unknown[0]}", which is no layer that could run in INT8',
            hint="edge-deploy compare lists the layers by name",
        )
