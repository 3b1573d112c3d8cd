"""Small files of other programs: read without waiting, without end and without surprise, by one module for all."""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from edge.device.durable import Files, disk_error
from edge.device.health import read_health, write_health
from edge.errors import DeployError
from edge.publish.numbering import EPOCH_FILE, raise_epoch
from edge.reading import UnfitFile, read_file, read_part
from edge.runtime.build.request import read_progress, read_request
from tests.support.odd_files import LEFT, ODD, odd_file
from tests.support.values import health

ROOT = Path(__file__).parents[2]
NO_FILE = [what for what in ODD if what not in ("deeply nested lists", "deeply nested objects", "no JSON")]
NO_FILE.remove("a number of two million digits")

HEALTH = health({"gate": ("up", 1)})


@pytest.mark.parametrize("what", NO_FILE)
def test_what_is_no_file_or_too_much_is_refused_at_once(what, tmp_path):
    path = tmp_path / "one.json"
    with odd_file(what, path):
        begun = time.monotonic()
        with pytest.raises(UnfitFile) as refusal:
            read_file(path)
        assert time.monotonic() - begun < 5
    assert disk_error(refusal.value).code == "device.file"


@pytest.mark.parametrize("what", NO_FILE)
@pytest.mark.parametrize("call", ["read", "read_at", "write", "append", "sync", "write_at", "allocate"])
def test_no_call_on_a_devices_files_waits_for_what_lies_there(call, what, tmp_path):
    if what in ("a sparse file of a terabyte", "a growing file"):
        return  # these calls may work on a large file
    path, files = tmp_path / "one.json", Files()
    arguments = {"read_at": (0, 1), "write": (b"",), "append": (b"",), "write_at": (0, b""), "allocate": (1,)}
    with odd_file(what, path):
        with pytest.raises(OSError, match=r"\[Errno"):
            getattr(files, call)(path, *arguments.get(call, ()))
        assert what not in LEFT or os.path.lexists(path)


def test_a_growing_file_is_read_to_its_limit_and_no_further(tmp_path, monkeypatch):
    path = tmp_path / "one"
    path.write_bytes(b"12345")
    real, asked = os.read, []

    def grows(descriptor, length):
        asked.append(length)
        path.write_bytes(path.read_bytes() + b"more")
        return real(descriptor, length)

    monkeypatch.setattr(os, "read", grows)
    with pytest.raises(UnfitFile, match="it grows as it is read"):
        read_file(path, most_bytes=7)
    assert asked == [8]


def test_a_file_that_is_not_read_in_time_is_given_up(tmp_path, monkeypatch):
    path = tmp_path / "one"
    path.write_bytes(b"12345")

    def read(*, after_s):
        monkeypatch.setattr("edge.reading.time", SimpleNamespace(monotonic=iter([0.0, after_s]).__next__))
        return read_file(path, most_bytes=4 << 20)

    assert read(after_s=31.9) == b"12345"  # 30 s, and one more for every 2 MiB
    with pytest.raises(UnfitFile, match="only 5 bytes could be read in time"):
        read(after_s=32.1)


def test_a_file_of_the_most_bytes_is_read_whole(tmp_path):
    path = tmp_path / "one"
    path.write_bytes(b"12345")
    assert read_file(path, most_bytes=5) == b"12345"
    assert read_part(path, 1, 3) == b"234"
    with pytest.raises(UnfitFile, match="at most 4 bytes"):
        read_file(path, most_bytes=4)


def test_a_link_is_followed_only_where_that_is_asked_for(tmp_path):
    (tmp_path / "one").write_bytes(b"1")
    (tmp_path / "link").symlink_to("one")
    assert read_file(tmp_path / "link", follows_links=True) == b"1"
    with pytest.raises(UnfitFile, match="got a link"):
        read_file(tmp_path / "link")


def test_a_file_of_proc_which_states_no_length_is_read():
    assert b"MemTotal" in read_file(Path("/proc/meminfo"))


def test_a_file_that_may_not_be_read_is_the_systems_own_error(tmp_path):
    path = tmp_path / "one"
    path.write_bytes(b"1")
    path.chmod(0)
    tmp_path.chmod(0o755)
    code = (
        "import os, sys; from pathlib import Path; from edge.reading import read_file; "
        "os.geteuid() or os.setresuid(65534, 65534, 65534); read_file(Path(sys.argv[1]))"
    )
    (tmp_path.parent).chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run([sys.executable, "-c", code, str(path)], check=False, capture_output=True, env=environment)
    assert b"PermissionError" in ran.stderr


@pytest.mark.parametrize("what", ODD)
def test_what_a_runtime_left_does_not_keep_the_next_one_from_its_health_and_its_numbers(what, tmp_path):
    health, part, epoch = tmp_path / "health.json", tmp_path / ".health.json.part", tmp_path / EPOCH_FILE
    with odd_file(what, health), odd_file(what, part), odd_file(what, epoch):
        assert read_health(health) is None
        write_health(health, HEALTH)
        assert read_health(health) == HEALTH
        assert raise_epoch(tmp_path) > 1


@pytest.mark.parametrize("what", ODD)
def test_what_a_builder_left_is_no_progress_and_no_request(what, tmp_path):
    with odd_file(what, tmp_path / "progress.json"):
        assert read_progress(tmp_path / "progress.json") == ""
    with odd_file(what, tmp_path / "request.json"), pytest.raises(DeployError, match="request"):
        read_request(tmp_path / "request.json")


# Who opens files beside `edge.reading`, and why that is no reading of what somebody else may have written.
OPENS = {
    "device/durable.py": {"os.open", "os.fdopen"},  # writes and syncs, see `_PLAIN`
    "device/health.py": {"os.open", "os.fdopen"},  # writes a new file (O_EXCL)
    "device/lock.py": {"os.open"},  # a lock, not waited for
    "runtime/agent/serve.py": {"open"},  # /dev/null
    "runtime/serve/engine.py": {"read_bytes"},  # the model and its table, which the pipeline names
    # a plan from memory; /proc/self/statm; its own standard output
    "runtime/prove/child.py": {"load", "read_text", "os.fdopen"},
    "runtime/prove/look.py": {"os.open"},  # device nodes: whether they open
    "runtime/build/worker.py": {"json.loads"},  # the argument of the process
}
READERS = {"open", "read_text", "read_bytes", "fdopen", "loads", "load", "raw_decode", "fromfile", "memmap", "mmap"}
# Of frame sources, and of engines from what is in memory.
IGNORED = {"source.open", "self.source.open", "maker.load", "self.load", "self._kind.load"}


def _opens(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            last = name.rpartition(".")[2]
            if last in READERS and name not in IGNORED and not name.startswith("load_kind("):
                yield name if name.startswith(("os.", "json.", "np.")) else last


def test_whoever_reads_a_file_on_a_device_reads_it_by_the_one_module_for_that():
    found = {}
    for room in ("device", "runtime"):
        for path in sorted((ROOT / "edge" / room).rglob("*.py")):
            if opens := set(_opens(path)):
                found[path.relative_to(ROOT / "edge").as_posix()] = opens
    assert found == OPENS
