"""The `engine` section of a pipeline file: which kind, and what is set of it. Each kind brings keys of its own.

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
from edge.document import Location
from edge.engine.kind import load_kind
from edge.engine.kinds import AUTO, choose_kind, kinds
from edge.errors import ConfigError, EngineError

__all__ = ["ChosenEngine", "EngineSection", "choose_engine", "read_section", "section_types"]

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
