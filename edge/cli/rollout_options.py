"""What the commands of a rollout are given: where it is, who tells of devices, shares and times."""

from __future__ import annotations

import re
from typing import Any

import click

from edge.cli.paths import PIPELINE, READ

__all__ = [
    "SHARE",
    "SPAN",
    "ca_option",
    "channel_option",
    "credential_option",
    "json_option",
    "known_as_option",
    "login_option",
    "pipeline_option",
    "where_argument",
]

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class _Span(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A time that passes: `90s`, `30m`, `2h`, `1d`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd]?)", str(value))
        if match is None:
            self.fail(f"expected a time such as 90s, 30m, 2h or 1d, got {value!r}", param, ctx)
        return float(match[1]) * _UNITS_S[match[2]]


class _Share(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A share: `0.95` or `95%`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)(%?)", str(value))
        share = float(match[1]) / (100.0 if match[2] else 1.0) if match else -1.0
        if not 0.0 <= share <= 1.0:
            self.fail(f"expected a share such as 0.95 or 95%, got {value!r}", param, ctx)
        return share


where_argument = click.argument("where", metavar="REGISTRY/REPOSITORY")
channel_option = click.option("--channel", default="stable", show_default=True, help="Of the releases.")
pipeline_option = click.option(
    "--pipeline", "path", type=PIPELINE, required=True, help="Take the broker from this pipeline file."
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
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document, with every device.")
SPAN, SHARE = _Span(), _Share()
