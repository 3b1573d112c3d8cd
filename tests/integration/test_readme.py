"""The README as a new user meets it: its commands work as printed, its links lead somewhere, its example is valid."""

import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml

from edge.config.schema import PipelineConfig

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in README.splitlines() if line.startswith("    .venv/bin/")]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A folder that looks like the checkout, where `out/` is our own."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in (".venv", "edge", "calib_cache"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "pipelines", folder / "pipelines")
    return folder


@pytest.mark.integration
def test_every_command_works_as_printed(checkout):
    assert len(COMMANDS) >= 5
    for command in COMMANDS:
        done = subprocess.run(command.split(), cwd=checkout, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert list((checkout / "out" / "look").glob("*.jpg"))


def test_what_is_typed_for_a_device_is_what_the_lab_types_from_the_page():
    page = (ROOT / "docs/first-device.md").read_text(encoding="utf-8").splitlines()
    commands = [line for line in README.splitlines() if line.startswith("    edge-deploy ")]

    assert len(commands) == 4
    assert [line for line in commands if line not in page] == []


def test_make_has_every_target_that_is_named():
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert {"demo", "test"} <= set(re.findall(r"`?make ([a-z0-9-]+)", README)) <= set(targets)


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)

    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_example_pipeline_is_valid():
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)

    msgspec.convert(yaml.safe_load(example), PipelineConfig, strict=True)


@pytest.mark.parametrize("path", sorted((ROOT / "pipelines").glob("*.yaml")), ids=lambda path: path.name)
def test_every_pipeline_that_we_ship_is_valid(path):
    msgspec.convert(yaml.safe_load(path.read_text()), PipelineConfig, strict=True)


def test_a_demo_transcript_is_shown():
    assert "sent = received" in README
