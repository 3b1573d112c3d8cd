"""`edge-deploy push`, `rollback` and `confirm`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edge.cli.bundles import bundle_of, making_options
from edge.cli.fleet import Chosen, Rollout, drive, show_answers, targets_argument
from edge.cli.paths import READ, SECONDS, command
from edge.codec import encode
from edge.config.targets import Target
from edge.delivery.deliverable import DeliveryOptions
from edge.delivery.link import Link
from edge.delivery.verdict import state_of
from edge.deploy.fleet.ask import Asked
from edge.deploy.fleet.over_ssh import push_over_ssh, roll_back
from edge.wire.peer import Nothing
from edge.wire.release import ConfirmRequest
from edge.wire.verbs import CONFIRM, STATUS, StatusAnswer

__all__ = ["confirm", "push", "rollback"]


@command(
    """
  edge-deploy push gates.yaml gate-01
  edge-deploy push out/bundles/gates-3f9a1c07b2de.bundle gate-01 --plan
  edge-deploy push gates.yaml site=north --confirm
  edge-deploy push gates.yaml gate-01 --software
  edge-deploy push gates.yaml all --resume --json""",
    json="Events as JSON Lines.",
)
@click.argument("what", type=READ, metavar="PIPELINE_OR_BUNDLE")
@targets_argument
@click.option("--plan", "is_plan", is_flag=True, help="Only say what would be done; exits with 10 if anything would.")
@click.option("--detach", is_flag=True, help="Leave when all is on the device; it builds, switches and judges alone.")
@click.option("--confirm", is_flag=True, help="The release stays only if it can be confirmed from here.")
@click.option("--resume", is_flag=True, help="Go on with a rollout of this release that did not end.")
@click.option("--lock-wait", "lock_wait_s", type=SECONDS, metavar="S", help="Wait so long for another push to end.")
@click.option(
    "--reconnect",
    "reconnect_s",
    type=SECONDS,
    default=60.0,
    show_default=True,
    metavar="S",
    help="Until the switch, try so long to reach a device again, from its last progress on.",
)
@click.option(
    "--deadline",
    "deadline_s",
    type=SECONDS,
    metavar="S",
    help="Give a target up as late after so long, whatever it says. Default: 2.3 hours and the time to send.",
)
@click.option("--retry-bad", is_flag=True, help="Also a release that has failed on a device before.")
@making_options
def push(
    what: Path,
    chosen: Chosen,
    is_plan: bool,
    detach: bool,
    confirm: bool,
    resume: bool,
    lock_wait_s: float | None,
    reconnect_s: float,
    deadline_s: float | None,
    retry_bad: bool,
    as_json: bool,
    **making: Any,
) -> int:
    """Bring a release onto devices: sent, built and proven there, switched, judged, and undone if it is bad.

    A TARGET is a host of your ssh_config, or a name, label=value or all of the inventory. The release before serves
    until the moment of the switch; nothing that goes wrong, here or there, leaves a device without one.

    Exit codes: 3 not reached, 4 signature or sequence refused, 5 another push at work, 6 not fit for the device (space,
    a secret, failed before), 7 not built or not proven, 8 rolled back, 9 the device stopped trying.
    """
    if detach and confirm:
        raise click.UsageError("--detach leaves before there is anything to confirm; leave one of them out")
    bundle = bundle_of(what, **making)
    options = DeliveryOptions(
        is_plan=is_plan,
        detach=detach,
        confirm=confirm,
        retry_bad=retry_bad,
        lock_wait_s=lock_wait_s or 0.0,
        reconnect_s=reconnect_s,
        deadline_s=deadline_s,
    )
    manifest = bundle.manifest
    result = drive(
        chosen,
        push_over_ssh(bundle, options),
        is_json=as_json,
        rollout=None if is_plan else Rollout(release=manifest.release, channel=manifest.channel, is_resumed=resume),
    )
    return result.exit_code


@command(
    """
  edge-deploy rollback gate-01
  edge-deploy rollback gate-01 --to 3f9a1c07b2de
  edge-deploy rollback site=north --json""",
    json="Events as JSON Lines.",
)
@targets_argument
@click.option("--to", metavar="RELEASE", help="A release that the device keeps; it goes on trial like a push.")
def rollback(chosen: Chosen, to: str | None, as_json: bool) -> int:
    """Go back to the release that served before; its engine is kept, so this takes one restart of the service.

    The release that is left is then the one before: a second rollback goes forward to it again.
    """
    one = roll_back(to, DeliveryOptions())
    return drive(chosen, one, is_json=as_json).exit_code


@command("""
  edge-deploy confirm gate-01
  edge-deploy confirm gate-01 --release 3f9a1c07b2de""")
@targets_argument
@click.option("--release", metavar="RELEASE", help="Only if this one is on trial. Default: whichever is.")
def confirm(chosen: Chosen, release: str | None, as_json: bool) -> int:
    """Say that the release on trial may stay, where it was pushed with --confirm; the device still judges it."""
    asked = _Confirmed(release)
    result = chosen.ask(asked)
    show_answers(result, asked.answers, as_json=as_json, lines_of=_confirmed_lines)
    return result.exit_code


class _Confirmed(Asked[Nothing, StatusAnswer]):
    """Confirms; answers are the statuses before, because the device says the same where none was awaited."""

    def __init__(self, release: str | None) -> None:
        super().__init__(STATUS, Nothing())
        self._confirmation = ConfirmRequest(release=release)

    def _evidence(self, target: Target, link: Link, answer: StatusAnswer) -> Any:
        return {**encode(link.ask(CONFIRM, self._confirmation)), "was_awaited": state_of(answer).confirm}


def _confirmed_lines(before: StatusAnswer) -> list[str]:
    state = state_of(before)
    return [f"release {state.target} {'is confirmed' if state.confirm else 'waits for no confirmation'}"]
