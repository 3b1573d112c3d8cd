"""The light commands, where the group lists them or a `-v` stands before them."""

from __future__ import annotations

import click

from edge.runtime.entry import main

__all__ = ["adopt", "agent", "facts", "health", "pull", "recover", "rollback", "software", "trial"]


def _light(name: str) -> click.Command:
    def run(arguments: tuple[str, ...]) -> int:
        return main(name, arguments)

    settings = {"ignore_unknown_options": True, "help_option_names": []}
    argument = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    return click.command(name, context_settings=settings, add_help_option=False)(argument(run))


adopt = _light("adopt")
agent = _light("agent")
facts = _light("facts")
health = _light("health")
pull = _light("pull")
recover = _light("recover")
rollback = _light("rollback")
software = _light("software")
trial = _light("trial")
