"""`edge-deploy listen`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.core import ParameterSource

from edge.cli.paths import READ, SECONDS, command, pipeline_argument
from edge.cli.ring_options import credential_option
from edge.cli.run_command import let_go
from edge.config.credentials import read_credential
from edge.config.pipeline import load_pipeline, mqtt_from_options
from edge.deploy.listen import ListenOptions
from edge.deploy.listen import listen as listen_to
from edge.errors import ConfigError
from edge.publish.mqtt.subscriber import checked_device

__all__ = ["listen"]

_OF_HOST = ("port", "site", "prefix", "tls", "protocol", "ca", "certificate", "key")


@command(
    """
  edge-deploy listen gates.yaml
  edge-deploy listen --host broker.local --site north --device gate-01
  edge-deploy listen --host localhost --no-tls --json --duration 60
  edge-deploy listen gates.yaml --gaps --duration 600""",
    json="One JSON line per message.",
)
@pipeline_argument("Take the broker from a pipeline file.")
@click.option("--host", metavar="HOST", help="Broker, instead of a pipeline file.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Default: 8883, without TLS 1883.")
@click.option("--site", metavar="NAME", default="default", show_default=True, help="Topic level of the site.")
@click.option("--prefix", metavar="LEVELS", default="edge/v1", show_default=True, help="Topic levels above the site.")
@click.option("--tls/--no-tls", default=True, help="Plain text has to be asked for.")
@click.option(
    "--protocol", type=click.Choice(["auto", "v5", "v3.1.1"]), default="auto", help="Default: v5, then v3.1.1."
)
@click.option("--ca", type=READ, metavar="FILE", help="Authorities that the broker's certificate is checked by.")
@click.option("--certificate", type=READ, metavar="FILE", help="Our own, where the broker wants one.")
@click.option("--key", type=READ, metavar="FILE", help="Of our own certificate.")
@credential_option
@click.option(
    "--client-id", metavar="ID", help="Where the broker allows no other; not a device's, which it would throw out."
)
@click.option("--device", metavar="NAME", default="+", help="One device; default: all of the site.")
@click.option(
    "--gaps", is_flag=True, help="Show only missing numbers; exit with 4 when some are undeclared, 3 when nothing came."
)
@click.option("--duration", "duration_s", type=SECONDS, metavar="S", help="Stop after S seconds.")
@click.option("--count", "max_messages", type=click.IntRange(min=1), metavar="N", help="Stop after N messages.")
def listen(
    path: Path | None,
    host: str | None,
    tls: bool,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    client_id: str | None,
    device: str,
    gaps: bool,
    as_json: bool,
    duration_s: float | None,
    max_messages: int | None,
    credential: str | None,
    **broker: str | int | None,
) -> int:
    """Show what a subscriber sees: detections, events, states, gaps, and numbers that never came."""
    if (path is None) == (host is None):
        raise click.UsageError("give PIPELINE or --host")
    if path is not None:
        source_of = click.get_current_context().get_parameter_source
        if unread := [one for one in _OF_HOST if source_of(one) is ParameterSource.COMMANDLINE]:
            raise click.UsageError(f"--{', --'.join(unread)}: only with --host; PIPELINE says that of its broker")
        pipeline = load_pipeline(path)
        if pipeline.config.mqtt is None:
            raise pipeline.error(("mqtt",), "is missing; there is no broker to listen to")
        mqtt, base_dir = pipeline.config.mqtt, pipeline.path.parent
        login = read_credential(credential) if credential else pipeline.login_of_broker()
    else:
        files = {"ca": ca, "certificate": certificate, "key": key}
        security = {name: str(file) for name, file in files.items() if file is not None} or tls
        mqtt = mqtt_from_options({"host": host, "tls": security, "credential": credential, **broker})
        base_dir = Path()
        login = None if mqtt.credential is None else read_credential(mqtt.credential)
    try:
        checked_device(device)
    except ConfigError as error:
        raise click.BadParameter(str(error).removeprefix("device: "), param_hint="--device") from None
    options = ListenOptions(
        mqtt=mqtt,
        device=device,
        client_id=client_id,
        credential=login,
        base_dir=base_dir,
        is_json=as_json,
        is_gaps=gaps,
        duration_s=duration_s,
        max_messages=max_messages,
    )
    try:
        return listen_to(options, sys.stdout, progress=sys.stderr)
    except BrokenPipeError:  # `| head`: the reader has had enough; here, because click would make it a failure
        let_go(sys.stdout, sys.stderr)
        return 0
