"""README and docs as a new user meets them: commands work as printed, and print what is shown; so do pictures."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import msgspec
import pytest
import yaml

from edge.config.schema import PipelineConfig
from tests.support.mosquitto import Collector, Mosquitto
from tests.support.pages import ROOT, Command, Page, pages, read_page
from tests.support.showing import needs_chromium
from tools.pictures.shots import SHOTS, Demo
from tools.pictures.terminal import Session, run_on_terminal, screen_at_end, without_log

pytestmark = pytest.mark.slow_but(
    "test_every_command_works_as_printed[README.md]",
    "test_most_of_the_commands_that_need_no_device_are_run",
    "test_the_transcript_is_what_the_demo_prints",
    "test_every_picture_that_is_shown_is_made_by_make_pictures_and_small",
    "test_what_is_logged_of_a_machine_is_in_no_picture",
    "test_what_is_typed_for_a_device_is_what_the_lab_types_from_the_page",
    "test_the_example_pipeline_is_valid",
    "test_every_pipeline_that_we_ship_is_valid",
    reason="further figures of this machine",
)

PAGES = pages()
README = read_page("README.md")
DEMO = next(command for command in README.commands if command.typed.startswith("edge-deploy demo"))
# Files of the demo under the names that pages give to a reader's own.
MODELS = ("yolo11s.onnx", "yolov5n.onnx", "models/yolo11s.onnx")
TABLES = ("gates.calib.json", "yolov5n.calib.json", "calib_cache/yolo11s-gates.calib.json")
# A calibration cache of TensorRT's kind and a model that somebody else has quantized: made here, by what makes them.
MADE_BEFORE = (
    "edge-deploy table export gates.calib.json -o trt.cache --tensorrt 10.3.0",
    "edge-deploy table qdq gates.calib.json --model yolo11s.onnx -o yolo11s-qat.onnx",
)
GATES = """\
version: 1
model: {onnx: ../yolo11s.onnx, calibration: ../gates.calib.json, precision: int8}
streams: [{id: east, uri: ../out/demo/camera-1.mp4, loop: true}]
publish: {jsonl: "-"}
"""


@dataclass
class Checkout:
    """A folder that looks like the checkout, where what is written is our own; `done` are the commands typed there."""

    folder: Path
    environment: dict[str, str]
    demo: Session
    done: set[str] = field(default_factory=set)

    def type(self, command: Command) -> None:
        if command.typed in self.done:
            return
        self.done.add(command.typed)
        ran = subprocess.run(
            ["bash", "-c", command.typed],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Iterator[Checkout]:
    folder = tmp_path_factory.mktemp("checkout")
    for name in (".venv", "edge"):
        (folder / name).symlink_to(ROOT / name)
    for name in ("pipelines", "calib_cache"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "home/.ssh").mkdir(parents=True)
    key = folder / "home/.ssh/id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    path = f"{folder}/.venv/bin:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": f"{folder}/home", "XDG_CONFIG_HOME": f"{folder}/home/.config"}
    demo = run_on_terminal(["bash", "-c", DEMO.typed], folder=folder, environment=environment)
    assert demo.code == 0, f"{demo.told}\n{demo.stdout}"
    place_files(folder)
    there = Checkout(folder, environment, demo, {DEMO.typed})
    for typed in MADE_BEFORE:
        there.type(Command("this file", 0, typed, None))
    return there


def place_files(folder: Path) -> None:
    """Put there what a reader has of their own."""
    (folder / "models").mkdir()
    for name in MODELS:
        shutil.copy(ROOT / "edge/demo/model/traffic.onnx", folder / name)
    for name in TABLES:
        shutil.copy(ROOT / "calib_cache/traffic.calib.json", folder / name)
    for name in ("images", "labels"):
        shutil.copytree(folder / "out/demo" / name, folder / "val" / name)
    (folder / "pipelines/gates.yaml").write_text(GATES)
    (folder / "gates.yaml").write_text(GATES.replace("../", ""))


def to_run(page: Page) -> list[Command]:
    return [command for command in page.commands if command.why_not is None]


@pytest.mark.parametrize("page", [page for page in PAGES if to_run(page)], ids=lambda page: page.name)
def test_every_command_works_as_printed(checkout, page):
    for command in to_run(page):
        checkout.type(command)


def test_most_of_the_commands_that_need_no_device_are_run():
    assert len(to_run(README)) >= 12
    assert sum(len(to_run(page)) for page in PAGES) >= 24
    assert {"docs/sizing.md", "docs/performance.md", "docs/push.md", "calib_cache/README.md"} <= {
        page.name for page in PAGES if to_run(page)
    }


def test_the_transcript_is_what_the_demo_prints(checkout):
    (shown,) = re.findall(r"```console\n\$ make demo\n(.*?)```", README.text, re.DOTALL)
    stages = [line for line in checkout.demo.told.splitlines() if line.startswith("demo ")]
    *printed, kept = checkout.demo.stdout.replace("edge-", ".venv/bin/edge-").splitlines()

    assert [masked(line) for line in shown.splitlines()] == [*map(masked, stages), *map(masked, printed)]
    assert kept.startswith("kept in out/demo: "), "the line that --keep, which make demo does not have, adds"


def masked(line: str) -> str:
    """Return a line without its figures, and with single blanks: columns are as wide as what stands in them."""
    return re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)*", "0", line)).strip()


def shown_pictures() -> set[str]:
    """The pictures that all pages show, by their paths in the checkout."""
    return {
        str((ROOT / page.name).parent.joinpath(link).resolve().relative_to(ROOT))
        for page in PAGES
        for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.prose)
    }


def test_every_picture_that_is_shown_is_made_by_make_pictures_and_small():
    made = {f"docs/pictures/{name}.webp" for name in SHOTS}

    assert shown_pictures() == made == {f"docs/pictures/{path.name}" for path in (ROOT / "docs/pictures").iterdir()}
    assert {f"docs/pictures/{name}.webp" for name in ("boxes", "live", "compare", "status-page")} <= {
        link for link in README.links if link.endswith(".webp")
    }
    for name in made:
        assert (ROOT / name).stat().st_size < 150_000, name
        assert cv2.imread(str(ROOT / name)) is not None, name


def test_the_picture_with_boxes_is_what_is_made_now(checkout, tmp_path):
    check_picture("boxes", checkout, tmp_path)


@needs_chromium
def test_the_picture_of_the_live_table_is_what_is_made_now(checkout, tmp_path):
    shown = checkout.demo.screen.splitlines()
    check_picture("live", checkout, tmp_path)

    assert len([line for line in shown if "camera-" in line]) == 4
    assert any("messages" in line for line in shown)


def check_picture(name: str, checkout: Checkout, tmp_path: Path) -> None:
    """Make it anew: of the same size as the one that is shown, and with much in it."""
    (tmp_path / "new.webp").write_bytes(SHOTS[name](Demo(checkout.folder / "out/demo", checkout.demo)))
    made, there = (cv2.imread(str(path)) for path in (tmp_path / "new.webp", ROOT / f"docs/pictures/{name}.webp"))

    assert abs(made.shape[0] - there.shape[0]) <= 2
    assert abs(made.shape[1] - there.shape[1]) <= 20  # a figure with one digit more
    assert made.std() > 20


@pytest.mark.slow(reason="a service of four cameras")
def test_what_the_demo_keeps_is_served_by_the_pipeline_of_compose(checkout, tmp_path):
    text = (ROOT / "compose/pipeline.yaml").read_text(encoding="utf-8")
    with Mosquitto(tmp_path / "broker") as broker:
        for inside, outside in (
            ("/demo/", f"{checkout.folder}/out/demo/"),
            ("/model/", f"{ROOT}/edge/demo/model/"),
            ("host: broker", "host: 127.0.0.1"),
            ("tls: false", f"tls: false, port: {broker.port}"),
        ):
            text = text.replace(inside, outside)
        (tmp_path / "pipeline.yaml").write_text(text)
        collector = Collector(broker.port)
        checkout.type(Command("compose", 0, f"edge-runtime run {tmp_path}/pipeline.yaml --duration 3", None))
        collector.close()

    assert {message["model"]["precision"] for message in collector.payloads("/detections")} == {"int8"}
    assert set(collector.numbers()) == {f"camera-{number}" for number in range(1, 5)}


def test_a_terminal_shows_what_was_not_taken_away():
    assert screen_at_end("one\r\ntwo\r\n\x1b[1A\x1b[2Kthree\r\nfour\r\x1b[2Kfive") == "one\nthree\nfive"


def test_what_is_logged_of_a_machine_is_in_no_picture():
    assert (
        without_log("demo one\n\x1b[33mWARNING\x1b[0m edge: slow\nreason=no VNNI\ncamera-1  up")
        == "demo one\ncamera-1  up"
    )


def test_what_is_typed_for_a_device_is_what_the_lab_types_from_the_page():
    page = (ROOT / "docs/first-device.md").read_text(encoding="utf-8").splitlines()
    commands = [command.typed for command in README.commands if " gate-01" in command.typed]

    assert len(commands) == 4
    assert [line for line in commands if f"    {line}" not in page] == []


def test_the_example_pipeline_is_valid():
    (example,) = re.findall(r"```yaml\n(.*?)```", README.text, re.DOTALL)

    msgspec.convert(yaml.safe_load(example), PipelineConfig, strict=True)


@pytest.mark.parametrize("path", sorted((ROOT / "pipelines").glob("*.yaml")), ids=lambda path: path.name)
def test_every_pipeline_that_we_ship_is_valid(path):
    msgspec.convert(yaml.safe_load(path.read_text()), PipelineConfig, strict=True)
