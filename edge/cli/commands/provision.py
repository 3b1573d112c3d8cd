"""`edge-deploy provision`: the first installation of devices."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from edge.bundle.statement import encode_chain, latest_of
from edge.cli.fleet import Chosen, Rollout, drive, targets_argument
from edge.cli.fleet_view import printable
from edge.cli.paths import READ_FILE, SSH_CONFIG, command
from edge.cli.run_command import tell
from edge.config.targets import Target
from edge.delivery.outcome import last_event
from edge.deploy.fleet.rollout import FleetResult
from edge.deploy.look import side_by_side
from edge.deploy.provision.admin import AdminShell
from edge.deploy.provision.facts import read_lock
from edge.deploy.provision.keys import read_chain, read_public_key, read_revocations
from edge.deploy.provision.provision import Admins, provision_over_ssh, undo_over_ssh
from edge.deploy.provision.wanted import Wanted
from edge.deploy.provision.wheels import WheelSource, own_wheel
from edge.device.facts import name_of_host
from edge.errors import DeployError, EdgeError
from edge.registry.https import tls_context
from edge.registry.reference import PullSettings

__all__ = ["admins_of", "provision", "ssh_config_option", "sudo_passwords"]

_ASKED_S = 90.0  # beyond what each waits itself

ssh_config_option = click.option("--ssh-config", type=SSH_CONFIG, help="Another ssh_config than yours.")


def admins_of(chosen: Chosen, user: str | None, ssh_config: Path | None) -> Admins:
    """Raise click.UsageError for a user that cannot be given to ssh."""
    try:
        return Admins(inventory=chosen.inventory, user=user, ssh_config=ssh_config)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@command(
    """
  edge-deploy provision gate-01 --key ~/.ssh/id_ed25519.pub --signer ~/.ssh/id_ed25519.pub --plan
  edge-deploy provision site=north --admin ubuntu --ask-sudo-password --key me.pub --signer me.pub
  edge-deploy provision all --plan --json
  edge-deploy provision all --pull-from registry.example/farms/gates --ring canary
  edge-deploy provision all --exactly --key me.pub --signer me.pub --revoked revoked.krl --plan
  edge-deploy provision gate-01 --undo""",
    json="Events as JSON Lines; each change is a note of phase `plan`.",
)
@targets_argument
@click.option("--admin", metavar="USER", help="Who logs in and may use sudo; by default as ssh_config says.")
@click.option("--ask-sudo-password", is_flag=True, help="Ask for the password that sudo wants, where it wants one.")
@click.option(
    "--key", "keys", multiple=True, type=READ_FILE, help="Public key that may push, and nothing else. Repeatable."
)
@click.option("--signer", "signers", multiple=True, type=READ_FILE, help="Public key whose releases count. Repeatable.")
@click.option(
    "--downgrade-signer",
    "downgraders",
    multiple=True,
    type=READ_FILE,
    help="The same; it may also sign a step back (bundle --downgrade).",
)
@click.option(
    "--promoter",
    "promoters",
    multiple=True,
    type=READ_FILE,
    help="Public key that may state what rings run; with --pull-from, by default the signers. Repeatable.",
)
@click.option("--trust", type=READ_FILE, help="Whose signatures count, as a root key says (edge-deploy trust sign).")
@click.option(
    "--revoked", type=READ_FILE, help="Revocation list (KRL): keys that no longer count. Put there or refreshed."
)
@click.option("--exactly", is_flag=True, help="Keys and signers become those named; all others go, as the plan says.")
@click.option("--lock-me-out", is_flag=True, help="With --exactly: also the keys that this machine uses.")
@click.option(
    "--name",
    metavar="NAME",
    help="Name of the device; default: the one that it has, the target's, or its host's. One target only.",
)
@click.option(
    "--compatible",
    metavar="CLASS",
    multiple=True,
    help="Device class whose bundles it takes; default: as it is there, the inventory's, or any. Repeatable.",
)
@click.option(
    "--channel",
    "channels",
    metavar="NAME",
    multiple=True,
    help="Channel whose releases it takes, and no others; default: as it is there, or stable. Repeatable.",
)
@click.option("--pull-from", metavar="REGISTRY/REPOSITORY", help="It fetches its releases from there by itself.")
@click.option("--ring", metavar="RING", help="With --pull-from: its ring; default: the one that it has, or all.")
@click.option("--registry-ca", type=READ_FILE, help="With --pull-from: certificate of the registry's own CA, in PEM.")
@click.option(
    "--registry-ca-alone/--registry-ca-beside",
    "is_ca_alone",
    default=None,
    help="With --registry-ca: the system's authorities do not count there, or count as well; default: as it is there.",
)
@click.option(
    "--network", "networks", metavar="ADDRESS/BITS", multiple=True, help="Of cameras and broker; default: private ones."
)
@ssh_config_option
@click.option("--plan", "is_plan", is_flag=True, help="Show each change and make none; exits with 10 if there are any.")
@click.option("--resume", is_flag=True, help="Go on with a provision of the same that did not end.")
@click.option("--undo", "is_undo", is_flag=True, help="Take back what provision wrote; data stays.")
@click.option("--purge", is_flag=True, help="With --undo: data, too.")
def provision(
    chosen: Chosen,
    admin: str | None,
    ask_sudo_password: bool,
    ssh_config: Path | None,
    is_plan: bool,
    resume: bool,
    is_undo: bool,
    purge: bool,
    as_json: bool,
    **asked: Any,
) -> int:
    """Make devices of machines: users, folders, units, trust, and the software; no internet is needed there.

    A TARGET is a host of your ssh_config, or a name, label=value or all of the inventory; several are done side by
    side and in its waves. Runs over your own ssh and sudo. Running it again changes nothing, --plan shows what it would
    do, --undo takes it back. It overwrites nothing that it did not write.

    The wheels are those that a lock names by SHA-256; one that a device has is not sent again. A Jetson with JetPack 6
    or 7 gets pycuda, too, where somebody has made its wheel (docs/container.md); its GPU is used with it and without.
    """
    if asked["name"] is not None and len(chosen.targets) > 1:
        raise click.UsageError("--name is for one target")
    if purge and not is_undo:
        raise click.UsageError("--purge goes with --undo")
    admins = admins_of(chosen, admin, ssh_config)
    wanted = {} if is_undo else _wanted(chosen, **asked)
    if ask_sudo_password:
        admins = _with_passwords(admins, chosen.targets)
    if is_undo:
        one, what = undo_over_ssh(admins, is_plan=is_plan, purge=purge, tells_changes=as_json), "undo"
    else:
        one = provision_over_ssh(admins, wanted, software=WheelSource(), is_plan=is_plan, tells_changes=as_json)
        what = _digest(wanted[chosen.targets[0].name])
    result = drive(
        chosen,
        one,
        is_json=as_json,
        rollout=None if is_plan else Rollout(release=what, channel="provision", is_resumed=resume),
    )
    if not as_json:
        _show(result)
    return result.exit_code


def _with_passwords(admins: Admins, targets: Sequence[Target]) -> Admins:
    """Ask for the password of each target whose sudo wants one, before any is begun; who fails, fails in its turn."""
    known = sudo_passwords({target.name: admins.shell(target, threading.Event()) for target in targets})

    def password_of(target: Target) -> str | None:
        found = known[target.name]
        if isinstance(found, EdgeError):
            raise found
        return found

    return replace(admins, password_of=password_of)


def _digest(wanted: Wanted) -> str:
    """Return a name for what is wanted of every target, so that --resume goes on with the same only."""
    same = replace(wanted, name=None, usual_name=None)
    asked = repr((same, read_lock().made_at))
    return hashlib.sha256(asked.encode() + own_wheel()).hexdigest()[:12]


def _wanted(
    chosen: Chosen,
    *,
    name: str | None,
    compatible: tuple[str, ...],
    channels: tuple[str, ...],
    networks: tuple[str, ...],
    keys: tuple[Path, ...],
    signers: tuple[Path, ...],
    downgraders: tuple[Path, ...],
    promoters: tuple[Path, ...],
    trust: Path | None,
    revoked: Path | None,
    exactly: bool,
    lock_me_out: bool,
    pull_from: str | None,
    ring: str | None,
    registry_ca: Path | None,
    is_ca_alone: bool | None,
) -> Mapping[str, Wanted]:
    """By the targets' names, before any of them is called."""
    trusted = [(read_public_key(path), False) for path in signers]
    trusted += [(read_public_key(path), True) for path in downgraders]
    let_in = [read_public_key(path) for path in keys]
    revocations = None if revoked is None else read_revocations(revoked, [key for key, _ in trusted])
    if exactly and not (let_in and trusted):
        raise click.UsageError("--exactly names who stays: give --key and --signer, too")
    if lock_me_out and not exactly:
        raise click.UsageError("--lock-me-out goes with --exactly")

    pull = _pull(pull_from, channels, ring, registry_ca, is_alone=is_ca_alone)

    def wanted(target: Target) -> Wanted:
        is_known, is_name = target.name in chosen.inventory.targets, target.host == name_of_host(target.host)
        return Wanted(
            name=name,
            usual_name=target.name if is_known else target.host if is_name else None,
            compatible=compatible,
            usual_class=target.compatible or "any",
            channels=channels,
            networks=networks or None,
            keys=let_in,
            signers=trusted,
            promoters=[read_public_key(path) for path in promoters],
            trust=None if trust is None else _first_trust(trust),
            revoked=revocations,
            is_exact=exactly,
            may_lock_out=lock_me_out,
            pull=pull,
            registry_ca=None if registry_ca is None else registry_ca.read_text("ascii", "replace"),
        )

    try:
        return {target.name: wanted(target) for target in chosen.targets}
    except ValueError as error:
        key, _, problem = str(error).partition(": ")
        raise click.BadParameter(problem, param_hint=f"--{key.removesuffix('s')}") from None


def _first_trust(path: Path) -> tuple[str, str]:
    last = read_chain(path)[-1:]
    root = last[0].document.root
    latest_of(last, root=root)
    return root, encode_chain(last).decode()


def _pull(
    pull_from: str | None, channels: Sequence[str], ring: str | None, ca: Path | None, *, is_alone: bool | None
) -> Mapping[str, str] | None:
    if is_alone and ca is None:
        raise click.UsageError("--registry-ca-alone goes with --registry-ca")
    if pull_from is None:
        if (ring, ca, is_alone) != (None, None, None):
            raise click.UsageError("--ring, --registry-ca and --registry-ca-beside go with --pull-from")
        return None
    if len(channels) > 1:
        raise click.UsageError("--pull-from: a device fetches the releases of one channel; give one --channel")
    tls_context(ca)  # a file without a certificate is seen here, not in the field
    if ca is not None and "PRIVATE KEY" in ca.read_text("ascii", "replace"):
        raise click.UsageError(f"--registry-ca: {ca} holds a private key; give the certificate alone")
    authorities = None if is_alone is None else "registry-ca" if is_alone else "system"
    asked = {"repository": pull_from, "channel": (*channels, None)[0], "ring": ring, "authorities": authorities}
    stated = {name: value for name, value in asked.items() if value is not None}
    try:
        PullSettings(**stated)
    except ValueError as error:
        raise click.UsageError(f"--pull-from: {error}") from None
    return stated


def _show(result: FleetResult) -> None:
    """Write the changes, once for all targets that have the same, and in full what a line of a result has cut."""
    same: dict[tuple[str, ...], list[str]] = {}
    for outcome in result.outcomes:
        changes = outcome.evidence.get("changes")
        if outcome.is_done or outcome.result == "planned":
            same.setdefault(tuple(changes) if isinstance(changes, list) else (), []).append(outcome.target)
        elif printable(last_event(outcome).hint).endswith("…"):
            conflicts = outcome.evidence.get("conflicts")
            for problem in conflicts if isinstance(conflicts, list) else [outcome.problem]:
                tell(f"error: {outcome.target}: {outcome.code}: {problem}")
    for changes, names in same.items():
        if changes:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            click.echo(f"{names[0]}{more}:")
            for change in changes:
                click.echo(f"  {change}")


def sudo_passwords(shells: Mapping[str, AdminShell]) -> dict[str, str | EdgeError | None]:
    """Return what sudo takes on each target, by its name: None where it wants no password, the error where it failed.

    Targets that cannot be reached are waited for together, not one after the other. Each has its own password: what
    was typed for one goes to another only if the person says so.
    """
    asked = {name: lambda _, shell=shell: shell.wants_password() for name, shell in shells.items()}
    passwords: dict[str, str | EdgeError | None] = {}
    before: str | None = None
    for name, found in side_by_side(asked, each_s=_ASKED_S).items():
        if isinstance(found, EdgeError):
            passwords[name] = found
            continue
        passwords[name] = typed = _typed(shells[name], name, before) if found else None
        before = typed if isinstance(typed, str) else before
    return passwords


def _typed(shell: AdminShell, name: str, before: str | None) -> str | DeployError:
    """Return the password that sudo takes on the target `name`, which wants one, or why there is none."""
    try:
        return shell.ask_password(lambda is_again: _ask(name, None if is_again else before, is_again=is_again))
    except DeployError as error:
        return error


def _has_terminal() -> bool:
    """Return whether a password can be typed unseen, as getpass finds out."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return sys.stdin is not None and sys.stdin.isatty()
    return True


def _ask(name: str, before: str | None, *, is_again: bool) -> str:
    if not _has_terminal():
        raise click.UsageError(
            f"--ask-sudo-password: sudo on {name} wants a password, expected a terminal to type it at, got none; "
            "run it at one, or let sudo there ask for none"
        )
    question = f"sudo on {name} does not take it. Once more" if is_again else f"Password for sudo on {name}"
    typed: str = click.prompt(
        question + ("" if before is None else " (Enter: the same as before)"),
        hide_input=True,
        err=True,
        default=before,
        show_default=False,
    )
    return typed
