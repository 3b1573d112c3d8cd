"""The JSON Schema of a pipeline file, for editors: `python -m tools.pipeline_schema FILE` writes it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import msgspec

from edge.config.schema import PipelineConfig
from edge.engine.section import section_types

__all__ = ["pipeline_json_schema", "write_json_schema"]

_REF = "#/$defs/{name}"


def pipeline_json_schema() -> dict[str, Any]:
    schema = msgspec.json.schema(PipelineConfig)
    engines = list(section_types().values())
    refs, parts = msgspec.json.schema_components(engines, ref_template=_REF)
    schema["$defs"] |= parts
    schema["$defs"][PipelineConfig.__name__]["properties"]["engine"] = {"anyOf": list(refs), "default": {}}
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "edge-deploy pipeline", **schema}
    return dict(_with_clean_texts(whole))


def _with_clean_texts(value: Any) -> Any:
    """Return a schema whose descriptions are indented alike under each Python: from 3.13 on a docstring is not."""
    if isinstance(value, dict):
        cleaned = {name: _with_clean_texts(inner) for name, inner in value.items()}
        text = value.get("description")
        return cleaned | {"description": inspect.cleandoc(text)} if isinstance(text, str) else cleaned
    return [_with_clean_texts(inner) for inner in value] if isinstance(value, list) else value


def write_json_schema(path: Path) -> None:
    """Write one key per line."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(pipeline_json_schema()), indent=2) + b"\n")


if __name__ == "__main__":
    write_json_schema(Path(sys.argv[1]))
