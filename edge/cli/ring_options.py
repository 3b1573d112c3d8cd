"""Options of the commands of rings: registry, broker and key; opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from edge.cli.paths import PIPELINE, READ
from edge.cli.run_command import tell
from edge.config.credentials import read_credential
from edge.config.pipeline import load_pipeline
from edge.deploy.rings.desk import PublishedRelease, RingDesk, open_desk
from edge.deploy.rings.hearing import Hearing
from edge.registry.login import read_login
from edge.registry.reference import parse_reference

__all__ = [
    "anyway_option",
    "ca_option",
    "credential_option",
    "known_as_option",
    "login_option",
    "pipeline_option",
    "heard",
    "key_option",
    "opened",
    "release_argument",
]

release_argument = click.argument("where", metavar="REGISTRY/REPOSITORY:RELEASE")
key_option = click.option("--key", type=READ, metavar="KEY", help="SSH key that signs. Default: the first of ~/.ssh.")
pipeline_option = click.option(
    "--pipeline", "path", type=PIPELINE, metavar="PIPELINE", help="Take the broker from this pipeline file."
)
credential_option = click.option(
    "--credential", metavar="NAME", help='Name of a secret "user:password" for the broker. Default: the pipeline\'s.'
)
ca_option = click.option("--ca", type=READ, metavar="FILE", help="Certificate of the registry's own CA, in PEM.")
login_option = click.option(
    "--login",
    "login_path",
    type=READ,
    metavar="FILE",
    help="A file with user:password. Default: what docker or podman keep for this registry.",
)
known_as_option = click.option(
    "--known-as",
    metavar="REGISTRY/REPOSITORY",
    help="The same repository as the devices name it, if they reach it by another name or port.",
)
anyway_option = click.option(
    "--anyway",
    "is_anyway",
    is_flag=True,
    help="Although the registry's trust document does not count the key: for devices without one.",
)


@contextmanager
def opened(
    where: str, login_path: Path | None, ca: Path | None, known_as: str | None = None
) -> Iterator[tuple[RingDesk, PublishedRelease]]:
    reference = parse_reference(where, where="RELEASE")
    if reference.tag is None:
        raise click.BadParameter(f"{where} names no release; add :RELEASE, as publish printed it", param_hint="RELEASE")
    login = None if login_path is None else read_login(login_path)
    known = None if known_as is None else parse_reference(known_as, where="--known-as")
    with open_desk(reference, login=login, ca=ca, known_as=known) as desk:
        yield desk, desk.release(reference.tag)


@contextmanager
def heard(path: Path, credential: str | None) -> Iterator[tuple[Hearing, str]]:
    """Give the words of all devices, once the broker has told all that it keeps, and the site of the pipeline."""
    pipeline = load_pipeline(path)
    mqtt = pipeline.config.mqtt
    if mqtt is None:
        raise pipeline.error(("mqtt",), "is missing; there is no broker that devices could speak to")
    secret = read_credential(credential) if credential else pipeline.login_of_broker()
    with Hearing(mqtt, credential=secret, base_dir=pipeline.path.parent, say=tell) as hearing:
        hearing.wait_complete()
        yield hearing, mqtt.site
