"""The option that says which of a device's agents is to answer."""

from __future__ import annotations

import click

__all__ = ["agent_option"]

agent_option = click.option(
    "--agent",
    type=click.Choice(["any", "installed"]),
    default="any",
    show_default=True,
    help="Who answers on a device: whose turn it is, or what provision has installed, whatever releases have brought.",
)
