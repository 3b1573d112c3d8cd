"""Which targets the words on a command line mean."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edge.config.targets import ALL, Inventory, Target
from edge.errors import ConfigError

__all__ = ["select"]

_ADDRESS = re.compile(
    r"((?P<user>[A-Za-z_][A-Za-z0-9_.-]*)@)?(?P<host>[A-Za-z0-9_.][A-Za-z0-9_.-]*|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+)"
)


def select(words: Sequence[str], inventory: Inventory) -> tuple[Target, ...]:
    """Return the targets that `words` mean, each once, in the order in which they are first meant.

    A word is a name of the inventory, `label=value`, `all`, or `[user@]host` as ssh knows it.

    Raises `ConfigError` if a word means nothing.
    """
    found: dict[str, Target] = {}
    for word in words:
        for target in _meant_by(word, inventory):
            found.setdefault(target.name, target)
    return tuple(found.values())


def _meant_by(word: str, inventory: Inventory) -> Sequence[Target]:
    if word in inventory.targets:
        return [inventory.targets[word]]
    if word == ALL:
        if not inventory.targets:
            raise ConfigError("all: there is no inventory", hint="write a targets.toml, or give --targets FILE")
        return list(inventory.targets.values())
    if "=" in word:
        return _labelled(word, inventory)
    address = _ADDRESS.fullmatch(word)
    if address is None:
        raise ConfigError(
            f"{word!r} is no target", hint="give a name of the inventory, label=value, all, or [user@]host"
        )
    return [Target(name=word, host=address["host"], user=address["user"])]


def _labelled(word: str, inventory: Inventory) -> Sequence[Target]:
    label, _, value = word.partition("=")
    having = [target for target in inventory.targets.values() if target.labels.get(label) == value]
    if not having:
        known = sorted(
            {f"{key}={text}" for target in inventory.targets.values() for key, text in target.labels.items()}
        )
        raise ConfigError(
            f"no target has {word}", hint=f"known: {', '.join(known)}" if known else "no target has a label"
        )
    return having
