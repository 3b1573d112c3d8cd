"""Every tree that a power cut can leave, and what has to hold in it (the invariants I0 to I7).

    I0  before any recovery `current` names a whole release with its engine, or nothing on a device that had none
    I1  recovery ends on such a release, and says whether it is proven
    I2  a repeated push converges, and garbage collection leaves nothing temporary
    I3  a cut inside recovery is itself recovered from, and a repeated push converges then, too
    I4  a release is never current while its sequence is not counted
    I5  a verdict that was reported survives
    I6  an unproven release is never current without a trial record
    I7  what a pull remembers is whole and so, and the next pull ends on the release, or leaves alone what was left

The judge reads the tree itself; it uses nothing of `edge.device` but the seal of the state.
"""

import base64
import contextlib
import json
import posixpath
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from edge.device.device import Device, collect
from edge.device.recovery import recover
from edge.device.state import open_sealed
from edge.errors import DeployError
from tests.support.cut_files import CutFiles, Tree
from tests.support.pushes import Release, device_over, moment, push, sha256_of

Verdict = tuple[object, ...]
VAR = "/var/lib/edge-deploy"
Report = Callable[[], None]
Found = dict[tuple[Tree, Verdict | None], tuple[Tree, Verdict | None]]  # by what is judged, the first of its kind
_SPARED = ContextVar("_SPARED", default=False)


class Pulling(Protocol):
    """Says what is wrong with a pull after a cut."""

    def wrong_on(self, disk: dict) -> Iterator[str]: ...

    def pulled_again(self, files: CutFiles) -> Iterator[str]: ...


@dataclass(frozen=True)
class Scenario:
    """What is interrupted: `action` on a disk that holds `start`.

    `kept` have to be whole all the time; `proven` may be current without a trial; `is_sound` is false where the start
    itself breaks I0, because a disk was damaged; `ends_on` is current after the action, if nothing interrupts it.
    `marked` is the release that failed: a device that has left it for another one remembers that.
    `killed`: what went before on the same running machine, and was killed at each of its steps in turn.
    `retold`: the names of files that nothing reads but people; states that differ in these alone are judged once.
    `pulls`: by whom the release came, if it was no push.
    """

    name: str
    start: Tree
    action: Callable[[Device, Report], None]
    known: tuple[Release, ...]
    kept: tuple[Release, ...]
    proven: tuple[str, ...]
    ends_on: str | None
    pushed_again: Release
    is_sound: bool = True
    marked: Release | None = None
    killed: Callable[[Device, Report], None] | None = None
    retold: tuple[str, ...] = ()
    pulls: Pulling | None = None


def nobody() -> None:
    """Hear a report."""


class Killed(BaseException):
    """A process ends here: no handler of an error has a part in it."""


@dataclass(frozen=True)
class Count:
    steps: int
    syncs: int
    states: int
    second_states: int
    violations: list[str]


def distinct_states(scenario: Scenario, *, skips: frozenset[int] | None = frozenset()) -> tuple[dict, CutFiles]:
    """Return every (tree, what was reported by then) that a cut in the action can leave, and the files after it."""
    found: Found = {}
    files = CutFiles(scenario.start)
    files.skips = skips
    if scenario.killed is None:
        _look_at_cuts(scenario, files, found)
        return dict.fromkeys(found.values()), files
    steps = 0
    for at in range(1, _steps_of(scenario) + 1):
        files = CutFiles(scenario.start, on_step=_killer(at))
        with contextlib.suppress(Killed):
            scenario.killed(device_over(files), lambda: None)
        _look_at_cuts(scenario, files, found)
        steps += files.steps
    files.steps = steps
    return dict.fromkeys(found.values()), files


def _look_at_cuts(scenario: Scenario, files: CutFiles, found: Found) -> None:
    reported: list[Verdict] = []

    def look(files: CutFiles) -> None:
        verdict = reported[-1] if reported else None
        for tree in files.trees_after_cut():
            found.setdefault((_judged(scenario, tree), verdict), (tree, verdict))

    files.on_step = look
    scenario.action(device_over(files), lambda: reported.append(verdict_of(dict(files.tree()))))
    look(files)
    files.on_step = None


def _judged(scenario: Scenario, tree: Tree) -> Tree:
    if not scenario.retold:
        return tree
    return tuple(one for one in tree if posixpath.basename(one[0]) not in scenario.retold)


def _steps_of(scenario: Scenario) -> int:
    files = CutFiles(scenario.start)
    assert scenario.killed is not None
    scenario.killed(device_over(files), lambda: None)
    return files.steps


@contextlib.contextmanager
def spared() -> Iterator[None]:
    """Do what a process does that is not the one that is killed."""
    before = _SPARED.set(True)
    try:
        yield
    finally:
        _SPARED.reset(before)


def _killer(at: int) -> Callable[[CutFiles], None]:
    def kill(files: CutFiles) -> None:
        if files.steps >= at and not _SPARED.get():  # also in a handler on its way out: a killed process runs none
            raise Killed

    return kill


@dataclass
class Outcome:
    violations: list[str]
    second_trees: dict[Tree, None]


class Judge:
    """Judges the trees of one scenario; what it has judged it remembers, in `memory` if that is shared.

    With `converges` a push is repeated after each recovery. With `second` each recovery is cut again.
    """

    def __init__(
        self, scenario: Scenario, *, converges: bool = True, second: bool = False, memory: dict | None = None
    ) -> None:
        self.scenario = scenario
        self._converges = converges
        self._second = second
        self._memory: dict[object, Outcome] = {} if memory is None else memory
        self._kind = (
            scenario.known,
            scenario.kept,
            scenario.proven,
            scenario.is_sound,
            converges,
            second,
            scenario.pulls,
        )
        begun = dict(scenario.start)
        self._had_none = current_of(begun) is None
        self._leaves = scenario.marked if scenario.marked and scenario.marked.name == current_of(begun) else None
        self.second_states: set[Tree] = set()

    def violations(self, tree: Tree, reported: Verdict | None) -> Iterator[str]:
        """Yield what does not hold in a tree that a cut has left."""
        yield from self._raw(tree)
        if reported is not None and verdict_of(dict(tree)) != reported:
            yield f"I5: {reported} was reported, found {verdict_of(dict(tree))}"
        first = self._outcome(tree, "boot-2", second=self._second)
        yield from first.violations
        for again in first.second_trees:
            self.second_states.add(again)
            if again != tree:
                yield from (f"I3: {one}" for one in self._raw(again))
                yield from (f"I3: {one}" for one in self._outcome(again, "boot-3", second=False).violations)

    def _outcome(self, tree: Tree, boot: str, *, second: bool) -> Outcome:
        key = (tree, boot, second, self._kind, self._had_none, self._leaves)
        if key not in self._memory:
            trees: dict[Tree, None] = {}
            files = CutFiles(tree)
            if second:
                files.on_step = lambda files: trees.update(dict.fromkeys(files.trees_after_cut()))
            found = list(self._recovered(files, boot))
            if second:
                trees.update(dict.fromkeys(files.trees_after_cut()))
                files.on_step = None
            if self._converges and not found:
                found += self._pulled_again(files.tree())
                found += self._pushed_again(files, boot)
            self._memory[key] = Outcome(found, trees)
        return self._memory[key]

    def _raw(self, tree: Tree) -> Iterator[str]:
        disk = dict(tree)
        current = current_of(disk)
        if self.scenario.is_sound:
            if not (current is None and self._had_none) and not self._is_whole(disk, current):
                yield f"I0: current is {current}, which is not whole"
            if not is_sealed(disk, "state.json"):
                yield "I0: state.json is damaged"
        if not is_sealed(disk, "counters.json"):
            yield "I4: counters.json is damaged"
        yield from self._halves(disk)
        for release in self.scenario.kept:
            if not is_whole(disk, release):
                yield f"I0: {release.name} has to be kept and is not whole"
        sequence = {release.name: release.counted for release in self.scenario.known}.get(current or "", 0)
        if counted(disk) < sequence:
            yield f"I4: {current} is current, counted is {counted(disk)}"
        if self.scenario.pulls is not None:
            yield from self.scenario.pulls.wrong_on(disk)
        if self.scenario.is_sound and not self._has_record(disk, current):
            yield f"I6: {current} is current without being proven or on trial"

    def _halves(self, disk: dict) -> Iterator[str]:
        for path in _present(disk) if self.scenario.is_sound else ():
            if not any(is_whole_at(disk, path, release) for release in self.scenario.known):
                yield f"I0: {path} has its name and is not whole"

    def _has_record(self, disk: dict, current: str | None) -> bool:
        state = sealed(disk, "state.json")
        committed = (state.get("last") or {}).get("result") == "committed" and state["last"].get("release") == current
        on_trial = state.get("phase") == "trial" and state.get("target") == current
        return current is None or current in self.scenario.proven or committed or on_trial

    def _recovered(self, files: CutFiles, boot: str) -> Iterator[str]:
        try:
            found = recover(device_over(files), moment=moment(boot))
        except (DeployError, OSError) as error:
            yield f"I1: recovery failed: {error!r}"
            return
        disk = dict(files.tree())
        current, state = current_of(disk), sealed(disk, "state.json")
        if found.problem is not None:
            yield f"I1: recovery had a problem: {found.problem}"
        if found.release != current:
            yield f"I1: recovery says {found.release}, current is {current}"
        if self._leaves and current != self._leaves.name and self._leaves.name not in bad(disk):
            yield f"I5: {self._leaves.name} was left and is not marked"
        if current is None and not self._had_none:
            yield "I1: nothing is current after recovery"
        if current is not None and not self._is_whole(disk, current):
            yield f"I1: {current} is current after recovery and not whole"
        if not self._has_record(disk, current):
            yield f"I6: {current} is current after recovery without being proven or on trial"
        if state.get("phase") not in (None, "idle", "trial") or (state.get("phase") == "trial") != found.is_on_trial:
            yield f"I1: recovery ended in {state.get('phase')}"

    def _pulled_again(self, recovered: Tree) -> Iterator[str]:
        if self.scenario.pulls is not None:
            yield from self.scenario.pulls.pulled_again(CutFiles(recovered))

    def _pushed_again(self, files: CutFiles, boot: str) -> Iterator[str]:
        release = self.scenario.pushed_again
        device = device_over(files)
        try:
            push(device, release, now=moment(boot))
            collect(device, now_s=8 * 86400.0)
        except (DeployError, OSError) as error:
            yield f"I2: the repeated push failed: {error!r}"
            return
        disk = dict(files.tree())
        if current_of(disk) != release.name or not is_whole(disk, release):
            yield f"I2: after the repeated push {current_of(disk)} is current"
        if sealed(disk, "state.json").get("phase") != "idle" or counted(disk) < release.sequence:
            yield "I2: after the repeated push the state is not idle, or the sequence is not counted"
        rest = [path for path in disk if path.startswith(VAR) and is_temporary(path)]
        if rest:
            yield f"I2: garbage collection left {rest}"

    def _is_whole(self, disk: dict, name: str | None) -> bool:
        return any(release.name == name and is_whole(disk, release) for release in self.scenario.known)


def is_temporary(path: str) -> bool:
    """Return whether nothing of that name may be left behind."""
    return path.endswith((".tmp", ".part", ".damaged")) or "/incoming/" in path


def current_of(disk: dict) -> str | None:
    target = disk.get(f"{VAR}/current")
    return None if target is None else posixpath.basename(target)


def is_whole(disk: dict, release: Release) -> bool:
    """Return whether everything of a release is there, byte for byte, with its engine."""
    engine = f"{VAR}/engines/{release.key}"
    attached = _pointed_to(disk, f"{VAR}/releases/{release.name}/engine")
    return (
        attached == engine
        and is_whole_at(disk, engine, release)
        and is_whole_at(disk, f"{VAR}/releases/{release.name}", release)
    )


def is_whole_at(disk: dict, path: str, release: Release) -> bool:
    """Return whether `path` is the release's folder or its engine's, and all that belongs in there is there."""
    if posixpath.basename(path) == release.key:
        return disk.get(f"{path}/model.plan") == release.plan
    texts = {"manifest.json": release.manifest, "manifest.json.sig": release.signature}
    again = json.loads(disk.get(f"{path}/again.json", b"{}"))
    found = {name: base64.b64decode(again[name]) if again else disk.get(f"{path}/{name}") for name in texts}
    if found != texts:
        return False
    blobs = {_pointed_to(disk, f"{path}/{file}"): content for file, content in release.files.items()}
    return all(
        posixpath.basename(blob) == sha256_of(content) == sha256_of(disk.get(blob, b""))
        for blob, content in blobs.items()
    )


def verdict_of(disk: dict) -> Verdict:
    """Return what a push, a rollback or a recovery has told by the time it ends."""
    state = sealed(disk, "state.json")
    marked = tuple(sorted((name, one["verdict"]) for name, one in bad(disk).items()))
    last = (state.get("last") or {}).get("result")
    rings = sealed(disk, "counters.json").get("rings")
    return (
        current_of(disk),
        state.get("phase"),
        state.get("boots"),
        last,
        marked,
        str(rings),
        sealed(disk, "trust.json").get("chain"),
    )


def sealed(disk: dict, name: str) -> dict:
    """Return the values of a sealed file; none, if it is missing or damaged."""
    try:
        return open_sealed(disk[f"{VAR}/{name}"])
    except (KeyError, ValueError):
        return {}


def is_sealed(disk: dict, name: str) -> bool:
    return f"{VAR}/{name}" not in disk or bool(sealed(disk, name))


def counted(disk: dict) -> int:
    return sealed(disk, "counters.json").get("sequences", {}).get("main", 0)


def bad(disk: dict) -> dict:
    """Return the releases that are marked."""
    try:
        return json.loads(disk.get(f"{VAR}/bad.json", b'{"releases": {}}'))["releases"]
    except ValueError:
        return {"damaged": {"verdict": "damaged"}}


def _present(disk: dict) -> list[str]:
    folders = (f"{VAR}/releases", f"{VAR}/engines")
    return [p for p in disk if posixpath.dirname(p) in folders and not posixpath.basename(p).startswith(".")]


def _pointed_to(disk: dict, link: str) -> str:
    target = disk.get(link)
    return posixpath.normpath(posixpath.join(posixpath.dirname(link), target)) if isinstance(target, str) else ""


def enumerate_cuts(scenario: Scenario, *, memory: dict | None = None) -> Count:
    """Judge every state that a power cut in the scenario can leave, and those of a second cut inside recovery."""
    states, files = distinct_states(scenario)
    judge = Judge(scenario, second=True, memory=memory)
    violations = [one for tree, reported in states for one in judge.violations(tree, reported)]
    if current_of(dict(files.tree())) != scenario.ends_on:
        violations.append(f"ends on {current_of(dict(files.tree()))}")
    if scenario.marked is not None and scenario.marked.name not in bad(dict(files.tree())):
        violations.append(f"{scenario.marked.name} is not marked")
    return Count(
        steps=files.steps,
        syncs=len(files.syncs),
        states=len(states),
        second_states=len(judge.second_states),
        violations=violations,
    )


def uncaught_mutants(scenario: Scenario, *, memory: dict | None = None) -> dict[int, str]:
    """Return the syncs (number and what they follow) that may be left out without a violation, if they do anything."""
    _, files = distinct_states(scenario)
    memory = {} if memory is None else memory
    busy = {n: what for n, what in enumerate(files.syncs) if n not in files.idle}
    return {n: what for n, what in busy.items() if not is_caught(scenario, {n}, memory=memory)}


def is_caught(scenario: Scenario, skips: set[int], *, memory: dict | None = None) -> bool:
    """Return whether leaving out these syncs leads to a violation."""
    judge = Judge(scenario, converges=False, memory=memory)
    states, _ = distinct_states(scenario, skips=frozenset(skips))
    return any(True for tree, reported in states for _ in judge.violations(tree, reported))
