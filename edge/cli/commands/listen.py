"""`edge-deploy listen`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from edge.cli.lazy import verbosity_option
from edge.cli.options import SECONDS
from edge.cli.paths import PIPELINE, READ, Command

__all__ = ["listen"]


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  edge-deploy listen --pipeline gates.yaml
  edge-deploy listen --host broker.local --site north --device gate-01
  edge-deploy listen --host localhost --no-tls --json --duration 60
  edge-deploy listen --pipeline gates.yaml --gaps --duration 600""",
)
@click.option("--pipeline", "path", type=PIPELINE, help="Take the broker from a pipeline file.")
@click.option("--host", help="Broker, instead of a pipeline file.")
@click.option("--port", type=click.IntRange(1, 65535), help="Default: 8883, without TLS 1883.")
@click.option("--site", default="default", show_default=True, help="Topic level of the site.")
@click.option("--prefix", default="edge/v1", show_default=True, help="Topic levels above the site.")
@click.option("--tls/--no-tls", default=True, help="Plain text has to be asked for.")
@click.option(
    "--protocol", type=click.Choice(["auto", "v5", "v3.1.1"]), default="auto", help="Default: v5, then v3.1.1."
)
@click.option("--ca", type=READ, help="Authorities that the broker's certificate is checked by.")
@click.option("--credential", help='Name of a secret "user:password".')
@click.option("--device", default="+", help="One device; default: all of the site.")
@click.option("--gaps", is_flag=True, help="Show only missing numbers; exit with 4 when some are undeclared.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per message.")
@click.option("--duration", "duration_s", type=SECONDS, metavar="S", help="Stop after S seconds.")
@click.option("--count", "max_messages", type=click.IntRange(min=1), metavar="N", help="Stop after N messages.")
@verbosity_option
def listen(
    path: Path | None,
    host: str | None,
    port: int | None,
    site: str,
    prefix: str,
    tls: bool,
    protocol: str,
    ca: Path | None,
    credential: str | None,
    device: str,
    gaps: bool,
    as_json: bool,
    duration_s: float | None,
    max_messages: int | None,
) -> int:
    """Show what a subscriber sees: detections, events, states, gaps, and numbers that never came."""
    from edge.config.credentials import read_credential
    from edge.config.load import load_pipeline, mqtt_from_options
    from edge.deploy.listen import ListenOptions
    from edge.deploy.listen import listen as listen_to
    from edge.errors import ConfigError
    from edge.publish.mqtt.subscriber import checked_device

    if (path is None) == (host is None):
        raise click.UsageError("give either --pipeline or --host")
    if path is not None:
        pipeline = load_pipeline(path)
        if pipeline.config.mqtt is None:
            raise pipeline.error(("mqtt",), "is missing; there is no broker to listen to")
        mqtt, base_dir = pipeline.config.mqtt, pipeline.path.parent
    else:
        security = {"ca": str(ca)} if ca is not None else tls
        broker = {"host": host, "port": port, "site": site, "prefix": prefix, "tls": security}
        mqtt = mqtt_from_options({**broker, "credential": credential, "protocol": protocol})
        base_dir = Path()
    try:
        checked_device(device)
    except ConfigError as error:
        raise click.BadParameter(str(error).removeprefix("device: "), param_hint="--device") from None
    options = ListenOptions(
        mqtt=mqtt,
        device=device,
        credential=None if mqtt.credential is None else read_credential(mqtt.credential),
        base_dir=base_dir,
        is_json=as_json,
        is_gaps=gaps,
        duration_s=duration_s,
        max_messages=max_messages,
    )
    try:
        return listen_to(options, sys.stdout, progress=sys.stderr)
    except BrokenPipeError:  # `| head`: the reader has had enough; here, because click would make it a failure
        # What is still buffered has to go somewhere, or Python complains when it ends.
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 0
