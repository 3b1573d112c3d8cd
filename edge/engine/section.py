"""What a pipeline asks of an engine: its `engine` section, the model, the largest batch, the decoding of boxes.
Each kind of engine brings keys of its own.

Under a kind's name stand its keys beside `kind`; under `auto` they stand below the name of their kind, because it is
not known yet which one will run:

    engine: {kind: openvino, threads: 2}
    engine: {kind: auto, openvino: {threads: 2}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from edge.config.convert import convert
from edge.config.pipeline import Pipeline
from edge.config.uris import local_path
from edge.document import Location
from edge.engine.kind import load_kind
from edge.engine.kinds import AUTO, choose_kind, kinds
from edge.errors import ConfigError, EngineError, StatedError
from edge.model.graph import ModelFile, read_model_file
from edge.model.inspect import ModelOverrides, inspect_file
from edge.types import HeadFamily, ImageSize, ModelSpec
from edge.vision.heads import Detector, head_of

__all__ = [
    "ChosenEngine",
    "EngineSection",
    "choose_engine",
    "detector_of",
    "max_batch_of",
    "open_model",
    "read_model",
    "read_section",
    "section_types",
]

_SECTION = "engine"
_REFERENCE = "pipelines/reference.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSection:
    """A pipeline's `engine` section: `kind` as written, and the options of each kind that may run, by name."""

    kind: str
    options: Mapping[str, msgspec.Struct]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEngine:
    """The kind that runs a pipeline on this machine, why that one, and what the pipeline sets of it."""

    kind: str
    reason: str
    options: msgspec.Struct
    versions: Mapping[str, str]


def read_section(pipeline: Pipeline) -> EngineSection:
    """Return the section of a pipeline, strictly decoded. Raises ConfigError naming file, line and key, if it names no
    kind that there is, or a key that the kind does not have.
    """
    raw, types = pipeline.config.engine, section_types()
    kind = raw.get("kind", AUTO)
    if not isinstance(kind, str) or kind not in types:
        raise pipeline.error((_SECTION, "kind"), f"got {kind!r}, expected one of {', '.join(types)}")
    if not raw:
        return EngineSection(kind=AUTO, options={name: load_kind(name).options_type() for name in kinds()})
    _refuse_misplaced(pipeline, kind, types)
    read = convert(pipeline.document, types[kind], see=_REFERENCE, at=(_SECTION,))
    if kind == AUTO:
        return EngineSection(kind=AUTO, options={name: getattr(read, name) for name in kinds()})
    struct = load_kind(kind).options_type
    options = struct(**{name: getattr(read, name) for name in struct.__struct_fields__})
    return EngineSection(kind=kind, options={kind: options})


def choose_engine(pipeline: Pipeline, *, kind: str | None = None) -> ChosenEngine:
    """Return what runs a pipeline on this machine.

    `kind`: of what `auto` stands for, the one that was chosen before; None: the best one here. Raises `ConfigError` as
    `read_section`; EngineError if nothing, or not the kind that is asked for, runs here: with what is missing.
    """
    section = read_section(pipeline)
    if kind is not None and section.kind not in (AUTO, kind):
        raise EngineError(f"{pipeline.path}: engine.kind is {section.kind}, the engine is of {kind}")
    try:
        choice = choose_kind(kind or section.kind)
    except ConfigError as error:
        raise EngineError(f"{pipeline.path}: {error.problem}", hint=error.hint) from None
    if (why_not := choice.facts.why_not()) is not None:
        located = pipeline.error((_SECTION, "kind"), f"{choice.facts.name} cannot run here: {why_not}")
        raise EngineError(located.problem, hint=f"mend that, or use kind: {AUTO}")
    name = choice.facts.name
    return ChosenEngine(
        kind=name, reason=choice.reason, options=section.options[name], versions=choice.facts.versions()
    )


def section_types() -> Mapping[str, type[msgspec.Struct]]:
    """Return types by `kind`; the one for `auto`, which is the default, first."""
    known = {name: load_kind(name).options_type for name in kinds()}
    below = [(name, options, msgspec.field(default_factory=options)) for name, options in known.items()]
    return {
        AUTO: _struct("EngineAuto", [("kind", Literal[AUTO], AUTO), *below], ()),
        **{name: _struct(f"Engine_{name}", [("kind", Literal[name])], (options,)) for name, options in known.items()},
    }


def _struct(name: str, keys: list[tuple[object, ...]], bases: tuple[type[msgspec.Struct], ...]) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        name,
        keys,  # type: ignore[arg-type]
        bases=bases or None,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


def _refuse_misplaced(pipeline: Pipeline, kind: str, types: Mapping[str, type[msgspec.Struct]]) -> None:
    """Say of an option that is known, but not here, where it belongs."""
    here = set(types[kind].__struct_fields__)
    for key, value in pipeline.config.engine.items():
        owners = [name for name in kinds() if key in load_kind(name).options_type.__struct_fields__]
        if key in here or not owners:
            continue
        where: Location = (_SECTION, key)
        if kind == AUTO:
            below = " or ".join(f"engine: {{{name}: {{{key}: {value}}}}}" for name in owners)
            raise pipeline.error(where, f"belongs to one kind of engine; under kind: {AUTO} write {below}")
        raise pipeline.error(where, f"belongs to {' and '.join(owners)}, not to {kind}; remove it, or use that kind")


def read_model(pipeline: Pipeline) -> ModelSpec:
    return open_model(pipeline)[1]


def open_model(pipeline: Pipeline) -> tuple[ModelFile, ModelSpec]:
    """Return the pipeline's model file, and what it is as far as the pipeline does not say otherwise.

    Each load of a pipeline comes through here, so that what is wrong with its `engine` section shows before all else.
    Raises `ConfigError` naming file, line and key, if the `engine` section cannot be used, there is nothing to fall
    back to, or the model is not what the pipeline says of it; ModelError if it is damaged or unknown.
    """
    read_section(pipeline)
    model = pipeline.config.model
    size = model.input_size
    overrides = ModelOverrides(
        family=None if model.family is None else HeadFamily(model.family),
        labels=None if model.labels is None else tuple(model.labels),
        input_size=None if size is None else ImageSize(width=size[0], height=size[1]),
    )
    file = read_model_file(pipeline.resolve(model.onnx))
    try:
        spec = inspect_file(file, overrides=overrides)
    except StatedError as error:
        raise pipeline.error(("model", error.key), str(error)) from error
    if model.fallback is not None and spec.is_quantized:
        problem = f"{spec.path} carries Q/DQ pairs and has no float form; remove it, or use the float model and a table"
        raise pipeline.error(("model", "fallback"), problem)
    return file, spec


def max_batch_of(pipeline: Pipeline) -> int:
    # A live stream never has more than its newest frame to infer; a file always has a next one.
    streams, most = pipeline.config.streams, pipeline.config.batch.max_frames
    folder = pipeline.path.parent
    has_waiting = any(not stream.realtime and local_path(stream.uri, folder) is not None for stream in streams)
    return most if has_waiting else min(most, len(streams))


def detector_of(pipeline: Pipeline, spec: ModelSpec, *, score_threshold: float | None = None) -> Detector:
    """`score_threshold` None: the pipeline's."""
    model = pipeline.config.model
    return Detector(
        head=head_of(spec),
        score_threshold=model.score_threshold if score_threshold is None else score_threshold,
        iou_threshold=model.iou_threshold,
        max_detections=model.max_detections,
    )
