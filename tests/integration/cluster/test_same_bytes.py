"""Whoever does the work, and whatever happens to them: the same bytes as one process makes alone."""

import json
import random
import shutil
import threading

import pytest

from tests.support.command_line import start, typed
from tests.support.dask_cluster import DaskCluster

pytestmark = pytest.mark.slow_but("test_processes_of_this_machine_make_the_same_table", reason="further clusters")


def search(place, out, *options, images="images"):
    """Calibrate by a search, spread by `options`; return the table."""
    typed(place, "calibrate", "m.onnx", "--images", images, "-o", out / "t.json", *options)
    return (out / "t.json").read_bytes()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_processes_of_this_machine_make_the_same_table(origin, alone, tmp_path, workers):
    assert search(origin, tmp_path, "--workers", workers) == alone


def test_workers_of_a_scheduler_make_the_same_table(origin, alone, tmp_path, cluster):
    assert search(origin, tmp_path, "--cluster", cluster.address) == alone


def test_batches_and_several_threads_of_a_worker_change_nothing(origin, alone, tmp_path, empty_cluster):
    empty_cluster.start_worker(threads=3)

    assert search(origin, tmp_path, "--cluster", empty_cluster.address, "--batch", "3") == alone


def test_with_labels_the_proof_is_the_same(origin, tmp_path, cluster):
    arguments = ("calibrate", "m.onnx", "--images", "images", "--labels", "labels", "--method", "mse", "-o")
    typed(origin, *arguments, tmp_path / "alone.json", "--max-drop", "100")
    typed(origin, *arguments, tmp_path / "spread.json", "--max-drop", "100", "--cluster", cluster.address)

    assert (tmp_path / "spread.json").read_bytes() == (tmp_path / "alone.json").read_bytes()
    assert json.loads((tmp_path / "alone.json").read_text())["evidence"]["metric"] == "mAP50-95"


def test_an_evaluation_is_the_same(origin, alone, cluster):
    arguments = ("evaluate", "m.onnx", "--images", "images", "--labels", "labels", "--json")
    for options in ([], ["--table", "alone.calib.json"]):
        here = json.loads(typed(origin, *arguments, *options)[0])
        there = json.loads(typed(origin, *arguments, *options, "--cluster", cluster.address)[0])
        del here["seconds"], there["seconds"]
        assert there == here
        assert here["boxes"] > 0


def test_a_comparison_is_the_same_but_for_the_times_of_this_machine(origin, alone, cluster):
    arguments = ("compare", "m.onnx", "--images", "images", "--table", "alone.calib.json", "--json")
    here, there = (
        json.loads(typed(origin, *arguments, *options)[0]) for options in ([], ["--cluster", cluster.address])
    )
    for layer in (*here["layers"], *there["layers"]):
        assert layer.pop("float_ms") is None or layer["int8_ms"] is not None
        del layer["int8_ms"], layer["verdict"]
    assert there == here


def test_images_that_workers_do_not_see_are_sent(origin, alone, tmp_path, empty_cluster):
    empty_cluster.start_worker(cwd=tmp_path)
    empty_cluster.start_worker(cwd=tmp_path)

    # Each process sees its own working directory there.
    spread = search(origin, tmp_path, "--cluster", empty_cluster.address, images="/proc/self/cwd/images")

    assert spread == alone


def test_other_images_at_the_same_paths_are_not_taken_for_them(origin, alone, tmp_path, empty_cluster):
    there = tmp_path / "there"
    shutil.copytree(origin / "images", there / "images")
    names = sorted(there.glob("images/*"))
    contents = [path.read_bytes() for path in names]
    for path, content in zip(names, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    empty_cluster.start_worker(cwd=there)

    spread = search(origin, tmp_path, "--cluster", empty_cluster.address, images="/proc/self/cwd/images")

    assert spread == alone


@pytest.mark.parametrize("seed", [1, 2])
def test_workers_that_die_come_and_go_change_nothing(origin, alone, tmp_path, seed):
    cluster, chance = DaskCluster(tmp_path / "dask"), random.Random(seed)
    for _ in range(3):
        cluster.start_worker()
    options = ("--cluster", cluster.address, "-o", tmp_path / "t.json")
    process = start(origin, "calibrate", "m.onnx", "--images", "images", *options)
    killed, told = 0, []
    reader = threading.Thread(target=lambda: told.append(process.communicate(timeout=300)))
    reader.start()
    try:
        while process.poll() is None:
            if killed < 8 and len(cluster.workers) > 1:
                cluster.kill_worker(chance.choice(cluster.workers))
                killed += 1
            if len(cluster.workers) < 3:
                cluster.start_worker()
            reader.join(timeout=chance.uniform(0.2, 2.0))
    finally:
        process.kill()
        reader.join()
        cluster.close()

    assert process.returncode == 0, told
    assert (tmp_path / "t.json").read_bytes() == alone
    assert killed >= 2
