"""The figures of a soak as a page."""

import datetime
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from edge.version import __version__
from tests.bench.page import machine, tables
from tests.soak.scene import FPS
from tests.soak.soak import Account

PAGE = Path(__file__).parents[2] / "out/soak.md"

HEAD = """# The service for long, while everything around it is broken

Written by `make soak` once a run was good. Real parts: `edge-runtime run` in a process of its own, an RTSP server with
a password for each camera, mosquitto, a subscriber that shares no code with the product. Between service and broker
stands a record of what the broker has acknowledged: what one that is killed takes along is no loss of the service. Each
picture carries the number of its camera and of its frame in its pixels, and the model reads them: a message about a
picture of another camera, or about a smeared one, fails the run. So does a number that neither came nor was declared
lost, a recovery above 5 s (in the median of its kind), and what grows: the first third of a run is warm-up; from the
second third to the last, memory may grow by a twentieth (6 MiB at least) in the median, threads and descriptors by two
in the median of the samples while nothing is broken.
"""


def page_of(account: Account) -> str:
    to_cameras = sum(one["reconnects"] for one in account.stats["streams"])
    to_broker = account.stats["published"]["mqtt"]["connections"]
    today = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"
    figures = {
        "What happened, and after which time it was back": list(_recoveries(account)),
        "Between two messages of a stream, ms": [
            _interval("while another stream's camera was dying", account.others),
            _interval("while nothing was broken", account.calm),
        ],
        "What grows": [
            {"": one.name, "second third": one.before, "last third": one.after, "flat": one.is_flat}
            for one in account.flat
        ],
        "Memory at each tenth of the run, MiB": [dict(enumerate(_tenths(account), start=1))],
    }
    return "\n".join(
        [
            HEAD,
            f"edge-deploy {__version__}, {today}. {machine()} Load average over the run: {account.load:.1f}.",
            "",
            f"{account.minutes:g} minutes, {account.cameras} cameras of {FPS} frames a second, {len(account.outages)}",
            f"faults, {to_cameras} reconnections to cameras, {to_broker} connections to the broker. {account.received}",
            f"messages came, {account.declared} were declared lost, {account.duplicates} came twice, {account.taken}",
            "went with brokers that were killed after they had acknowledged them; none else is missing.",
            *tables(figures),
            "",
        ]
    )


def _recoveries(account: Account) -> Iterator[dict]:
    count = Counter(outage.kind for outage in account.outages)
    for kind in sorted(count):
        times = account.recoveries.get(kind)
        told = (statistics.median(times), max(times)) if times else ("never gone", None)
        yield {"what": kind, "how often": count[kind], "median s": told[0], "slowest s": told[1]}


def _interval(name: str, values: Sequence[float]) -> dict:
    cuts = statistics.quantiles(values, n=1000) if len(values) > 1 else [0.0] * 999
    told = {"p50": cuts[499], "p99": cuts[989], "p99.9": cuts[998], "longest": max(values, default=0.0)}
    return {"": name, **{what: one * 1e3 for what, one in told.items()}}


def _tenths(account: Account) -> Iterator[float]:
    whole_s = account.samples[-1].at_s
    for i in range(10):
        part = [one for one in account.samples if whole_s * i / 10 <= one.at_s <= whole_s * (i + 1) / 10]
        yield statistics.median(one.resident_mib for one in part)
