"""Who can read and change what on a device, with real uids: the table in docs/push.md is what the kernel says."""

import os
import re
from pathlib import Path

import pytest

from edge.device.device import Device, Kind
from edge.device.facts import this_moment
from edge.device.health import write_health
from edge.device.layout import Layout
from edge.device.software import Installation
from edge.device.state import BadRelease, Counters, Verdict, mark_bad, raise_counters
from edge.runtime.build.request import write_progress
from edge.runtime.pull.record import PullRecord, write_record
from edge.runtime.software.binding import say
from edge.writing import write_whole
from tests.support.device_releases import serving
from tests.support.people import STRANGER, may_read, may_write, needs_root, provisioned_root, umask_of, user_of
from tests.support.values import health

pytestmark = needs_root
PAGE = Path(__file__).parents[3] / "docs/push.md"
OTHERS = "everyone else"
LIKE_OTHERS = (STRANGER, "edge-pull")  # who fetches may do nothing here but speak to the agent


@pytest.fixture(scope="module")
def root(crowd):
    with provisioned_root(crowd) as root:
        device = Device(Layout(root))
        for unit, leave in LEFT_BY.items():
            crowd.call(user_of(unit), lambda unit=unit, leave=leave: (os.umask(umask_of(unit)), leave(device))[0])
        yield root


def fill(device):
    """What pushes leave, written by the device's own code."""
    release = serving(device)
    for kind in Kind:
        said = {"who": "mina", "origin": "10.0.0.7", "what": "push", "result": "ok", "release": release}
        device.audit.write(at=this_moment().at, kind=kind, **said)
    raise_counters(device.layout, device.durable, Counters(sequences={"stable": 7}))
    bad = BadRelease(verdict=Verdict.BAD, reason="no frames", at=this_moment().at)
    mark_bad(device.layout, device.durable, "0" * 12, bad)
    device.store.begin("7" * 64, 100)
    device.durable.put(device.layout.build_request, b"{}")
    device.durable.put(device.layout.build_result, b"{}", mode=0o600)
    write_progress(device.layout.trial_progress, "what it waits for")


def build(device):
    write_whole(device.layout.workshop / "answer.json", b"what was built")
    write_progress(device.layout.build_progress, "how far it is")


def install(device):
    files = {"edge/__init__.py": b"", "edge_deploy-0.1.0.dist-info/METADATA": b""}
    one = Installation(key="5" * 64, beside="/opt/edge-0.1.0")
    device.software.install(one, ((path, (content,)) for path, content in files.items()), program=b"import edge")
    device.software.vouch(one.key)
    say(device, {"0" * 12: "it needs numpy>=3"})


def serve(device):
    (device.layout.root / "var/lib/edge-runtime/outbox.jsonl").write_text("a spooled message")
    write_health(device.layout.health, health())


def fetch(device):
    write_record(device.layout.pull_record, PullRecord(reference="a.b/c:stable-all", result="failed", at="now"))


LEFT_BY = {
    "edge-agent@": fill,
    "edge-build": build,
    "edge-software": install,
    "edge-runtime": serve,
    "edge-pull": fetch,
}
"""What each unit leaves, under its user, groups and umask."""

READS = {
    "edge-agent@": ("health", "pull_record", "trial_progress", "build_progress", "workshop/answer.json"),
    "edge-runtime": ("pull_record", "state", "counters", "device_toml", "current/manifest.json"),
    "edge-build": ("build_request", "counters", "current/manifest.json", "software/said.json"),
    "edge-software": ("current/manifest.json", "counters"),
}
"""What the code of each unit reads of what other users write; the page says who else may."""


def table():
    """Rows of docs/push.md: paths, and what each user may do there."""
    text = PAGE.read_text().partition("## Users and rights")[2].partition("\n## ")[0]
    lines = [re.findall(r"\|([^|]+)", line) for line in text.splitlines() if line.startswith("|")]
    heads = [cell.strip(" `") for cell in lines[0]][1:]
    return {
        path: dict(zip(heads, [cell.strip() for cell in cells[1:]], strict=True))
        for cells in lines[2:]
        for path in re.findall(r"`([^`]+)`", cells[0])
    }


def row_of(path, rows):
    return max((row for row in rows if path == row or path.startswith(f"{row}/")), key=len, default=None)


def measured(paths):
    """What this process may do with each path: `changes` (it, or what has its name), `reads`, or nothing."""
    return ["changes" if may_change(Path(path)) else "reads" if may_read(Path(path)) else "-" for path in paths]


def may_change(path):
    return may_write(path) or may_write(path.parent)


def test_each_user_reads_and_changes_exactly_what_the_page_says(root, crowd):
    rows = table()
    every = sorted(
        path
        for below in ("var/lib", "run", "etc/edge-deploy")
        for folder, _, files in os.walk(root / below)
        for path in (folder, *(os.path.join(folder, name) for name in files))
        if row_of(path.removeprefix(str(root)), rows) is not None
    )
    assert len(every) > 20
    assert {row_of(path.removeprefix(str(root)), rows) for path in every} >= {row for row in rows if "*" not in row}
    for user in sorted(crowd.uids.keys() - {"root"}):
        found = crowd.call(user, lambda: measured(every))
        names = [row_of(path.removeprefix(str(root)), rows) for path in every]
        said = [
            "changes" if name == f"/var/lib/{user}" else rows[name][OTHERS if user in LIKE_OTHERS else user]
            for name in names
        ]
        differs = {path: (is_so, page) for path, is_so, page in zip(every, found, said, strict=True) if is_so != page}
        assert differs == {}, f"{user}: (what is so, what the page says)"


@pytest.mark.parametrize("unit", READS)
def test_each_unit_reads_what_its_code_asks_for(root, crowd, unit):
    layout = Layout(root)
    paths = [getattr(layout, name).joinpath(*rest) for name, *rest in (one.split("/") for one in READS[unit])]

    may = crowd.call(user_of(unit), lambda: [may_read(path) for path in paths])

    assert dict(zip(READS[unit], may, strict=True)) == dict.fromkeys(READS[unit], True)


def test_a_fourth_user_reads_neither_releases_nor_pipelines_nor_what_was_done(root, crowd):
    layout = Layout(root)
    current = Device(layout).releases.current()
    secrets = [layout.release(current) / "manifest.json", layout.state, layout.audit, layout.releases]
    secrets += [layout.var / kind.value for kind in Kind]
    secrets += list(layout.store.glob("*/*"))

    assert crowd.call(STRANGER, lambda: [may_read(path) for path in secrets]) == [False] * len(secrets)


@pytest.mark.parametrize("unit", ["edge-build", "edge-runtime"])
def test_who_builds_or_serves_overwrites_nothing_that_decides_what_serves(root, crowd, unit):
    layout = Layout(root)
    release = layout.release(Device(layout).releases.current())
    (blob, *_), (engine, *_) = layout.store.glob("*/*"), layout.engines.glob("*/model.plan")
    decisive = [layout.counters, layout.state, layout.bad, layout.audit, layout.build_result, layout.build_request]
    decisive += [layout.var / kind.value for kind in Kind]
    decisive += [layout.var, release, release / "manifest.json", blob, blob.parent, layout.engines, engine]

    found = crowd.call(user_of(unit), lambda: [may_change(path) for path in decisive])

    assert dict(zip(map(str, decisive), found, strict=True)) == {str(path): False for path in decisive}


@pytest.mark.parametrize("unit", ["edge-build", "edge-runtime"])
def test_who_builds_or_serves_cannot_move_the_switch(root, crowd, unit):
    def move():
        Device(Layout(root)).point(None)

    with pytest.raises(AssertionError, match=r"device\.disk\.permission|Permission denied"):
        crowd.call(user_of(unit), move)
    assert Layout(root).current.is_symlink()


def test_nobody_but_edge_software_changes_what_runs(root, crowd):
    layout = Layout(root)
    (name,) = Device(layout).software.names()
    home = layout.software / name
    files = ("edge-runtime", "installation.json", "lib", "lib/edge/__init__.py")
    paths = [layout.software, layout.software / "vouched", home, *(home / file for file in files)]

    may = {
        user: crowd.call(user, lambda: [may_change(path) for path in paths]) for user in crowd.uids if user != "root"
    }
    reads = {user: crowd.call(user, lambda: [may_read(path) for path in paths]) for user in crowd.uids}

    assert may == {user: [user == "edge-software"] * len(paths) for user in may}
    assert reads == {user: [True] * len(paths) for user in reads}
