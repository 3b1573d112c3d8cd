"""What holds for every test: which half of the suite it is in, what it costs, and how many run at once."""

import gc
import json
import logging
import os
import random
import signal
import socketserver
from collections import defaultdict
from pathlib import Path

# Before NumPy is loaded, as `edge.cli.entry` does: a process that ends while a thread multiplies matrices would hang.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests import costs
from tests.pace import Pace
from tests.support.cuda_driver import hide_the_machines_gpu

# How long an example takes tells of the machine, which may be loaded. Examples are the same every time: a failure then
# belongs to a change. Others are drawn by `make test ARGS="--hypothesis-profile explore"`.
settings.register_profile("edge", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("edge")
# Hypothesis also draws what stands as a constant in the modules that are loaded: which, depends on the tests before.
providers._get_local_constants = lambda: providers._local_constants

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Begun in the background: a shell then ignores SIGINT for all that comes after. A command that a test interrupts
    # gets the signals that a terminal would give it, because a handler of ours is not inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Servers of tests: of more connections than wait to be taken, a loaded machine lets some fall.
socketserver.TCPServer.request_queue_size = 128

_UMASK = 0o022  # that of nearly all machines; the one of a hardened machine would be that of all stand-ins
os.umask(_UMASK)

_MOST_WORKERS = 8
_WORKER_BYTES = 1_500_000_000
_BEGUN = pytest.StashKey[set[tuple[str, str]]]()
_SECONDS = pytest.StashKey[dict[str, dict[str, float]]]()


def pytest_addoption(parser):
    parser.addoption("--record", type=Path, metavar="FILE", help="write the seconds of each test there")
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests of a file, in this order")


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of what a script begins with `&`; all it starts has it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hide_the_machines_gpu()
    config.stash[_BEGUN] = set()
    config.stash[_SECONDS] = {"quick": defaultdict(float), "slow": defaultdict(float), "promised": defaultdict(float)}
    config.pluginmanager.register(_Recorder(config), "edge-recorder")


def pytest_itemcollected(item):
    """Make `slow` what `slow_but` leaves out: all rows of a test but the first, or all but what it names.

    A name is that of a test, of which the first row stays, or of one row. What is named was chosen: it is `promised`.
    """
    mark = item.get_closest_marker("slow_but")
    if mark is None:
        return
    test = (_file(item), item.originalname)
    is_first = test not in item.config.stash[_BEGUN]
    item.config.stash[_BEGUN].add(test)
    if item.name in mark.args or (item.originalname in mark.args and is_first):
        item.add_marker(pytest.mark.promised(reason="shows what README promises"))
    elif mark.args or not is_first:
        item.add_marker(pytest.mark.slow(reason=mark.kwargs["reason"]))


@pytest.hookimpl(optionalhook=True)
def pytest_collection_finish():
    """Let Python not look through what was collected again each time that it collects garbage, a tenth of a second."""
    gc.collect()
    gc.freeze()


def pytest_xdist_auto_num_workers():
    """Return how many processes share the tests, for `-n auto`: most of their time is waiting."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (told := limit.read_text().strip()).isdecimal():
        memory = min(memory, int(told))
    return max(1, min(_MOST_WORKERS, 2 * len(os.sched_getaffinity(0)), memory // _WORKER_BYTES))


class _Recorder:
    """The seconds that each test of a run would take alone (`tests.pace`), by the half that it is in."""

    def __init__(self, config):
        self._path = None if hasattr(config, "workerinput") else config.getoption("record")
        self._seconds = config.stash[_SECONDS]
        self._pace = None
        if self._path is not None:
            self._pace = Pace()
            self._pace.start()

    def pytest_runtest_logreport(self, report):
        if self._pace is not None:
            kind = next((kind for kind in ("slow", "promised") if kind in report.keywords), "quick")
            self._seconds[kind][report.nodeid] += self._pace.between(report.start, report.stop)

    def pytest_sessionfinish(self):
        if self._pace is not None:
            self._pace.stop()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self._seconds, indent=0), encoding="utf-8")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Order the files by what they cost, the dearest first: xdist would begin with the largest, and end with one."""
    if (seed := config.getoption("shuffle")) is not None:
        random.Random(seed).shuffle(items)
        place = {item.path: number for number, item in reversed(list(enumerate(items)))}
        items.sort(key=lambda item: place[item.path])
    elif hasattr(config, "workerinput"):
        kinds = defaultdict(set)
        for item in items:
            kinds[_file(item)].add("slow" if item.get_closest_marker("slow") else "quick")
        cost = costs.by_cost(kinds)
        items.sort(key=lambda item: -cost[_file(item)])


def _file(item):
    return item.nodeid.split("::")[0]


@pytest.fixture(autouse=True)
def _as_a_new_process():
    """A command that runs in this process sets for good how much is logged and which rights new files have."""
    logging.getLogger("edge").setLevel(logging.NOTSET)
    yield
    os.umask(_UMASK)


@pytest.fixture(scope="module")
def third_kind():
    """A kind of engine beside those of the product: ONNX Runtime."""
    from tests.support import engines

    with engines.third_kind():
        yield


@pytest.fixture
def fake_board():
    """A Jetson, whose GPU and TensorRT are stand-ins."""
    from tests.support import fake_gpu

    with fake_gpu.fake_board():
        yield
