"""Which tests run each line of the device's code: those are asked first whether they notice that it is wrong."""

import json
import math
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage
import pytest
from coverage.config import CoverageConfig

_SETTINGS = """[run]
include = {folder}/edge/device/*,{folder}/edge/runtime/agent/*
parallel = true
data_file = {data}/coverage
patch = subprocess
sigterm = true
"""
_SECONDS = "EDGE_MUTATIONS_SECONDS"
_CHILDREN = "COVERAGE_PROCESS_CONFIG"  # what coverage tells the processes that a test starts


@dataclass(frozen=True)
class Reach:
    """Who runs which line: `tests` by path and line, the quickest first; how long each takes, in `seconds`."""

    tests: Mapping[str, Mapping[int, Sequence[str]]]
    seconds: Mapping[str, float]

    def on(self, path: str, line: int, *, longer_s: float = 0.0, at_most_s: float = math.inf) -> list[str]:
        """Return the tests that run a line and take that long."""
        tests = self.tests.get(path, {}).get(line, ())
        return [one for one in tests if longer_s <= self.seconds[one] < at_most_s]


def look(folder: Path, data: Path, tests: Sequence[str]) -> tuple[Reach, str]:
    """Run the tests of a project in `folder` once; return who runs which line, and what pytest said.

    Args:
        data: an empty folder for what is counted.
    """
    settings, seconds = data / "settings", data / "seconds.json"
    settings.write_text(_SETTINGS.format(folder=folder, data=data), encoding="utf-8")
    run = ["-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(folder), _SECONDS: str(seconds)}
    done = subprocess.run(
        [sys.executable, *run, "-p", "tests.mutations.reach", *tests],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    counted = coverage.Coverage(config_file=str(settings))
    counted.combine([str(data)])
    durations = json.loads(seconds.read_text())
    found: dict[str, dict[int, list[str]]] = defaultdict(dict)
    for file in counted.get_data().measured_files():
        for line, contexts in counted.get_data().contexts_by_lineno(file).items():
            names = set(contexts) & durations.keys()
            found[str(Path(file).relative_to(folder))][line] = sorted(names, key=durations.__getitem__)
    return Reach(found, durations), done.stdout


def keep(path: Path, of: str, reach: Reach) -> None:
    """Write down what was learned of the state of the project that is called `of`."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"of": of, "tests": reach.tests, "seconds": reach.seconds}), encoding="utf-8")


def recall(path: Path, of: str) -> Reach | None:
    """Return what was learned of `of`; None: nothing, or of another state."""
    told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if told.get("of") != of:
        return None
    tests = {name: {int(line): tests for line, tests in lines.items()} for name, lines in told["tests"].items()}
    return Reach(tests, told["seconds"])


class _Recorder:
    """Within pytest: counts lines by test, and writes down how long each test takes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if counting := coverage.Coverage.current():
            counting.switch_context(nodeid)
        if told := os.environ.get(_CHILDREN):
            settings = CoverageConfig.deserialize(told)
            settings.context = nodeid
            os.environ[_CHILDREN] = settings.serialize()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps(self._seconds))


def pytest_configure(config: pytest.Config) -> None:
    """Take part in a run that `look` has started."""
    if path := os.environ.get(_SECONDS):
        config.pluginmanager.register(_Recorder(Path(path)))
