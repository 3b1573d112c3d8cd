"""`edge-deploy trust`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import click

from edge.bundle.sign import DOWNGRADE, RELEASE
from edge.bundle.statement import RING, TrustDocument, asks_for_statements, encode_chain, names_signer
from edge.cli.lazy import HintingGroup, verbosity_option
from edge.cli.output import echo_warnings
from edge.cli.paths import READ, READ_FILE, WRITTEN, command
from edge.cli.ring_options import ca_option, login_option
from edge.deploy.provision.keys import PublicKey, TrustChange, next_chain, read_chain, read_public_key
from edge.deploy.rings.desk import open_desk
from edge.registry.login import read_login
from edge.registry.reference import parse_reference
from edge.writing import write_whole

__all__ = ["trust"]


@click.group(
    cls=HintingGroup,
    epilog="""\b
Examples:
  edge-deploy trust sign -o trust.json --root root --signer release.pub --promoter promoter.pub
  edge-deploy trust sign trust.json -o next.json --root root --revoke stolen.pub
  edge-deploy trust publish trust.json registry.example/farms/gates""",
)
@verbosity_option
def trust() -> None:
    """Whose signatures count, told to devices by a registry, signed by a root key that signs nothing else."""


@command(
    """
  edge-deploy trust sign -o trust.json --root root --signer release.pub --promoter promoter.pub
  edge-deploy trust sign trust.json -o next.json --root root.pub --revoke stolen.pub --signer new.pub
  edge-deploy trust sign trust.json -o next.json --root root --new-root next""",
    group=trust,
    name="sign",
)
@click.argument("before", type=READ_FILE, required=False, metavar="[TRUST]")
@click.option("-o", "--out", type=WRITTEN, required=True, metavar="FILE", help="Where it is written.")
@click.option(
    "--root", type=READ, required=True, metavar="KEY", help="Root key, or its public half if ssh-agent has it."
)
@click.option("--new-root", type=READ, metavar="KEY", help="Takes over from here on; both sign this once.")
@click.option(
    "--signer", "signers", multiple=True, type=READ_FILE, help="Public key that may sign releases. Repeatable."
)
@click.option("--downgrade-signer", "downgraders", multiple=True, type=READ_FILE, help="The same, and steps back.")
@click.option(
    "--promoter", "promoters", multiple=True, type=READ_FILE, help="Public key that may state what rings run."
)
@click.option(
    "--remove", "removed", multiple=True, type=READ_FILE, help="Counts no more; what it signed goes on serving."
)
@click.option(
    "--revoke", "revoked", multiple=True, type=READ_FILE, help="The same, of a key that somebody else may have."
)
def sign_next(
    before: Path | None,
    out: Path,
    root: Path,
    new_root: Path | None,
    signers: tuple[Path, ...],
    downgraders: tuple[Path, ...],
    promoters: tuple[Path, ...],
    removed: tuple[Path, ...],
    revoked: tuple[Path, ...],
) -> int:
    """Make the first document, or the one that follows TRUST, and sign it with the root key."""
    spaces: dict[PublicKey, tuple[str, ...]] = {}
    for paths, namespaces in ((signers, (RELEASE,)), (downgraders, (RELEASE, DOWNGRADE)), (promoters, (RING,))):
        for path in paths:
            key = read_public_key(path)
            spaces[key] = (*spaces.get(key, ()), *namespaces)
    change = TrustChange(
        added=tuple(spaces.items()),
        removed=[read_public_key(path) for path in removed],
        revoked=[read_public_key(path) for path in revoked],
    )
    if before is None and (new_root is not None or removed):
        raise click.UsageError("--new-root and --remove change an earlier document: name it as TRUST")
    earlier = () if before is None else read_chain(before)
    chain = next_chain(earlier, change, root=root, now=datetime.now(timezone.utc), new_root=new_root)
    write_whole(out, encode_chain(chain))
    document = chain[-1].document
    echo_warnings(_missing(document, earlier[-1].document if earlier else document))
    told = f"{len(document.counting)} count, {len(document.revoked)} are revoked"
    click.echo(f"{out}: version {document.version}, {told}")
    return 0


def _missing(document: TrustDocument, before: TrustDocument) -> Iterator[str]:
    counting, listed, last = ("\n".join(one) for one in (document.counting, document.signers, before.signers))
    if not names_signer(counting, RELEASE):
        yield f"version {document.version} lets no key sign releases: devices take none; add --signer KEY.pub"
    if names_signer(last, RING) and not names_signer(counting, RING):
        effect = "no ring gets another release" if asks_for_statements(listed) else "each ring's tag decides alone"
        yield f"version {document.version} has no promoter left: {effect}; add --promoter KEY.pub"


@command(
    """
  edge-deploy trust publish trust.json registry.example/farms/gates""",
    group=trust,
    name="publish",
)
@click.argument("path", type=READ_FILE, metavar="TRUST")
@click.argument("where", metavar="REGISTRY/REPOSITORY")
@ca_option
@login_option
def publish(path: Path, where: str, ca: Path | None, login_path: Path | None) -> int:
    """Put it where devices look; each takes it at its next look, unless it has a later one."""
    chain = read_chain(path)
    login = None if login_path is None else read_login(login_path)
    with open_desk(parse_reference(where, where="REGISTRY/REPOSITORY"), login=login, ca=ca) as desk:
        desk.tell_trust(encode_chain(chain))
    click.echo(f"version {chain[-1].document.version} of who counts is at {where}")
    return 0
