"""What a device keeps, against a recording: an older edge-deploy goes back from a later one, and has to read it all.

A field that is added, renamed or of another kind here would be a state that is damaged to the other.
"""

import json
import re
from pathlib import Path

from edge.device.device import Device
from edge.device.layout import Layout
from edge.device.state import Phase, read_bad, read_counters, read_state
from edge.runtime.build.request import ask, read_request
from edge.runtime.pull.record import PullRecord, Settled, decode_pull_record, write_record
from tests.support.device_root import DeviceRoot
from tests.support.wait import wait_until

RECORDING = Path(__file__).parents[1] / "support/device_state_1.json"
FREE = (
    "releases",
    "rings",
    "sequences",
    "newest",
    "baseline",
    "evidence",
    "streams",
)  # their keys are names, or the service's


def recorded():
    return json.loads(RECORDING.read_text())


def kept_by(root):
    """Have a device take one release, refuse another, and be asked for a third; return what it keeps, by its path."""
    device = root.device
    assert root.push(root.bundle("one")).result == "committed"
    root.script(trial="refuse")
    assert root.push(root.bundle("two", sequence=2)).result == "rolled-back"
    wait_until(lambda: device.state().phase is Phase.IDLE, what="the verdict")
    ask(device, device.releases.current())
    settled = Settled(
        digest="sha256:aa", release="0123456789ab", result="rolled-back", code="trial.frames", problem="no"
    )
    record = PullRecord(
        reference="registry.example/gates:stable-all", result="failed", at="2026-11-25T00:00:00Z", settled=settled
    )
    root.layout.pull_record.parent.mkdir(parents=True)
    write_record(root.layout.pull_record, record)
    names = ("state", "counters", "bad", "build_request", "build_result", "pull_record")
    found = {name: getattr(root.layout, name).read_text() for name in names}
    engine = root.layout.engine(device.releases.engine_key(device.releases.current()))
    found |= {name: (engine / f"{name}.json").read_text() for name in ("build", "golden")}
    return found | {"audit": root.layout.audit.read_text().splitlines()[-1]}


def shape(value, where=""):
    """Return a value with a kind in the place of each text and number; what has names of its own is one kind."""
    if isinstance(value, dict):
        if where in FREE:
            return {"*": sorted({json.dumps(shape(one), sort_keys=True) for one in value.values()})}
        return {key: shape(one, key) for key, one in sorted(value.items())}
    if isinstance(value, list):
        return sorted({json.dumps(shape(one), sort_keys=True) for one in value})
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def test_what_is_kept_now_is_what_the_recorded_edge_deploy_has_kept(tmp_path):
    root = DeviceRoot(tmp_path)
    try:
        now = kept_by(root)
    finally:
        root.stop()
    then = recorded()
    assert set(now) == set(then)
    for name, content in then.items():
        assert shape(json.loads(now[name])) == shape(json.loads(content)), name


def test_what_was_recorded_is_read_now(tmp_path):
    device, then = Device(Layout(tmp_path)), recorded()
    layout, files = device.layout, device.durable.files
    layout.var.mkdir(parents=True)
    for name in ("state", "counters", "bad", "build_request"):
        getattr(layout, name).write_text(then[name])

    state = read_state(layout, files)
    assert (state.phase, state.last.result) == (Phase.IDLE, "rolled-back")
    assert read_counters(layout, files).sequences == {"stable": 2}
    (bad,) = read_bad(layout, files).values()
    assert bad.reason.startswith("trial.frames")
    assert re.fullmatch("[0-9a-f]{12}", read_request(layout.build_request).release)
    assert decode_pull_record(then["pull_record"].encode()).settled.result == "rolled-back"
