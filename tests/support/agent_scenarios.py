"""What a power cut interrupts in the crash enumeration, done by the real agent: its order of steps and no other."""

from collections.abc import Callable
from pathlib import Path

from tests.support.agent_pull import FOLDER, AgentPull, Ring
from tests.support.agent_push import AgentPush, SignedRelease
from tests.support.crash import Scenario, nobody
from tests.support.scenarios import BARE, after

AGENT_SCENARIOS = ("agent: push, healthy", "agent: push, unhealthy", "agent: first push, healthy", "agent: rollback")
AGENT_SCENARIOS += ("agent: downgrade, used once", "agent: push, killed at each step before")
PULL_SCENARIOS = ("agent: look, with nothing to bring", "agent: pull, healthy", "agent: pull, unhealthy")
PULL_SCENARIOS += ("agent: first pull, healthy", "agent: pull, killed at each step before")


def agent_scenarios(directory: Path) -> list[Scenario]:
    """Return `AGENT_SCENARIOS`; the real files of the device are in `directory`."""
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
    """Return `PULL_SCENARIOS`; the real files of the device are in `directory`."""
    push = AgentPush(directory)
    old, new = push.old, push.new
    bare = tuple(sorted({**dict(BARE), FOLDER: None}.items()))
    serves_old = after(lambda device: push.push(device, nobody, old), start=bare)
    ring = Ring(push)
    good, poor, same = AgentPull(push, ring), AgentPull(push, ring, is_healthy=False), AgentPull(push, ring, brings=old)
    common = {"known": (old, new), "kept": (old,), "proven": (old.name,), "pushed_again": new, "pulls": good}
    common |= {"retold": ("audit.jsonl", "audit-requests.jsonl")}
    look, healthy, unhealthy, on_bare, killed = PULL_SCENARIOS
    return [
        Scenario(look, serves_old, same.pull, ends_on=old.name, **{**common, "pushed_again": old, "pulls": same}),
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
