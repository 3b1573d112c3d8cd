"""`edge-deploy provision`: the first installation of a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.lazy import verbosity_option
from edge.errors import DeployError

if TYPE_CHECKING:
    from edge.deploy.provision.provision import Provisioned
    from edge.deploy.provision.wanted import Wanted

__all__ = ["provision"]

_HAS_CHANGES = 10
_SOME_FAILED = 11
_PATH = click.Path(path_type=Path, dir_okay=False)


@click.command(
    epilog="""\b
Examples:
  edge-deploy provision gate-01 --key ~/.ssh/id_ed25519.pub --signer ~/.ssh/id_ed25519.pub --plan
  edge-deploy provision gate-01 gate-02 --admin ubuntu --ask-sudo-password --key me.pub --signer me.pub
  edge-deploy provision gate-01 --cpu-only
  edge-deploy provision gate-01 --undo"""
)
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option("--admin", metavar="USER", help="Who logs in and may use sudo; by default as ssh_config says.")
@click.option("--ask-sudo-password", is_flag=True, help="Ask for the password that sudo wants, where it wants one.")
@click.option(
    "--key", "keys", multiple=True, type=_PATH, help="Public key that may push, and nothing else. Repeatable."
)
@click.option("--signer", "signers", multiple=True, type=_PATH, help="Public key whose releases count. Repeatable.")
@click.option("--downgrade-signer", "downgraders", multiple=True, type=_PATH, help="The same, and older releases, too.")
@click.option("--name", help="Name of the device; by default the target's. One target only.")
@click.option("--compatible", multiple=True, help="Device class whose bundles it takes; by default any. Repeatable.")
@click.option(
    "--channel",
    "channels",
    multiple=True,
    help="Channel whose releases it takes, and no others; by default stable. Repeatable.",
)
@click.option("--network", "networks", multiple=True, help="Network of cameras or broker; by default all private ones.")
@click.option(
    "--wheels", type=click.Path(path_type=Path, file_okay=False), help="Folder of wheels instead of gathering."
)
@click.option("--cpu-only", "is_cpu_only", is_flag=True, help="A Jetson without pycuda: it serves by its CPU.")
@click.option("--ssh-config", type=_PATH, help="Another ssh_config than yours.")
@click.option("--plan", "is_plan", is_flag=True, help="Show each change and make none; exits with 10 if there are any.")
@click.option("--undo", "is_undo", is_flag=True, help="Take back what provision wrote; data stays.")
@click.option("--purge", is_flag=True, help="With --undo: data, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@verbosity_option
def provision(
    targets: tuple[str, ...],
    admin: str | None,
    ask_sudo_password: bool,
    keys: tuple[Path, ...],
    signers: tuple[Path, ...],
    downgraders: tuple[Path, ...],
    name: str | None,
    compatible: tuple[str, ...],
    channels: tuple[str, ...],
    networks: tuple[str, ...],
    wheels: Path | None,
    is_cpu_only: bool,
    ssh_config: Path | None,
    is_plan: bool,
    is_undo: bool,
    purge: bool,
    as_json: bool,
) -> int:
    """Make devices of machines: users, folders, units, trust, and the software; no internet is needed there.

    Runs over your own ssh and sudo. Running it again changes nothing, --plan shows what it would do, --undo takes
    it back. It overwrites nothing that it did not write.

    A Jetson with JetPack 6 or 7 gets pycuda, too, which the package index has as source only: `make pycuda-wheels`
    makes its wheels once, docs/container.md says how else.
    """
    from edge.cli.border import tell
    from edge.cli.sudo_passwords import SudoPasswords
    from edge.deploy.provision.admin import AdminShell
    from edge.deploy.provision.provision import provision as make
    from edge.deploy.provision.provision import undo
    from edge.transport.ssh_command import SshAddress

    if name is not None and len(targets) > 1:
        raise click.UsageError("--name is for one target")
    if purge and not is_undo:
        raise click.UsageError("--purge goes with --undo")
    passwords = SudoPasswords()

    def one(target: str) -> Provisioned:
        try:
            address = SshAddress(host=target, user=admin, config=ssh_config)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        shell = AdminShell(address=address)
        if ask_sudo_password:
            shell = replace(shell, sudo_password=passwords.of(shell, target))
        if is_undo:
            return undo(shell, is_plan=is_plan, purge=purge)
        wanted = _wanted(name or target, name is not None, compatible, channels, networks, keys, signers, downgraders)
        return make(shell, wanted, wheels=wheels, is_cpu_only=is_cpu_only, is_plan=is_plan, tell=tell)

    return _each(targets, one, is_plan=is_plan, as_json=as_json)


def _wanted(
    name: str,
    is_name_stated: bool,
    compatible: tuple[str, ...],
    channels: tuple[str, ...],
    networks: tuple[str, ...],
    keys: tuple[Path, ...],
    signers: tuple[Path, ...],
    downgraders: tuple[Path, ...],
) -> Wanted:
    from edge.deploy.provision.keys import read_public_key
    from edge.deploy.provision.wanted import Wanted

    trusted = [(read_public_key(path), False) for path in signers]
    trusted += [(read_public_key(path), True) for path in downgraders]
    return Wanted(
        name=name,
        compatible=compatible or ("any",),
        channels=channels or ("stable",),
        is_setting_stated=is_name_stated or bool(compatible or channels),
        networks=networks or None,
        keys=[read_public_key(path) for path in keys],
        signers=trusted,
    )


def _each(targets: tuple[str, ...], one: Callable[[str], Provisioned], *, is_plan: bool, as_json: bool) -> int:
    from edge.cli.border import tell
    from edge.cli.output import echo_json

    rows: list[dict[str, object]] = []
    failures: list[DeployError] = []
    for target in targets:
        try:
            done = one(target)
        except DeployError as error:
            failures.append(error)
            tell(f"error: {error.code}: {error}")
            rows.append({"target": target, "code": error.code, "problem": error.problem, "hint": error.hint})
            continue
        rows.append({"target": target, "changes": list(done.changes), "applied": done.is_applied})
        if not as_json:
            _show(target, done, is_plan=is_plan)
    if as_json:
        echo_json({"targets": rows})
    if failures:
        return failures[0].exit_code if len(targets) == 1 else _SOME_FAILED
    return _HAS_CHANGES if is_plan and any(row["changes"] for row in rows) else 0


def _show(target: str, done: Provisioned, *, is_plan: bool) -> None:
    for change in done.changes:
        click.echo(f"  {change}")
    count = f"{len(done.changes)} change{'' if len(done.changes) == 1 else 's'}"
    if not done.changes:
        click.echo(f"{target}: nothing to change")
    else:
        click.echo(f"{target}: {count} {'planned, none made' if is_plan else 'made'}")
