"""`edge-deploy publish`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.lazy import verbosity_option
from edge.cli.options import golden_limit_option
from edge.cli.paths import IMAGES, READ, Command
from edge.cli.software_options import software_options

if TYPE_CHECKING:
    from edge.bundle.manifest import GoldenLimits
    from edge.deploy.provision.lock import Environment
    from edge.deploy.publish.publish import Published
    from edge.registry.login import Login

__all__ = ["publish"]


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  edge-deploy publish gates.yaml registry.example/farms/gates
  edge-deploy publish out/bundles/gates-3f9a1c07b2de.bundle registry.example/farms/gates:stable-canary
  edge-deploy publish gates.yaml registry.lan:5000/gates:stable-all --ca registry-ca.pem""",
)
@click.argument("what", type=READ, metavar="PIPELINE_OR_BUNDLE")
@click.argument("where", metavar="REGISTRY/REPOSITORY[:TAG]")
@click.option("--ca", type=READ, metavar="FILE", help="Certificate of the registry's own CA, in PEM.")
@click.option(
    "--login",
    "login_path",
    type=READ,
    metavar="FILE",
    help="A file with user:password. Default: what docker or podman keep for this registry.",
)
@click.option("--key", type=READ, metavar="KEY", help="SSH key that signs a pipeline's bundle.")
@click.option(
    "--golden",
    type=IMAGES,
    metavar="DIR",
    help="Images to prove a pipeline's bundle on. Default: frames of its clips.",
)
@golden_limit_option
@software_options
@click.option("--json", "as_json", is_flag=True, help="What was published, as JSON.")
@verbosity_option
def publish(
    what: Path,
    where: str,
    ca: Path | None,
    login_path: Path | None,
    key: Path | None,
    golden: Path | None,
    golden_limits: GoldenLimits | None,
    has_software: bool,
    libraries: Environment | None,
    as_json: bool,
) -> int:
    """Put a release into an OCI registry, from where devices fetch it (edge-runtime pull).

    It is always there under its own name. With a TAG, such as stable-canary, the devices of that channel and ring run
    it as soon as they look. What the registry has already is not sent again; the tag comes last, so no device ever
    sees a part. docs/registry.md.
    """
    from edge.cli.bundles import bundle_of
    from edge.deploy.publish.publish import publish as publish_bundle
    from edge.registry.https import tls_context
    from edge.registry.login import read_login
    from edge.registry.reference import parse_reference

    reference = parse_reference(where, where="REGISTRY/REPOSITORY")
    tls_context(ca)  # what is wrong with it is said before a bundle is made
    login: Login | None = None if login_path is None else read_login(login_path)
    bundle = bundle_of(
        what, key=key, golden=golden, limits=golden_limits, has_software=has_software, libraries=libraries
    )
    published = publish_bundle(bundle, reference, login=login, ca=ca, on_step=_step)
    _tell(published, as_json=as_json)
    return 0


def _step(what: str, sent_bytes: int, total_bytes: int) -> None:
    click.echo(f"{what} ({sent_bytes / 1e6:.1f} of {total_bytes / 1e6:.1f} MB)", err=True)


def _tell(published: Published, *, as_json: bool) -> None:
    from edge.cli.output import echo_json, echo_pairs

    if as_json:
        echo_json(asdict(published))
        return
    echo_pairs(
        (
            ("published", f"release {published.release} as {published.digest}"),
            ("sent", f"{published.bytes_sent} of {published.bytes_total} bytes; the registry had the rest"),
            *(("found as", f"{published.reference}:{tag}") for tag in published.tags),
        )
    )
    if len(published.tags) == 1:
        click.echo("no ring has it yet; publish it once more with a tag, such as :stable-canary", err=True)
