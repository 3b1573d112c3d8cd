"""What a power cut interrupts in the crash enumeration: steps one by one, or the real agent and the real pull."""

from collections.abc import Callable
from pathlib import Path

from edge.device.device import Device, collect
from edge.device.recovery import recover
from edge.device.state import Counters, Phase, raise_counters, seal
from edge.device.switch import commit, refuse, roll_back, switch_to
from tests.support.agent_pull import FOLDER, AgentPull, Ring
from tests.support.agent_push import AgentPush, SignedRelease
from tests.support.crash import Report, Scenario, nobody
from tests.support.cut_files import CutFiles, Tree
from tests.support.pushes import Release, device_over, moment, prepare, push, switch

MODEL = b"the model of both"
OLD = Release("a" * 12, 1, {"model.onnx": MODEL, "model.calib.json": b"old table"})
NEW = Release("b" * 12, 2, {"model.onnx": MODEL, "model.calib.json": b"new table"})
OTHER = Release("c" * 12, 3, {"model.onnx": b"another model"})
BACK = Release("d" * 12, 1, {"model.onnx": MODEL, "model.calib.json": b"old table"}, spends=2)  # after NEW

STATED = Counters(rings={"stable-canary": (2, "the second statement")})

BARE: Tree = (("/var", None), ("/var/lib", None), ("/var/lib/edge-deploy", None))


def after(*steps: Callable[[Device], object], start: Tree = BARE) -> Tree:
    """Return the tree that the steps leave."""
    files = CutFiles(start)
    for step in steps:
        step(device_over(files))
    return files.tree()


def pushed(release: Release) -> Callable[[Device], None]:
    return lambda device: push(device, release, now=moment("boot-0"))


def on_trial(release: Release) -> Callable[[Device], None]:
    def step(device: Device) -> None:
        prepare(device, release)
        switch(device, release, now=moment("boot-0"))

    return step


def damaged(tree: Tree, path: str) -> Tree:
    disk = dict(tree)
    content = disk[path]
    disk[path] = content[:-2] + bytes([content[-2] ^ 1]) + content[-1:]
    return tuple(sorted(disk.items()))


def _cut_twice(device: Device) -> None:
    on_trial(NEW)(device)
    recover(device, moment=moment("boot-0b"))


def _refused(device: Device) -> None:
    on_trial(NEW)(device)
    refuse(device, "no frames")


def _armed(device: Device) -> None:
    on_trial(NEW)(device)
    device.point(OLD.name)


def _littered(device: Device) -> None:
    push(device, OLD, now=moment("boot-0"))
    prepare(device, OTHER)
    push(device, NEW, now=moment("boot-0"))
    prepare(device, OTHER)  # staged, never switched to
    files, layout = device.durable.files, device.layout
    files.write(layout.incoming / ("d" * 64 + ".part"), b"stale")
    files.write(layout.incoming / ("e" * 64 + ".damaged"), b"flipped")
    files.write(layout.var / ".state.json.tmp", b"half")
    files.make_dir(layout.engines / ".0123456789abcdef.tmp")
    files.write(layout.engines / ".0123456789abcdef.tmp/model.plan", b"half")


def pushing(release: Release, *, is_healthy: bool) -> Callable[..., None]:
    def step(device: Device, report: Report = nobody) -> None:
        push(device, release, now=moment("boot-1"), is_healthy=is_healthy, report=report)

    return step


def _recover(device: Device, report: Report) -> None:
    recover(device, moment=moment("boot-1"))
    report()


def asked_back(device: Device, report: Report = nobody) -> None:
    roll_back(device, "asked for", moment=moment("boot-1"), by_person=True)
    report()


def _failed_back(device: Device, report: Report) -> None:
    roll_back(device, "unit-failed", moment=moment("boot-1"))
    report()


def _stated_once(device: Device) -> None:
    raise_counters(device.layout, device.durable, Counters(rings={"stable-canary": (1, "the first statement")}))


def _stated(device: Device, report: Report) -> None:
    raise_counters(device.layout, device.durable, STATED)
    report()


def _trusted(device: Device, report: Report) -> None:
    device.durable.put(device.layout.trust, seal({"chain": "the second"}))
    report()


def collected(device: Device, report: Report = nobody) -> None:
    collect(device, now_s=8 * 86400.0)


def _push_or_end(device: Device, report: Report) -> None:
    """What a push that is repeated finds: nothing begun, or a trial that nobody judges, which it takes up."""
    if device.state().phase is Phase.TRIAL:
        switch_to(device, device.state().target or "")
        commit(device, moment=moment("boot-1"))
        report()
    else:
        pushing(NEW, is_healthy=True)(device, report)


def _way_back_or_end(device: Device, report: Report) -> None:
    """What is started again after the way back was killed."""
    if device.releases.current() != OLD.name:  # else the switch has moved, and who asks again would go forth
        asked_back(device, report)


SCENARIO_STARTS: dict[str, Tree] = {
    "old": after(pushed(OLD)),
    "both": after(pushed(OLD), pushed(NEW)),
    "littered": after(_littered),
}


def scenarios() -> list[Scenario]:
    old, both = SCENARIO_STARTS["old"], SCENARIO_STARTS["both"]
    trial = after(pushed(OLD), on_trial(NEW))
    state = "/var/lib/edge-deploy/state.json"
    common = {"known": (OLD, NEW), "kept": (OLD,), "proven": (OLD.name,), "pushed_again": NEW}
    proven = {**common, "kept": (OLD, NEW), "proven": (OLD.name, NEW.name)}
    failing = {**common, "marked": NEW}
    first = {**common, "kept": (), "proven": ()}
    every = (OLD, NEW, OTHER)
    three = {**proven, "known": every, "kept": (OLD, OTHER), "pushed_again": OTHER}
    stated_before = after(pushed(OLD), pushed(NEW), _stated_once)
    back = {**proven, "known": (OLD, NEW, BACK), "kept": (NEW,), "pushed_again": BACK}
    return [
        Scenario("push, healthy", old, pushing(NEW, is_healthy=True), ends_on=NEW.name, **common),
        Scenario("push, unhealthy", old, pushing(NEW, is_healthy=False), ends_on=OLD.name, **failing),
        Scenario("first push, healthy", BARE, pushing(NEW, is_healthy=True), ends_on=NEW.name, **first),
        Scenario("first push, unhealthy", BARE, pushing(NEW, is_healthy=False), ends_on=None, marked=NEW, **first),
        Scenario("rollback, asked for", both, asked_back, ends_on=OLD.name, **proven),
        Scenario("rollback, service failed", both, _failed_back, ends_on=OLD.name, marked=NEW, **proven),
        Scenario("rollback, killed in trial", trial, _failed_back, ends_on=OLD.name, **failing),
        Scenario("recovery, cut in trial", trial, _recover, ends_on=NEW.name, **common),
        Scenario("recovery, cut twice", after(pushed(OLD), _cut_twice), _recover, ends_on=OLD.name, **failing),
        Scenario("recovery, refused", after(pushed(OLD), _refused), _recover, ends_on=OLD.name, **failing),
        Scenario("recovery, never switched", after(pushed(OLD), _armed), _recover, ends_on=OLD.name, **common),
        Scenario("recovery, state lost", damaged(both, state), _recover, ends_on=NEW.name, is_sound=False, **proven),
        Scenario("recovery, current lost", _without_plan(both), _recover, ends_on=OLD.name, is_sound=False, **common),
        Scenario("downgrade, used once", both, pushing(BACK, is_healthy=True), ends_on=BACK.name, **back),
        Scenario("who counts, a later version", both, _trusted, ends_on=NEW.name, **proven),
        Scenario("statement of a ring", stated_before, _stated, ends_on=NEW.name, **proven),
        Scenario(
            "push, killed at each step before",
            old,
            _push_or_end,
            ends_on=NEW.name,
            killed=pushing(NEW, is_healthy=True),
            **common,
        ),
        Scenario(
            "push, after garbage collection was killed at each step",
            SCENARIO_STARTS["littered"],
            pushing(OTHER, is_healthy=True),
            ends_on=OTHER.name,
            killed=collected,
            **{**proven, "known": every, "kept": (NEW,), "pushed_again": OTHER},
        ),
        Scenario(
            "rollback, killed at each step before",
            both,
            _way_back_or_end,
            ends_on=OLD.name,
            killed=asked_back,
            **proven,
        ),
        Scenario(
            "recovery, newest valid release", _without_way_back(), _recover, ends_on=OTHER.name, is_sound=False, **three
        ),
        Scenario(
            "recovery, killed at each step before",
            _without_way_back(),
            _recover,
            ends_on=OTHER.name,
            is_sound=False,
            killed=_recover,
            **three,
        ),
        Scenario(
            "garbage collection", SCENARIO_STARTS["littered"], collected, ends_on=NEW.name, **{**proven, "known": every}
        ),
    ]


def _without_plan(tree: Tree) -> Tree:
    gone = f"/var/lib/edge-deploy/engines/{NEW.key}"
    return tuple((path, what) for path, what in tree if not Path(path).is_relative_to(gone))


def _without_way_back() -> Tree:
    """Return a device whose current release is damaged, as is its way back, and that keeps two more that are whole."""
    tree = after(pushed(OLD), pushed(NEW))
    return _without_plan(damaged(after(_kept, start=tree), "/var/lib/edge-deploy/state.json"))


def _kept(device: Device) -> None:
    """A push that came as far as its engine, as the agent does it: counted once it is staged."""
    prepare(device, OTHER)
    seen = Counters(sequences={"main": OTHER.sequence}, newest_created_at=OTHER.created_at)
    raise_counters(device.layout, device.durable, seen)


AGENT_SCENARIOS = ("agent: push, healthy", "agent: push, unhealthy", "agent: first push, healthy", "agent: rollback")
AGENT_SCENARIOS += ("agent: downgrade, used once", "agent: push, killed at each step before")
PULL_SCENARIOS = ("agent: look, with nothing to bring", "agent: pull, healthy", "agent: pull, unhealthy")
PULL_SCENARIOS += ("agent: first pull, healthy", "agent: pull, killed at each step before")
PULL_SCENARIOS += ("agent: look, at what serves signed again",)


def agent_scenarios(directory: Path) -> list[Scenario]:
    made = AgentPush(directory)
    old, new, back = made.old, made.new, made.back

    def pushes(release: SignedRelease, **how: bool) -> Callable[..., None]:
        return lambda device, report=nobody: made.push(device, report, release, **how)

    serves_old = after(pushes(old))
    serves_new = after(pushes(new), start=serves_old)
    common = {"known": (old, new), "kept": (old,), "proven": (old.name,), "pushed_again": new}
    common |= {"retold": ("audit.jsonl", "audit-requests.jsonl")}
    first = {**common, "kept": (), "proven": ()}
    both = {**common, "kept": (old, new), "proven": (old.name, new.name)}
    known_back = {**both, "known": (old, new, back), "kept": (new,), "pushed_again": back}
    healthy, unhealthy, on_bare, rollback, downgrade, killed = AGENT_SCENARIOS
    return [
        Scenario(healthy, serves_old, pushes(new), ends_on=new.name, **common),
        Scenario(unhealthy, serves_old, pushes(new, is_healthy=False), ends_on=old.name, marked=new, **common),
        Scenario(on_bare, BARE, pushes(new), ends_on=new.name, **first),
        Scenario(downgrade, serves_new, pushes(back), ends_on=back.name, **known_back),
        Scenario(rollback, serves_new, made.roll_back, ends_on=old.name, **both),
        Scenario(
            killed,
            serves_old,
            lambda device, report: made.push_or_end(device, report, new),
            ends_on=new.name,
            killed=lambda device, report: made.try_push(device, new, report),
            **common,
        ),
    ]


def pull_scenarios(directory: Path) -> list[Scenario]:
    push = AgentPush(directory)
    old, new = push.old, push.new
    bare = tuple(sorted({**dict(BARE), FOLDER: None}.items()))
    serves_old = after(lambda device: push.push(device, nobody, old), start=bare)
    ring = Ring(push)
    good, poor, same = AgentPull(push, ring), AgentPull(push, ring, is_healthy=False), AgentPull(push, ring, brings=old)
    common = {"known": (old, new), "kept": (old,), "proven": (old.name,), "pushed_again": new, "pulls": good}
    common |= {"retold": ("audit.jsonl", "audit-requests.jsonl")}
    anew = AgentPull(push, ring, brings=push.again)
    signed = {**common, "known": (push.again, old), "kept": (), "pushed_again": push.again, "pulls": anew}
    look, healthy, unhealthy, on_bare, killed, again = PULL_SCENARIOS
    return [
        Scenario(look, serves_old, same.pull, ends_on=old.name, **{**common, "pushed_again": old, "pulls": same}),
        Scenario(again, serves_old, anew.pull, ends_on=old.name, **signed),
        Scenario(healthy, serves_old, good.pull, ends_on=new.name, **common),
        Scenario(unhealthy, serves_old, poor.pull, ends_on=old.name, marked=new, **{**common, "pulls": poor}),
        Scenario(on_bare, bare, good.pull, ends_on=new.name, **{**common, "kept": (), "proven": ()}),
        Scenario(
            killed,
            serves_old,
            good.pull_or_end,
            ends_on=new.name,
            killed=lambda device, report: good.try_pull(device, report),
            **common,
        ),
    ]
