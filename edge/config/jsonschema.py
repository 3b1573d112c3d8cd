"""The JSON Schema of a pipeline file, for editors: `python -m edge.config.jsonschema FILE` writes it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from edge.config.schema import PipelineConfig

__all__ = ["pipeline_json_schema", "write_json_schema"]


def pipeline_json_schema() -> dict[str, Any]:
    """Return the schema as plain values."""
    schema = msgspec.json.schema(PipelineConfig)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "edge-deploy pipeline", **schema}


def write_json_schema(path: Path) -> None:
    """Write the schema to `path`, one key per line."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(pipeline_json_schema()), indent=2) + b"\n")


if __name__ == "__main__":
    write_json_schema(Path(sys.argv[1]))
