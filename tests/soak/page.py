"""The figures of soaks as a page with two parts; each kind of run writes its own and leaves the other one."""

import datetime
import os
import platform
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from edge.version import __version__
from tests.soak.scene import FPS
from tests.soak.soak import Account

PAGE = Path(__file__).parents[2] / "out/soak.md"
PARTS = {False: "## Everything is broken in turn", True: "## Sixteen cameras, one dying every four seconds"}

HEAD = """# The service for long, while everything around it is broken

Written by `make soak` (thirty minutes) and `make soak ARGS="--dying --minutes 11"`; a part is here once its run was
good.

Real parts: `edge-runtime run` in a process of its own, an RTSP server with a password for each camera, mosquitto, a
subscriber that shares no code with the product. Between service and broker stands a record of what the broker has
acknowledged: what one that is killed takes along is no loss of the service. Each picture carries the number of its
camera and of its frame in its pixels, and the model reads them: a message about a picture of another camera, or about a
smeared one, fails the run. So does a number that neither came nor was declared lost, a recovery above 5 s (in the
median of its kind), and what grows: the first third of a run is warm-up; from the second third to the last, memory may
grow by a twentieth (6 MiB at least) in the median, threads and descriptors by two in the median of the samples while
nothing is broken.
"""


def lines_of(account: Account, *, is_dying: bool, beside: str) -> list[str]:
    """Return one part of the page; `beside` says what else ran on the machine."""
    to_cameras = sum(one["reconnects"] for one in account.stats["streams"])
    to_broker = account.stats["published"]["mqtt"]["connections"]
    today = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"
    return [
        PARTS[is_dying],
        "",
        f"edge-deploy {__version__}, {today}. {_machine()} Load average over the run: {account.load:.1f}"
        f"{f'; beside it ran {beside}' if beside else ''}.",
        "",
        f"{account.minutes:g} minutes, {account.cameras} cameras of {FPS} frames a second, {len(account.outages)} "
        f"faults, {to_cameras} reconnections to cameras, {to_broker} connections to the broker. {account.received} "
        f"messages came, {account.declared} were declared lost, {account.duplicates} came twice, {account.taken} went "
        "with brokers that were killed after they had acknowledged them; none else is missing.",
        "",
        "| What happened | How often | Back after (median, slowest), s |",
        "|---|---|---|",
        *_recoveries(account),
        "",
        "| Between two messages of a stream, ms | p50 | p99 | p99.9 | longest |",
        "|---|---|---|---|---|",
        _interval("while another stream's camera was dying", account.others),
        _interval("while nothing was broken", account.calm),
        "",
        "| | second third | last third | |",
        "|---|---|---|---|",
        *(
            f"| {one.name} | {one.before:.1f} | {one.after:.1f} | {'flat' if one.is_flat else 'GROWS'} |"
            for one in account.flat
        ),
        "",
        f"Memory at each tenth of the run, MiB: {', '.join(_tenths(account))}.",
        "",
    ]


def put(path: Path, lines: Sequence[str], *, is_dying: bool) -> None:
    """Write the part into the page; the other part stays as it is."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    parts = {}
    for kind, title in PARTS.items():
        found = re.search(re.escape(title) + r"\n.*?(?=\n## |\Z)", before, re.S)
        parts[kind] = found[0].rstrip("\n") if found else None
    parts[is_dying] = "\n".join(lines).rstrip("\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join([HEAD.rstrip("\n"), *(one for one in parts.values() if one)]) + "\n", encoding="utf-8")


def _recoveries(account: Account) -> list[str]:
    count = Counter(outage.kind for outage in account.outages)
    rows = []
    for kind in sorted(count):
        times = account.recoveries.get(kind)
        told = f"{statistics.median(times):.2f}, {max(times):.2f}" if times else "never gone"
        rows.append(f"| {kind} | {count[kind]} | {told} |")
    return rows


def _interval(name: str, values: list[float]) -> str:
    if len(values) < 2:
        return f"| {name} | | | | |"
    cuts = statistics.quantiles(values, n=1000)
    return f"| {name} | {' | '.join(f'{one * 1e3:.0f}' for one in (cuts[499], cuts[989], cuts[998], max(values)))} |"


def _tenths(account: Account) -> list[str]:
    whole_s = account.samples[-1].at_s
    tenths = []
    for i in range(10):
        part = [one for one in account.samples if whole_s * i / 10 <= one.at_s <= whole_s * (i + 1) / 10]
        tenths.append(f"{statistics.median(one.resident_mib for one in part):.0f}")
    return tenths


def _machine() -> str:
    said = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    names = re.findall(r"^model name\s*: (.*)", said, re.M)
    name = names[0].strip() if names else platform.processor()
    vnni = " with AVX512-VNNI" if re.search(r"^flags.*\bavx512_vnni\b", said, re.M) else ""
    return f"{name}{vnni}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.machine()}."
