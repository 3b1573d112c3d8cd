"""Text that somebody else wrote, such as a device, made fit for a terminal."""

from __future__ import annotations

from typing import Any

__all__ = ["cleaned", "cleaned_json"]


def cleaned(text: str) -> str:
    """Return the text as one line that can neither move a cursor, nor colour, nor reorder what a person reads.

    White space becomes a space. All else that has no shape of its own becomes `?`: control characters (and with them
    every escape sequence), what turns the direction of writing, zero-width characters, halves of surrogate pairs.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else " " if one in "\t\n\r" else "?" for one in text)


def cleaned_json(value: Any, *, most: int | None = None) -> Any:
    """Return plain JSON with every text in it cleaned, names, too; each has at most so many characters."""
    if isinstance(value, dict):
        return {cleaned(name)[:most]: cleaned_json(inner, most=most) for name, inner in value.items()}
    if isinstance(value, list):
        return [cleaned_json(inner, most=most) for inner in value]
    return cleaned(value)[:most] if isinstance(value, str) else value
