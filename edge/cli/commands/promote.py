"""`edge-deploy promote` and `withdraw`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from edge.bundle.sign import fingerprint
from edge.bundle.statement import RING
from edge.cli.fleet import targets_option
from edge.cli.output import echo_result, echo_warnings
from edge.cli.paths import SECONDS, command
from edge.cli.ring_options import (
    anyway_option,
    ca_option,
    credential_option,
    heard,
    key_option,
    known_as_option,
    login_option,
    opened,
    pipeline_option,
    release_argument,
)
from edge.cli.run_command import tell
from edge.config.targets import find_inventory
from edge.deploy.provision.keys import find_key
from edge.deploy.rings.desk import PublishedRelease, RingDesk
from edge.deploy.rings.promote import Promoted, Promoter, RingWatch, wait_for
from edge.deploy.rings.verdict import Condition, Decision, RingTally
from edge.errors import ConfigError, DeployError
from edge.registry.reference import ring_tag

__all__ = ["promote", "withdraw"]

_DONE, _WAITING, _STOPPED = 0, 10, 11
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class _Span(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A time that passes: `90s`, `30m`, `2h`, `1d`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd]?)", str(value))
        if match is None:
            self.fail(f"expected a time such as 90s, 30m, 2h or 1d, got {value!r}", param, ctx)
        return float(match[1]) * _UNITS_S[match[2]]


@command("""
  edge-deploy promote registry.example/farms/gates:3f9a1c07b2de canary --devices north/gate-01,north/gate-02
  edge-deploy promote registry.example/gates:3f9a1c07b2de all --pipeline gates.yaml --when "95% of canary for 1h"
  edge-deploy promote registry.example/gates:3f9a1c07b2de all --pipeline a.yaml --when "100% of canary" --within 6h""")
@release_argument
@click.argument("ring")
@click.option("--when", metavar="CONDITION", help="Wait until so much of another ring has committed it, for so long.")
@click.option(
    "--within", "within_s", type=_Span(), metavar="TIME", help="With --when: wait no longer; exits with 10 then."
)
@click.option(
    "--every", "every_s", type=SECONDS, metavar="S", default=30, show_default=True, help="Seconds between two looks."
)
@click.option(
    "--devices", metavar="SITE/NAME,...", help="Who counts in this ring, where no inventory has labels for it."
)
@targets_option
@key_option
@pipeline_option
@credential_option
@ca_option
@login_option
@known_as_option
@anyway_option
def promote(
    where: str,
    ring: str,
    when: str | None,
    devices: str | None,
    key: Path | None,
    path: Path | None,
    ca: Path | None,
    login_path: Path | None,
    known_as: str | None,
    targets_path: Path | None,
    is_anyway: bool,
    as_json: bool,
    **waiting: Any,
) -> int:
    """Have the devices of a ring run a published release, by a statement that is signed here.

    With --when it waits for another ring first, judged by the devices that count there: those of the inventory with the
    label ring=NAME, or those that were named by --devices when something was promoted to that ring. Exit code: 0 it
    was promoted, 10 not within the time, 11 stopped, because too many have failed or the release was withdrawn; others
    are those of docs/push-codes.md. Run it again and it goes on from what devices say. docs/fleet.md.
    """
    if not re.fullmatch(r"[a-z0-9-]{1,32}", ring):
        raise click.BadParameter(
            f"expected a-z, 0-9 and '-', at most 32 characters, got {ring[:80]!r}", param_hint="RING"
        )
    try:
        condition = None if when is None else Condition.parse(when)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--when") from None
    if condition is not None and condition.ring == ring:
        raise click.BadParameter(f"{ring} would wait for itself; name the ring before it", param_hint="--when")
    members = None if devices is None else _named(devices)
    if condition is not None and path is None:
        raise click.UsageError("--when asks what devices say: add --pipeline FILE, which names the broker")
    promoter_key = find_key(key)
    with opened(where, login_path, ca, known_as) as (desk, release):
        _require_counting(desk, promoter_key, release, is_anyway=is_anyway)
        echo_warnings(_unknown(desk, targets_path, release.manifest.channel, ring, members or frozenset()))
        try:
            if members is not None:
                desk.name_members(ring_tag(release.manifest.channel, ring), members)
            if condition is not None and path is not None:
                decision = _waited(desk, release, condition, path, targets_path=targets_path, **waiting)
                if decision.what != "promote":
                    click.echo(f"{decision.what}: {decision.why}")
                    return _STOPPED if decision.what == "stop" else _WAITING
            promoted = Promoter(desk, promoter_key).promote(release, ring)
        except DeployError as error:
            if error.code != "request.withdrawn":
                raise
            click.echo(f"stop: {error.problem}")
            return _STOPPED
    _tell(promoted, as_json=as_json)
    return _DONE


def _require_counting(desk: RingDesk, key: Path, release: PublishedRelease, *, is_anyway: bool) -> None:
    if not is_anyway:
        desk.require_counting(fingerprint(key), RING)
        desk.require_signed(release)


def _waited(
    desk: RingDesk,
    release: PublishedRelease,
    condition: Condition,
    path: Path,
    *,
    credential: str | None,
    targets_path: Path | None,
    every_s: float,
    within_s: float | None,
) -> Decision:
    channel = release.manifest.channel
    with heard(path, credential) as (hearing, site):
        members = _members(targets_path, condition.ring, site) or desk.members(ring_tag(channel, condition.ring))
        if not members:
            raise click.UsageError(
                f"nothing says which devices count in {condition.ring}: give them the label ring={condition.ring} "
                f"in the inventory, or name them: promote RELEASE {condition.ring} --devices SITE/NAME,..."
            )
        elsewhere = {} if hearing.devices(desk.repository, channel) else hearing.elsewhere(desk.repository, channel)
        for name, count in sorted(elsewhere.items()):
            tell(f"{count} devices fetch {channel} from {name}; if that is {desk.repository}, add --known-as {name}")
        return wait_for(
            RingWatch(desk, channel, release.manifest.release, condition, members),
            lambda: hearing.devices(desk.repository, channel) if hearing.is_complete else None,
            every_s=every_s,
            within_s=within_s,
            on_look=_teller(),
            say=tell,
        )


def _members(targets_path: Path | None, ring: str, site: str) -> frozenset[str]:
    labelled = (one for one in find_inventory(targets_path).targets.values() if one.labels.get("ring") == ring)
    return frozenset(f"{one.labels.get('site', site)}/{one.name}" for one in labelled)


def _unknown(
    desk: RingDesk, targets_path: Path | None, channel: str, ring: str, members: frozenset[str]
) -> Iterator[str]:
    """Yield that the ring, or a device of it, is known nowhere, where others are known."""
    try:
        targets = list(find_inventory(targets_path).targets.values())
    except ConfigError:
        if targets_path is not None:
            raise
        targets = []  # one that was only found is asked for typing errors alone
    names = {one.name for one in targets}
    if names and (strangers := sorted(one for one in members if one.partition("/")[2] not in names)):
        yield f"--devices: the inventory names no {', '.join(strangers)}; look for a typing error"
    labelled = {one.labels["ring"] for one in targets if "ring" in one.labels}
    rings = labelled | {one.removeprefix(f"{channel}-") for one in desk.rings(channel)}
    if ring in rings or members or desk.members(ring_tag(channel, ring)) is not None:
        return
    # Without labels any name that is like no other may be a new one.
    if labelled or difflib.get_close_matches(ring, rings, cutoff=0.75):
        known = ", ".join(sorted(rings))
        yield f"no device, label or earlier promote names the ring {ring}; known: {known}; add --devices if it is new"


def _named(devices: str) -> frozenset[str]:
    names = [one.strip() for one in devices.split(",")]
    if not all(re.fullmatch(r"[^/+#\s]{1,64}/[^/+#\s]{1,64}", one) for one in names):
        raise click.BadParameter(f"expected SITE/NAME,SITE/NAME, got {devices[:100]!r}", param_hint="--devices")
    return frozenset(names)


def _teller() -> Callable[[RingTally, Decision], None]:
    told: list[str] = []

    def on_look(tally: RingTally, decision: Decision) -> None:
        beside = f"; {len(tally.others)} speak for the ring, and do not count" if tally.others else ""
        waiting = tally.reasons(has_failed=False)
        why = f"; waiting: {waiting}" if waiting else ""
        line = f"{decision.why.partition('; held')[0]}, {tally.failed} failed{beside}{why}"
        if told[-1:] != [line]:
            told.append(line)
            tell(line)

    return on_look


def _tell(promoted: Promoted, *, as_json: bool) -> None:
    statement = promoted.statement
    for serial in promoted.beside:
        click.echo(f"statement {serial} was made at the same time, and counts no more", err=True)
    runs = f"{statement.tag} runs release {statement.release}: statement {statement.serial}"
    echo_result(asdict(statement), [f"{runs}, stated until {statement.valid_until}"], as_json=as_json)


@command("""
  edge-deploy withdraw registry.example/farms/gates:3f9a1c07b2de --why "overheats in the sun"
  edge-deploy withdraw registry.example/farms/gates:3f9a1c07b2de --lift""")
@release_argument
@click.option("--why", metavar="TEXT", help="The reason, kept with it.")
@click.option("--lift", "is_lifted", is_flag=True, help="Take a withdrawal back; no ring has the release by that.")
@key_option
@ca_option
@login_option
def withdraw(
    where: str,
    why: str | None,
    is_lifted: bool,
    key: Path | None,
    ca: Path | None,
    login_path: Path | None,
) -> int:
    """Let no further device take a release, whatever is promoted now or later: only --lift takes that back.

    Its rings have nothing to take then. Devices that have it keep it: edge-deploy rollback, or a newer release, brings
    them to another.
    """
    if is_lifted == (why is not None):
        raise click.UsageError("say --why TEXT, or --lift")
    with opened(where, login_path, ca) as (desk, release):
        name = release.manifest.release
        if is_lifted:
            desk.lift(name)
            click.echo(f"release {name} may be promoted again")
            return 0
        promoter_key = find_key(key)
        promoter = Promoter(desk, promoter_key)
        promoter.mark(name, why or "")  # first: a key that empties no ring stops the release all the same
        tell(f"release {name} is marked: no further device takes it")
        desk.require_counting(fingerprint(promoter_key), RING)
        rings = promoter.withdraw(name, release.manifest.channel, why or "")
    click.echo(f"release {name} is gone from: {', '.join(rings) or 'no ring'}")
    return 0
