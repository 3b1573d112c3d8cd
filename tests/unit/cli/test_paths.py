"""No result replaces what it is made of: every file that a command writes against every one that it reads."""

import os
import re

import click
import onnx
import pytest
import yaml

from edge.cli.edge_deploy import edge_deploy
from edge.cli.paths import (
    IMAGES,
    LABELS,
    MODEL,
    PIPELINE,
    READ,
    RELEASE,
    SSH_CONFIG,
    STREAMED,
    WRITTEN,
    Command,
    ReadPath,
    WrittenFolder,
    WrittenPath,
)
from edge.cli.runtime_commands import edge_runtime
from edge.config.pipeline import load_pipeline
from edge.errors import ConfigError
from edge.runtime import entry
from tests.support import models

LIGHT = tuple(entry.COMMANDS)


def commands(group, name):
    for word in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), word)
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {word}")
        elif not (name == "edge-runtime" and word in LIGHT):
            yield f"{name} {word}", command


COMMANDS = dict([*commands(edge_deploy, "edge-deploy"), *commands(edge_runtime, "edge-runtime")])
PATHS = [
    (name, command, param) for name, command in COMMANDS.items() for param in command.params
    if isinstance(param.type, click.Path)
]  # fmt: skip


@pytest.mark.parametrize(("name", "command", "param"), PATHS, ids=lambda value: getattr(value, "name", None) or value)
def test_each_path_says_whether_it_is_read_or_written(name, command, param):
    assert isinstance(param.type, ReadPath | WrittenPath | WrittenFolder)
    assert isinstance(command, Command)


def looked_at(*, written, read):
    """What a command that writes and reads there says before it works."""

    @click.command(cls=Command)
    @click.option("--out", "outs", multiple=True, type=written)
    @click.option("--in", "ins", multiple=True, type=read)
    def command(outs, ins):
        """Work."""

    def run(outs, ins=()):
        words = [*(f"--out={path}" for path in outs), *(f"--in={path}" for path in ins)]
        command.main(words, standalone_mode=False)

    return run


def spellings(path):
    os.link(path, path.parent / "hard")
    (path.parent / "soft").symlink_to(path.name)
    return [path, path.parent / "." / path.name, path.parent / "hard", path.parent / "soft"]


def test_a_result_is_not_put_where_something_is_read_however_it_is_spelled(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_text("model")
    run = looked_at(written=WRITTEN, read=READ)

    for out in spellings(path):
        with pytest.raises(ConfigError, match=rf"^--out {out}: is read by this command \(--in\), and would be lost"):
            run([out], [path])
    run([tmp_path / "new"], [path])
    assert path.read_text() == "model"


def test_two_results_are_not_put_in_one_place(tmp_path):
    with pytest.raises(ConfigError, match="is the place of --out too; name another file"):
        looked_at(written=WRITTEN, read=READ)([tmp_path / "a", tmp_path / "." / "a"])


def pipeline_file(folder, **more):
    for name in ("m.onnx", "t.calib.json", "clip.mp4", "ca.pem"):
        (folder / name).write_text(name)
    content = {
        "version": 1,
        "model": {"onnx": "m.onnx", "calibration": "t.calib.json"},
        "streams": [{"id": "gate", "uri": "clip.mp4"}],
        "mqtt": {"host": "broker", "tls": {"ca": "ca.pem"}},
        "publish": {"jsonl": "messages.jsonl"},
        **more,
    }
    (folder / "p.yaml").write_text(yaml.safe_dump(content))
    return folder / "p.yaml"


@pytest.mark.parametrize("name", ["p.yaml", "m.onnx", "t.calib.json", "clip.mp4", "ca.pem", "messages.jsonl"])
def test_nor_where_a_file_is_that_a_pipeline_names(tmp_path, name):
    path = pipeline_file(tmp_path)
    (tmp_path / "messages.jsonl").write_text("{}\n")
    run = looked_at(written=STREAMED, read=PIPELINE)

    with pytest.raises(ConfigError, match=rf"--\w+ .*{name}: "):
        run([tmp_path / name], [path])
    run([tmp_path / "stats.json"], [path])


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("p.yaml", "this pipeline file"),
        ("m.onnx", "model.onnx"),
        ("t.calib.json", "model.calibration"),
        ("clip.mp4", "streams[0].uri"),
        ("ca.pem", "mqtt.tls.ca"),
    ],
)
def test_messages_are_not_written_into_what_a_pipeline_reads(tmp_path, name, what):
    path = pipeline_file(tmp_path, publish={"jsonl": name})

    with pytest.raises(ConfigError, match=rf"p\.yaml:\d+: publish\.jsonl: .*{re.escape(what)}"):
        load_pipeline(path)


def test_nor_onto_an_image_or_its_labels(tmp_path):
    for name in ("a.jpg", "a.txt", "old.calib.json"):
        (tmp_path / name).write_text("x")

    with pytest.raises(ConfigError, match=r"a\.jpg: "):
        looked_at(written=WRITTEN, read=IMAGES)([tmp_path / "a.jpg"], [tmp_path])
    with pytest.raises(ConfigError, match=r"a\.txt: "):
        looked_at(written=WRITTEN, read=LABELS)([tmp_path / "a.txt"], [tmp_path])
    looked_at(written=WRITTEN, read=IMAGES)([tmp_path / "old.calib.json"], [tmp_path])


def test_nor_into_a_release(tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "engine.plan").write_text("x")

    with pytest.raises(ConfigError, match=r"engine\.plan: "):
        looked_at(written=WRITTEN, read=RELEASE)([tmp_path / "r" / "engine.plan"], [tmp_path / "r"])


def test_nor_onto_the_weights_that_a_model_keeps_in_another_file(tmp_path):
    model = onnx.load(models.yolov8(tmp_path / "whole.onnx"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)

    with pytest.raises(ConfigError, match=r"m\.bin: "):
        looked_at(written=WRITTEN, read=MODEL)([tmp_path / "m.bin"], [tmp_path / "m.onnx"])


def test_a_place_that_cannot_be_written_is_told_before_the_work(tmp_path):
    run = looked_at(written=WRITTEN, read=READ)
    os.mkfifo(tmp_path / "fifo")

    for path, expected in ((tmp_path, "a file, this is a folder"), (tmp_path / "no/x", "a file in a folder that is")):
        with pytest.raises(ConfigError, match=f"--out {path}: expected {expected}"):
            run([path])
    for path in (tmp_path / "fifo", "/dev/null"):
        with pytest.raises(ConfigError, match=f"--out {path}: expected a file, this is a pipe or a device"):
            run([path])
    for path in (tmp_path / "fifo", "/dev/null", "-"):
        looked_at(written=STREAMED, read=READ)([path])
    with pytest.raises(ConfigError, match="cannot be written: File name too long"):
        run([tmp_path / ("x" * 300)])


def test_a_file_is_replaced_so_that_its_folder_has_to_be_writable(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)
    (tmp_path / "there").touch()
    os.mkfifo(tmp_path / "fifo")

    for name in ("there", "new"):
        with pytest.raises(ConfigError, match=f"--out {tmp_path / name}: cannot be written"):
            looked_at(written=WRITTEN, read=READ)([tmp_path / name])
    looked_at(written=STREAMED, read=READ)([tmp_path / "fifo"])


@pytest.mark.parametrize(
    ("group", "words", "lost"),
    [
        (edge_deploy, "calibrate m.onnx --images . --method mse -o m.onnx", "m.onnx"),
        (edge_deploy, "calibrate m.onnx --images . --labels m.calib.json", "m.calib.json"),  # --out by default
        (edge_deploy, "calibrate m.onnx --images . --labels . -o a.txt", "a.txt"),
        (edge_deploy, "compare m.onnx --table t.calib.json --images . --html t.calib.json", "t.calib.json"),
        (edge_deploy, "compare m.onnx --table t.calib.json --images . --html a.jpg", "a.jpg"),
        (edge_deploy, "table qdq t.calib.json --model m.onnx -o m.onnx", "m.onnx"),
        (edge_deploy, "table import t.cache -o t.cache", "t.cache"),
        (edge_deploy, "table import t.cache --model m.onnx -o m.onnx", "m.onnx"),
        (edge_deploy, "table import m.onnx -o new --float-model m.onnx", "m.onnx"),
        (edge_deploy, "table export t.calib.json -o t.calib.json", "t.calib.json"),
        (edge_deploy, "table export t.calib.json -o t.calib.json --format ranges", "t.calib.json"),
        (edge_runtime, "run --pipeline p.yaml --stats clip.mp4", "clip.mp4"),
        (edge_runtime, "run --pipeline p.yaml --stats p.yaml", "p.yaml"),
        (edge_runtime, "run --pipeline p.yaml --health m.onnx", "m.onnx"),
        (edge_runtime, "run --release . --health t.calib.json", "t.calib.json"),
    ],
)
def test_each_command_refuses_what_it_reads_as_the_place_of_a_result(tmp_path, monkeypatch, group, words, lost):
    monkeypatch.chdir(tmp_path)
    pipeline_file(tmp_path)
    for name in ("a.jpg", "a.txt", "t.cache", "h.npz", "m.calib.json"):
        (tmp_path / name).write_text(name)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    with pytest.raises(ConfigError, match=rf"{re.escape(lost)}: .*\("):
        group.main(words.split(), standalone_mode=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_pipes_and_devices_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")

    for path in (tmp_path / "fifo", tmp_path / "link", "/dev/zero", "/dev/null"):
        for kind in (READ, MODEL, IMAGES, LABELS, PIPELINE, RELEASE):
            with pytest.raises(ConfigError, match=f"--in {path}: "):
                looked_at(written=WRITTEN, read=kind)([], [path])
    looked_at(written=WRITTEN, read=SSH_CONFIG)([], ["/dev/null"])
