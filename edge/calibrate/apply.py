"""From a calibration table and its model to the Q/DQ model that an engine runs; the same one everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edge.calibrate.lint.check import lint_table
from edge.calibrate.lint.facts import Finding, Severity, facts_of_graph, facts_of_model
from edge.calibrate.table import CalibrationTable, read_table
from edge.errors import CalibrationError
from edge.model.graph import Graph
from edge.model.qdq.insert import QdqModel, insert_qdq
from edge.types import ModelSpec

__all__ = ["quantized_model", "usable_table"]


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
            f"edge-deploy table import {spec.path} -o TABLE --float-model FLOAT.onnx",
        )
    facts = facts_of_model(spec) if graph is None else facts_of_graph(graph, spec)
    errors = [one for one in lint_table(table, facts) if one.severity is Severity.ERROR]
    if errors:
        raise _refusal(path, spec, errors)
    return table


def quantized_model(
    table: CalibrationTable,
    spec: ModelSpec,
    *,
    graph: Graph | None = None,
    means: Mapping[str, Sequence[float]] | None = None,
    has_zero_points: bool = False,
    is_float16: bool = False,
    has_float_weights: bool = False,
) -> QdqModel:
    """Return the model of `spec` with Q/DQ pairs by the ranges, means and centres of a usable table.
    Raises `ModelError` if the model cannot be read or converted.

    Args:
        table: what `usable_table` has returned for this model.
        spec: of a float32 model.
        graph: its inside; None: its file is read.
        means: of channels, by which biases are corrected; None: those of the table.
        has_zero_points: write activations in uint8, with centres as zero points.
        is_float16: compute the rest in float16, for strongly typed TensorRT.
        has_float_weights: put pairs behind weights in float, for TensorRT 8.
    """
    ranges = {name: tensor.amax for name, tensor in table.tensors.items()}
    return insert_qdq(
        spec.path if graph is None else graph,
        spec,
        ranges=ranges,
        keep_float=table.keep_float,
        means=_means(table) if means is None else means,
        is_centred=table.centred,
        is_padded=table.padded,
        has_zero_points=has_zero_points,
        is_float16=is_float16,
        has_float_weights=has_float_weights,
    )


def _means(table: CalibrationTable) -> Mapping[str, Sequence[float]]:
    return {name: tensor.means for name, tensor in table.tensors.items() if tensor.means}


def _refusal(path: Path, spec: ModelSpec, errors: Sequence[Finding]) -> CalibrationError:
    # A table of another model is wrong in many ways; that it is of another one is what has to be mended.
    worst = min(errors, key=lambda one: one.code != "other-model")
    others = f" ({len(errors) - 1} more: edge-deploy table lint {path} --model {spec.path})" if len(errors) > 1 else ""
    return CalibrationError(f"{path}: {worst.problem}{others}", hint=worst.fix)
