"""docs/subscribers.md, word for word: the programs, `mosquitto_sub`, and the names in Telegraf's file."""

import contextlib
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from edge.config.targets import read_toml
from edge.publish.messages import GapMessage
from tests.support.wait import wait_until
from tests.support.wire_messages import crossing, detections

pytestmark = pytest.mark.slow_but(
    "test_the_ten_lines_show_detections_crossings_and_losses", reason="further brokers, cuts and disks"
)

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/subscribers.md").read_text(encoding="utf-8")

# Runs a program in which nothing but Python, msgspec, paho and edge can be imported.
ALONE = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ("edge", "msgspec", "paho"):
            raise ImportError(f"a subscriber has no {name}")
sys.meta_path.insert(0, Nothing())
exec(compile(sys.stdin.read(), "subscribers.md", "exec"))
"""


def block(kind, heading):
    (section,) = re.findall(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return found


def python_block(heading, broker):
    program = block("python", heading)
    here = program.replace('"broker.local"', f'"127.0.0.1", port={broker.port}, tls=False')
    assert here != program
    return here


@contextlib.contextmanager
def running(words, text="", cwd=ROOT):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        words,
        cwd=cwd,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            process.stdin.write(text)
            process.stdin.close()
            yield process
        finally:
            process.kill()


def wait_for_subscription(broker):
    wait_until(lambda: "Sending SUBACK" in broker.log(), what="the subscription")


def test_the_ten_lines_show_detections_crossings_and_losses(broker, make_publisher):
    program = python_block("In Python", broker)
    assert program.count("\n") <= 12
    with running([sys.executable, "-c", ALONE], program) as process:
        wait_for_subscription(broker)
        publisher = make_publisher(broker.port)
        lost = GapMessage(
            device="gate-01", stream="east", epoch=41, from_=2, to=3, count=2, reason="oversize", exact=True
        )
        for message in (detections(1), lost, detections(4, count=0), crossing(1)):
            publisher.publish(message)
        lines = {process.stdout.readline() for _ in range(4)}

    assert lines == {
        "gate-01 east ['car 0.81']\n",
        "lost: east 2 to 3 oversize\n",
        "gate-01 east []\n",
        "car 57 crossed gate forward\n",
    }, process.stderr.read()


def test_mosquitto_sub_shows_events(broker, make_publisher):
    words = shlex.split(block("sh", "In a shell"))
    words[words.index("broker.local")] = "127.0.0.1"
    with running([*words, "-p", str(broker.port)]) as process:
        wait_for_subscription(broker)
        make_publisher(broker.port).publish(crossing(1))
        topic, payload = process.stdout.readline().split(" ", 1)

    assert topic == "edge/v1/north/gate-01/streams/east/events"
    assert payload.encode() == crossing(1).encode() + b"\n"


def test_events_lie_in_a_database_once_each_whatever_comes_twice(broker, make_publisher, tmp_path):
    program = python_block("Into a database", broker)
    for newest in (3, 4):  # the second time all come again to a program that knows nothing of the first
        with running([sys.executable, "-c", ALONE], program, cwd=tmp_path) as process:
            connections = newest - 2
            wait_until(lambda n=connections: broker.log().count("Sending SUBACK") == n, what="it")
            publisher = make_publisher(broker.port)
            for seq in range(1, newest + 1):
                publisher.publish(crossing(seq))
            wait_until(lambda n=newest: rows(tmp_path) == n, what=f"{newest} rows")
            publisher.close()
            process.kill()
            assert "Traceback" not in process.stderr.read()

    with contextlib.closing(sqlite3.connect(tmp_path / "events.db")) as database:
        found = database.execute("SELECT device, stream, seq, kind, label, track_id, place FROM events ORDER BY seq")
        assert found.fetchall() == [("gate-01", "east", seq, "cross", "car", 57, "gate") for seq in (1, 2, 3, 4)]


def rows(folder):
    if not (folder / "events.db").exists():
        return 0
    with contextlib.closing(sqlite3.connect(folder / "events.db")) as database:
        try:
            return database.execute("SELECT count(*) FROM events").fetchone()[0]
        except sqlite3.OperationalError:  # not made yet, or being written
            return 0


def test_telegraf_is_asked_for_what_is_in_the_messages(tmp_path):
    path = tmp_path / "telegraf.toml"
    path.write_text(block("toml", "Into InfluxDB, by Telegraf"))
    inputs = read_toml(path).content["inputs"]["mqtt_consumer"]
    assert len(inputs) == 2
    for one, message in zip(inputs, (detections(1), crossing(1)), strict=True):
        topics = [f"edge/v1/north/+/{message.topic.replace('/east/', '/+/')}"]
        if hasattr(message, "replayed"):
            late = msgspec.structs.replace(message, replayed=True)
            topics.append(f"edge/v1/north/+/{late.topic.replace('/east/', '/+/')}")
        assert one["topics"] == topics
        (wanted,) = one["json_v2"]
        keys = msgspec.json.decode(message.encode())
        paths = [wanted["timestamp_path"], *(found["path"] for found in (*wanted["tag"], *wanted["field"]))]
        assert {path.removesuffix(".#") for path in paths} <= set(keys)
        assert all(keys[path.removesuffix(".#")] is not None for path in paths)
