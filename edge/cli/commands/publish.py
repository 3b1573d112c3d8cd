"""`edge-deploy publish`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from edge.bundle.sign import namespace_of, read_signature
from edge.cli.bundles import bundle_of, making_options
from edge.cli.output import echo_result, pair_lines
from edge.cli.paths import READ, command
from edge.cli.ring_options import anyway_option, ca_option, login_option
from edge.deploy.publish import Published
from edge.deploy.publish import publish as publish_bundle
from edge.deploy.rings.desk import open_desk
from edge.registry.https import tls_context
from edge.registry.login import Login, read_login
from edge.registry.reference import parse_reference

__all__ = ["publish"]


@command("""
  edge-deploy publish gates.yaml registry.example/farms/gates
  edge-deploy publish out/bundles/gates-3f9a1c07b2de.bundle registry.example/farms/gates:stable-canary
  edge-deploy publish gates.yaml registry.lan:5000/gates:stable-all --ca registry-ca.pem""")
@click.argument("what", type=READ, metavar="PIPELINE_OR_BUNDLE")
@click.argument("where", metavar="REGISTRY/REPOSITORY[:TAG]")
@ca_option
@login_option
@anyway_option
@making_options
def publish(
    what: Path, where: str, ca: Path | None, login_path: Path | None, is_anyway: bool, as_json: bool, **making: Any
) -> int:
    """Put a release into an OCI registry, from where devices fetch it (edge-runtime pull).

    It is there under its own name; edge-deploy promote has a ring run it. A TAG, such as stable-canary, gives it to
    devices that were provisioned without a promoter. What the registry has already is not sent again; the tag comes
    last, so no device ever sees a part. docs/fleet.md.
    """
    reference = parse_reference(where, where="REGISTRY/REPOSITORY")
    tls_context(ca)  # what is wrong with it is said before a bundle is made
    login: Login | None = None if login_path is None else read_login(login_path)
    bundle = bundle_of(what, **making)
    if not is_anyway:
        with open_desk(reference, login=login, ca=ca) as desk:
            desk.require_counting(read_signature(bundle.signature).fingerprint, namespace_of(bundle.signature))
    published = publish_bundle(bundle, reference, login=login, ca=ca, on_step=_step)
    echo_result(asdict(published), pair_lines(_pairs(published)), as_json=as_json)
    if len(published.tags) == 1 and not as_json:
        click.echo("next: have a ring run it: edge-deploy promote", err=True)
    return 0


def _step(what: str, sent_bytes: int, total_bytes: int) -> None:
    click.echo(f"{what} ({sent_bytes / 1e6:.1f} of {total_bytes / 1e6:.1f} MB)", err=True)


def _pairs(published: Published) -> Iterator[tuple[str, str]]:
    yield "published", f"release {published.release} as {published.digest}"
    yield "sent", f"{published.bytes_sent} of {published.bytes_total} bytes; the registry had the rest"
    yield from (("found as", f"{published.reference}:{tag}") for tag in published.tags)
