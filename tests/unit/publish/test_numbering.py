import json
import os

import pytest

from edge.publish.numbering import EPOCH_FILE, raise_epoch
from tests.support.logged import logged

CLOCK_S = 1_800_000_000


def epoch(state_dir, now_s=CLOCK_S):
    return raise_epoch(state_dir, now_s=lambda: now_s)


def test_each_start_has_a_higher_epoch(tmp_path):
    first = epoch(tmp_path / "state")

    assert first == CLOCK_S
    assert [epoch(tmp_path / "state", now_s=1) for _ in range(3)] == [first + 1, first + 2, first + 3]


def test_the_epoch_is_durable_before_it_is_used(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, type(tmp_path).replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (done.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(type(tmp_path), "replace", lambda a, b: (done.append("rename"), replace(a, b)))

    kept = epoch(tmp_path)

    assert done == ["fsync", "rename", "fsync"]
    assert json.loads((tmp_path / EPOCH_FILE).read_text())["epoch"] == kept
    assert [path.name for path in tmp_path.iterdir()] == [EPOCH_FILE]


def test_a_start_that_could_not_keep_its_epoch_is_not_above_those_that_follow(tmp_path, monkeypatch):
    own, other = tmp_path / "own", tmp_path / "of another user"
    epochs = [epoch(own)]
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", _no_space)
        epochs.append(epoch(own, now_s=CLOCK_S + 100))
    epochs += [epoch(own, now_s=CLOCK_S + 200), epoch(own, now_s=1)]
    epochs += [epoch(other, now_s=CLOCK_S + 300), epoch(own, now_s=CLOCK_S + 400)]

    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize("content", ["", "{", "41", '{"epoch": 41}', '{"format": "edge.epoch/1", "epoch": "41"}'])
def test_a_damaged_file_is_replaced_by_the_clock(tmp_path, content, caplog):
    (tmp_path / EPOCH_FILE).write_text(content)

    assert epoch(tmp_path) == CLOCK_S
    assert epoch(tmp_path) == CLOCK_S + 1
    assert "epoch-unusable" in logged(caplog)


def test_a_disk_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    (tmp_path / "file").touch()

    assert epoch(tmp_path / "file" / "state") == CLOCK_S
    assert "epoch-not-kept" in logged(caplog)


def test_a_failed_write_leaves_the_old_epoch_and_gives_a_new_one(tmp_path, monkeypatch):
    kept = epoch(tmp_path, now_s=5)
    monkeypatch.setattr(os, "fsync", _no_space)

    assert epoch(tmp_path) == CLOCK_S > kept
    assert json.loads((tmp_path / EPOCH_FILE).read_text())["epoch"] == kept


def _no_space(_descriptor):
    raise OSError(28, "No space left on device")
