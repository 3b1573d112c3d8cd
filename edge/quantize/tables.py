"""Calibration tables, caches and Q/DQ models as files, beside the model that they are of."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path

from edge.calibrate.cache import CalibrationCache, cache_text, read_cache
from edge.calibrate.convert import cache_from_table, ranges_text, table_from_cache, table_from_qdq
from edge.calibrate.files import write_all, write_bytes
from edge.calibrate.findings import Finding, ModelFacts, facts_of_graph
from edge.calibrate.lint import lint_table, usable_table
from edge.calibrate.table import CalibrationTable, read_table, table_text, write_table
from edge.engine.kind import QdqForm
from edge.errors import CalibrationError, ModelError
from edge.model.graph import graph_from_bytes, read_model_file
from edge.model.inspect import inspect_file, inspect_graph
from edge.model.qdq.insert import QdqModel
from edge.model.qdq.read import read_qdq
from edge.quantize.forms import Forms
from edge.types import ModelSpec

__all__ = ["ImportedTable", "export_ranges", "export_table", "import_cache", "import_qdq", "lint_file", "write_qdq"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTable:
    """A table that was written, and what is wrong with it."""

    table: CalibrationTable
    findings: tuple[Finding, ...]


def import_cache(cache: Path, *, out: Path, model: Path | None) -> ImportedTable:
    """Write the table of a TensorRT calibration cache.

    `model`: which the cache is of; the table is bound to it and checked against it.
    Raises `EdgeError` if cache or model cannot be used, or the table cannot be written; nothing is written then.
    """
    content = read_cache(cache)
    facts, spec = _facts_and_spec(model)
    table = table_from_cache(content, spec)
    findings = lint_table(table, facts)
    write_table(out, table)
    return ImportedTable(table=table, findings=findings)


def import_qdq(source: Path, *, out: Path, float_model: Path) -> ImportedTable:
    """Write the table and the float model that a Q/DQ model carries.

    `source`: the Q/DQ model, of quantization-aware training or of a tool that calibrates. `out`: the table, another
    file than `source`; it is bound to `float_model` as written. `float_model`: the model without pairs, in one file
    that is neither of these.
    Raises `EdgeError` if the model cannot be used, or one of the files cannot be written; none is written then.
    """
    ranges, data, keep_float = read_qdq(source)
    if not ranges:
        raise ModelError(
            f"{source}: expected pairs around activations, it only stores weights in INT8",
            hint="calibrate the float model that it was made of",
        )
    graph = graph_from_bytes(data, f"the float model of {source}")
    found = inspect_graph(graph, path=source, sha256=hashlib.sha256(data).hexdigest())  # errors name what there is
    spec = dataclasses.replace(found, path=float_model, name=float_model.stem)
    table = table_from_qdq(ranges, spec, keep_float=keep_float, source=source.name)
    findings = lint_table(table, facts_of_graph(graph, spec))
    write_all({float_model: data, out: table_text(table).encode()})
    return ImportedTable(table=table, findings=findings)


def export_table(
    path: Path, *, out: Path, tensorrt: str | None, calibrator: str | None
) -> tuple[CalibrationTable, CalibrationCache]:
    """Write the calibration cache of a table; return both.
    Raises `CalibrationError` if the table cannot be used, or the cache cannot be written; nothing is written then.
    """
    table = read_table(path)
    cache = cache_from_table(table, tensorrt=tensorrt, calibrator=calibrator)
    write_bytes(out, cache_text(cache).encode())
    return table, cache


def export_ranges(path: Path, *, out: Path) -> CalibrationTable:
    """Write the dynamic ranges of a table; return the table. Raises CalibrationError if the table or one of its scales
    cannot be used, or the file cannot be written; nothing is written then.
    """
    table = read_table(path)
    try:
        text = ranges_text(table)
    except CalibrationError as error:
        raise CalibrationError(f"{path}: {error.problem}", hint=error.hint) from error
    write_bytes(out, text.encode())
    return table


def lint_file(path: Path, *, model: Path | None) -> tuple[Finding, ...]:
    """Raise `EdgeError` if table or model cannot be read at all."""
    table = read_table(path)
    return lint_table(table, _facts_and_spec(model)[0])


def _facts_and_spec(model: Path | None) -> tuple[ModelFacts | None, ModelSpec | None]:
    """Return what a model is, read once; nothing of no model."""
    if model is None:
        return None, None
    file = read_model_file(model)
    spec = inspect_file(file)
    return facts_of_graph(file.graph, spec), spec


def write_qdq(path: Path, *, model: Path, out: Path, form: QdqForm) -> QdqModel:
    """Write `model` with explicit Q/DQ pairs by the ranges of the table at `path`; return what was made.
    Raises `EdgeError` if table or model cannot be used, lint finds an error, or the file cannot be written; nothing is
    written then.
    """
    file = read_model_file(model)
    spec = inspect_file(file)
    made = Forms(spec, usable_table(path, spec, file.graph), file=file).qdq_model(form)
    write_bytes(out, made.model)
    return made
