"""The documented example is the schema: reference.yaml has every key, and states the defaults as they are."""

from pathlib import Path

import msgspec
import pytest
import yaml

from edge.config.schema import (
    CameraTlsConfig,
    LineConfig,
    PipelineConfig,
    SpoolConfig,
    TlsConfig,
    TrackingConfig,
    ZoneConfig,
)
from edge.engine.kind import load_kind
from edge.engine.kinds import AUTO, kinds
from edge.engine.section import section_types
from tools.pipeline_schema import write_json_schema

PIPELINES = Path(__file__).parents[3] / "pipelines"


def documented():
    return yaml.safe_load((PIPELINES / "reference.yaml").read_text())


def struct_keys(struct):
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def sections():
    config = msgspec.convert(documented(), PipelineConfig, strict=True)
    yield documented(), config
    for name in ("model", "batch", "mqtt", "publish", "overload", "http"):
        yield documented()[name], getattr(config, name)
    yield documented()["streams"][0], config.streams[0]
    engine = documented()["engine"]
    yield engine, msgspec.convert(engine, section_types()[AUTO], strict=True)
    for name in kinds():
        yield engine[name], load_kind(name).options_type()


@pytest.mark.parametrize(("written", "parsed"), list(sections()), ids=lambda value: type(value).__name__)
def test_the_reference_has_every_key_of_the_schema(written, parsed):
    assert set(written) == struct_keys(type(parsed))


@pytest.mark.parametrize(("written", "parsed"), list(sections())[1:], ids=lambda value: type(value).__name__)
def test_the_reference_states_the_true_defaults(written, parsed):
    for field in msgspec.structs.fields(type(parsed)):
        if field.default is not msgspec.NODEFAULT:
            assert written[field.name] == field.default, field.name


def test_the_reference_names_every_kind_of_engine():
    text = (PIPELINES / "reference.yaml").read_text()

    assert " | ".join((AUTO, *kinds())) in text


def test_the_keys_of_tls_are_in_its_comment():
    text = (PIPELINES / "reference.yaml").read_text()

    for key in struct_keys(TlsConfig) | struct_keys(CameraTlsConfig):
        assert f"#   {key}:" in text


def test_the_keys_of_the_spool_are_in_its_comment_with_their_defaults():
    text = (PIPELINES / "reference.yaml").read_text()

    for key, value in msgspec.to_builtins(SpoolConfig()).items():
        assert f"#   {key}: {value} " in text


def test_the_keys_of_tracking_are_in_its_comment_with_their_defaults():
    lines = (PIPELINES / "reference.yaml").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("    tracking:")) + 1
    length = next(i for i, line in enumerate(lines[first:]) if "#   " not in line)
    tracking = yaml.safe_load("\n".join(line.split("#   ", 1)[1] for line in lines[first : first + length]))

    assert set(tracking) == struct_keys(TrackingConfig)
    assert set(tracking["zones"][0]) == struct_keys(ZoneConfig)
    assert set(tracking["lines"][0]) == struct_keys(LineConfig)
    defaults = msgspec.to_builtins(TrackingConfig())
    assert {key: tracking[key] for key in defaults if key not in ("zones", "lines")} == {
        key: value for key, value in defaults.items() if key not in ("zones", "lines")
    }
    msgspec.convert(tracking, TrackingConfig, strict=True)


def test_the_schema_for_editors_is_generated_from_the_types(tmp_path):
    write_json_schema(tmp_path / "schema.json")

    assert (PIPELINES / "pipeline.schema.json").read_text() == (tmp_path / "schema.json").read_text()
