"""`edge-runtime build`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.paths import READ, command

if TYPE_CHECKING:
    from edge.device.device import Device
    from edge.runtime.build.request import BuildResult

__all__ = ["build"]


@command("""
  edge-runtime build --request /var/lib/edge-deploy/build-request.json""")
@click.option("--request", type=READ, required=True, metavar="FILE", help="What a push has asked for, as JSON.")
@click.option("--root", type=READ, default="/", metavar="DIR", help="Stands for /; for tests.")
def build(request: Path, root: Path, as_json: bool) -> int:
    """Make the engine for this machine, or find it made, and let it pass the release's golden frames.

    While it works, the release that serves goes on serving. Exits with 7 when there is no engine at the
    end, or one that does not find what the float model finds.
    """
    from edge.device.device import Device
    from edge.device.layout import Layout

    _tell(_build(Device(Layout(root)), request), as_json=as_json)
    return 0


def _build(device: Device, request: Path) -> BuildResult | None:
    from edge.cli.commands.run import stop_on_signals
    from edge.runtime.build.request import read_request

    if read_request(request) is None:
        return None  # before anything heavy is loaded: the way back starts this whether it asks for something or not
    from edge.runtime.build.engine import Builder, answer_request

    with stop_on_signals() as stop:
        return answer_request(Builder(device=device, deadline_s=_deadline_s(device), stop=stop), request)


def _deadline_s(device: Device) -> float:
    from edge.device.facts import DeviceSettings, read_settings
    from edge.errors import DeployError

    try:
        return read_settings(device.layout.device_toml).build_deadline_s
    except DeployError:
        return DeviceSettings(name="unknown", compatible=("any",)).build_deadline_s


def _tell(result: BuildResult | None, *, as_json: bool) -> None:
    from edge.cli.output import echo_json, echo_pairs
    from edge.cli.run_command import tell
    from edge.codec import encode

    if result is None:
        tell("nothing was asked for")
        return
    if as_json:
        echo_json(encode(result))
        return
    how = "was here" if result.reused else f"built and proven in {result.seconds} s"
    golden = "no golden frames: nothing was proven"
    if result.golden is not None:
        golden = f"{result.golden.found} of {result.golden.expected} sure detections found again"
    echo_pairs([("engine", f"{str(result.key)[:12]}, {how}"), ("runs", result.engine), ("golden", golden)])
