"""All checks together, and the table that passes them for its model."""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edge.calibrate.findings import (
    Finding,
    ModelFacts,
    Severity,
    error,
    facts_of_graph,
    facts_of_model,
    largest_input,
    lint_ranges,
    named,
    warning,
)
from edge.calibrate.table import DARK, CalibrationTable, Objects, Variety, read_table
from edge.errors import CalibrationError
from edge.model.graph import Graph
from edge.model.qdq.placement import place
from edge.model.qdq.scales import missing_ranges
from edge.types import ImageSize, ModelSpec, Preprocess

__all__ = ["lint_table", "usable_table"]

_NEAREST_SHOWN = 3
_OF_THE_PARSER = ("(Unnamed Layer*", "ONNXTRT_")  # tensors that TensorRT itself adds while it reads the ONNX
_SEEN_AN_OBJECT = 0.2


def _identity(table: CalibrationTable, facts: ModelFacts) -> Iterator[Finding]:
    if table.model is not None and table.model.sha256 != facts.sha256:
        made_for = f"{table.model.name} {table.model.sha256[:12]}"
        yield error(
            "other-model",
            f"made for model {made_for}, this model is {facts.name} {facts.sha256[:12]}",
            "calibrate this model; another export, or a simplified one, has other tensors",
        )


def _preprocess(table: CalibrationTable, facts: ModelFacts) -> Iterator[Finding]:
    if table.preprocess is None or table.preprocess_sha256 == facts.preprocess.sha256:
        return
    expected = facts.preprocess.as_json()
    pairs = ((key, table.preprocess.get(key), expected.get(key)) for key in sorted(expected.keys() | table.preprocess))
    shown = ", ".join(f"{key} {found} (model: {wanted})" for key, found, wanted in pairs if found != wanted)
    yield error(
        "other-preprocess",
        f"made with another preprocess than the model's: {shown}",
        "calibrate again: ranges of other pixels are other ranges",
    )


def _coverage(table: CalibrationTable, facts: ModelFacts) -> Iterator[Finding]:
    missing = [name for name in facts.activations if name not in table.tensors]
    if not missing:
        return
    found = len(facts.activations) - len(missing)
    numbers = f"{found} of {len(facts.activations)} tensors ({found / len(facts.activations):.1%})"
    placement = place(facts.graph, table.keep_float)
    if lost := missing_ranges(facts.graph, placement, dict.fromkeys(table.tensors, 0.0)):
        yield error(
            "coverage",
            f"covers {numbers}; layers that read {named(lost)} would run in float" + _nearest(lost, table, facts),
            "calibrate this very file, or name the nodes in keep_float",
            missing,
        )
    else:
        yield warning(
            "coverage",
            f"covers {numbers}; {named(missing)} have no range" + _nearest(missing, table, facts),
            "nothing to do for Q/DQ pairs, which need none of them; by a calibration cache, as for a DLA, the layers "
            "around them stay in float",
            missing,
        )


def _nearest(missing: Sequence[str], table: CalibrationTable, facts: ModelFacts) -> str:
    """Return which names of the table, that the model does not know, come closest to some that are missing."""
    spare = sorted(set(table.tensors) - set(facts.activations))
    pairs = ((name, difflib.get_close_matches(name, spare, n=1, cutoff=0.5)) for name in missing[:_NEAREST_SHOWN])
    shown = ", ".join(f'"{near[0]}" for "{name}"' for name, near in pairs if near)
    return f" (the table has {shown})" if shown else ""


def _unknown(table: CalibrationTable, facts: ModelFacts) -> Iterator[Finding]:
    unknown = [name for name in sorted(table.tensors) if name not in facts.tensors]
    foreign = _of_other_networks(unknown, facts)
    unknown = [name for name in unknown if name not in foreign and not name.startswith(_OF_THE_PARSER)]
    if foreign:
        yield error(
            "other-network",
            f"{len(foreign)} tensors are named like convolutions or matrix products of {facts.name}, which has "
            f"none of that name: {named(foreign)}",
            "the table is of a deeper network, or of another export of this one; calibrate this very file",
            foreign,
        )
    if unknown:
        yield warning(
            "unknown-tensors",
            f"{len(unknown)} tensors are not in the model: {named(unknown)}",
            "harmless where TensorRT made them; else the table is of another export",
            unknown,
        )


def _of_other_networks(unknown: Sequence[str], facts: ModelFacts) -> list[str]:
    """Return the names that only differ in their numbers from outputs of this model's weighted nodes.

    No tool that simplifies a model takes those away, and no parser adds any; of other operators both is usual.
    """
    kinds = {_kind_of_name(name) for name in facts.weighted_outputs}
    return [name for name in unknown if _kind_of_name(name) in kinds]


def _kind_of_name(tensor: str) -> str:
    return re.sub(r"\d+", "#", tensor)


def _keep_float(table: CalibrationTable, facts: ModelFacts) -> Iterator[Finding]:
    unknown = [name for name in table.keep_float if name not in facts.node_names]
    if unknown:
        yield error(
            "unknown-nodes",
            f"keep_float names nodes that the model does not have: {named(unknown)}",
            "they would run in INT8 unnoticed; take the names from this very file",
        )


def _scores(table: CalibrationTable, facts: ModelFacts) -> Iterator[Finding]:
    ranges = [table.tensors[name].amax for name in facts.scores if name in table.tensors]
    if ranges and max(ranges) < _SEEN_AN_OBJECT:
        yield warning(
            "random-looking",
            f"the largest score in all calibration images was {max(ranges):.3g}: no object was seen, as with "
            "random data",
            "calibrate with images of what the cameras will see, normalised as the model expects",
        )


_USUAL_INPUTS = ("images", "image", "input", "input.1", "data", "x")
_TOO_LARGE = 1.05  # a histogram rounds up a little; nothing else makes more than the largest pixel
_CLIPPED = 0.8
# Of images. Measured: of COCO's photos any 32 spread by 37 levels and more, frames of a clip of one camera by 12.
_ALIKE_SHARE = 0.25
_ENOUGH_IMAGES = 32  # fewer are warned about anyway, and show no spread
_NARROW_LIGHT = 24
_LIGHT = 130
_FEW_OF_A_CAMERA = 0.25  # of what each had if all had as many
_IMAGES_OF_A_CLASS = 8
_TOO_SMALL = 0.2  # not one pixel brighter than 51 of 255, in any image: nothing could be seen on them


def lint_table(table: CalibrationTable, facts: ModelFacts | None) -> tuple[Finding, ...]:
    """Return what is wrong with `table`, errors first.

    `facts`: of the model that it is to be used with; None leaves out what cannot be known then.
    """
    findings = [*lint_ranges(table, facts), *_input_range(table, facts)]
    if facts is not None:
        for check in (_identity, _preprocess, _coverage, _unknown, _keep_float, _scores):
            findings += check(table, facts)
    findings += _unbound(table)
    if table.dataset is not None and table.dataset.variety is not None:
        findings += _variety(table.dataset.variety)
    return tuple(sorted(findings, key=lambda finding: finding.severity is not Severity.ERROR))


def _unbound(table: CalibrationTable) -> Iterator[Finding]:
    if table.model is None:
        yield warning(
            "unbound",
            "the table does not say which model it is of",
            "import it with --model, then a table of another export is noticed",
        )


def _variety(images: Variety) -> Iterator[Finding]:
    """Yield what the images of a calibration do not show."""
    if images.alike and images.alike >= _ALIKE_SHARE * images.images:
        yield warning(
            "alike-images",
            f"{images.alike} of {images.images} images look like another one",
            "add images of other times of day, other cameras and other objects: more of the same widen no range",
        )
    if images.images < _ENOUGH_IMAGES:
        return
    yield from _light(images)
    yield from _cameras(images)
    if images.objects is not None:
        yield from _classes(images.objects)


def _light(images: Variety) -> Iterator[Finding]:
    low, _, high = images.brightness
    is_narrow = high - low < _NARROW_LIGHT
    if images.dark == images.images or (is_narrow and high < _LIGHT):
        missing, add = "bright", "images by day, in sunshine and with all lights on"
    elif images.dark == 0 or (is_narrow and low > DARK):
        missing, add = "dark", "images of dusk and night"
    elif is_narrow:
        missing, add = "dark or bright", "images of night and of bright days"
    else:
        return
    yield warning(
        "one-light",
        f"few images are {missing}: the mean brightness of eight in ten is {low} to {high} of 255",
        f"add {add}; nothing to do where the cameras never see any",
    )


def _cameras(images: Variety) -> Iterator[Finding]:
    fair = images.images / max(len(images.cameras), 1)
    few = {name: count for name, count in images.cameras.items() if count < _FEW_OF_A_CAMERA * fair}
    if few:
        yield warning(
            "few-of-a-camera",
            f"of {images.images} images only {_counted(few)}",
            f"add images of each such camera, about {math.ceil(fair / 2)}: edge-runtime run PIPELINE --frames DIR",
        )


def _classes(objects: Objects) -> Iterator[Finding]:
    """A model of many classes at a gate sees few of them; where most are seen, one that is not is missing."""
    missing, classes = [name for name, count in objects.counts.items() if not count], len(objects.counts)
    is_expected = 2 * len(missing) <= classes and _IMAGES_OF_A_CLASS * classes <= objects.images
    if missing and (is_expected or len(missing) == classes):
        by = "is labelled" if objects.by == "labels" else "is found by the float model"
        yield warning(
            "missing-classes",
            f"no object of {named(missing)} {by} on {objects.images} images",
            "add images that show some; nothing to do where the cameras never see any",
        )


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f'{count} are of "{name}"' for name, count in counts.items())


def _input_range(table: CalibrationTable, facts: ModelFacts | None) -> Iterator[Finding]:
    if facts is not None:
        name: str | None = facts.input_name
        preprocess: Preprocess | None = facts.preprocess
    else:
        name = next((usual for usual in _USUAL_INPUTS if usual in table.tensors), None)
        preprocess = _read(table.preprocess)
    if name is None or preprocess is None or name not in table.tensors or not table.tensors[name].is_usable:
        return
    amax, expected = table.tensors[name].amax, largest_input(preprocess)
    ratio = amax / expected
    if _CLIPPED <= ratio <= _TOO_LARGE:
        return
    yield (warning if _TOO_SMALL <= ratio <= _TOO_LARGE else error)(
        "input-range",
        f'input "{name}" has range {amax:.4g}, pixels become at most {expected:.4g}: {_guess(ratio)}',
        "calibrate with the model's own preprocess (edge-deploy inspect shows it)",
        (name,),
    )


def _guess(ratio: float) -> str:
    if 200 < ratio < 300:
        return "about 255 times too large, the images were not divided by 255"
    if 200 < 1 / ratio < 300:
        return "about 255 times too small, the images were divided by 255 where the model wants 0 to 255"
    if ratio > 1:
        return f"{ratio:.3g} times too large, mean, std or scale were others"
    return f"only {ratio:.1%} of it, other normalisation, dark images, or hard clipping"


def _read(content: Mapping[str, Any] | None) -> Preprocess | None:
    """Return the part of a table's preprocess that the range of the input depends on."""
    if content is None:
        return None
    try:
        return Preprocess(
            size=ImageSize(width=1, height=1),
            scale=float(content["scale"]),
            mean=(content["mean"][0], content["mean"][1], content["mean"][2]),
            std=(content["std"][0], content["std"][1], content["std"][2]),
        )
    except (KeyError, IndexError, TypeError, ValueError):
        return None  # of another version; comparing with the model tells that


def usable_table(path: Path, spec: ModelSpec, graph: Graph | None = None) -> CalibrationTable:
    """Return the table at `path`, in which lint finds no error for the model of `spec`.

    `graph`: its inside; None: its file is read. Raises CalibrationError if it cannot be read, is not fit for the model,
    or the model carries Q/DQ pairs already; ModelError if the model can no longer be read.
    """
    table = read_table(path)
    if spec.is_quantized:
        raise CalibrationError(
            f"{path}: {spec.path} carries Q/DQ pairs already, which a table would contradict",
            hint="use it without a table, or take it apart into a table and a float model: "
            f"edge-deploy table import {shlex.quote(str(spec.path))} -o TABLE --float-model FLOAT.onnx",
        )
    facts = facts_of_model(spec) if graph is None else facts_of_graph(graph, spec)
    errors = [one for one in lint_table(table, facts) if one.severity is Severity.ERROR]
    if errors:
        raise _refusal(path, spec, errors)
    return table


def _refusal(path: Path, spec: ModelSpec, errors: Sequence[Finding]) -> CalibrationError:
    # A table of another model is wrong in many ways; that it is of another one is what has to be mended.
    worst = min(errors, key=lambda one: one.code != "other-model")
    lint = shlex.join(("edge-deploy", "table", "lint", str(path), "--model", str(spec.path)))
    others = f" ({len(errors) - 1} more: {lint})" if len(errors) > 1 else ""
    return CalibrationError(f"{path}: {worst.problem}{others}", hint=worst.fix)
