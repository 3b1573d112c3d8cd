"""Common parts of our HTML files: no script, nothing from elsewhere, light and dark."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click

from edge.calibrate.files import write_bytes

__all__ = ["definitions", "html_table", "whole_page", "write_page"]

_LIGHT = {"ground": "#fcfcfb", "text": "#17171a", "quiet": "#5c5c63", "grid": "#e4e4e1"}
_DARK = {"ground": "#18181b", "text": "#ececee", "quiet": "#a5a5ad", "grid": "#36363c"}
_STYLE = """
body { background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .3rem; }
h3 { font-size: .9rem; margin: 0; overflow-wrap: anywhere; } p { margin: .3rem 0 .8rem; max-width: 52rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dd { margin: 0; overflow-wrap: anywhere; }
dt, .note, figcaption { color: var(--quiet); } .note, figcaption { font-size: .87rem; }
.wide { overflow-x: auto; } .wide svg { min-width: 46rem; } svg { display: block; width: 100%; height: auto; }
figure { margin: 0; }
svg text { font: 11px system-ui, sans-serif; fill: var(--quiet); }
svg text.mark { fill: var(--text); font-weight: 600; }
.grid { stroke: var(--grid); } .axis { stroke: var(--quiet); }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 .9em; border-radius: 2px;
  vertical-align: -.05em; } .key:first-child { margin-left: 0; } .key.dot { border-radius: 50%; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .2rem .55rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid); }
th { vertical-align: bottom; white-space: normal; } td.text, th.text { text-align: left; }
td.name { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; }
"""


def whole_page(title: str, body: str, *, light: Mapping[str, str], dark: Mapping[str, str], style: str) -> str:
    """Return the file: `body` is HTML, `light` and `dark` are further colours by name, `style` uses them."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>\n:root {{ color-scheme: light dark; {_colours({**_LIGHT, **light})} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_colours({**_DARK, **dark})} }} }}"
        f"{_STYLE}{style}</style></head><body>\n{body}</body></html>\n"
    )


def write_page(path: Path, page: str) -> None:
    write_bytes(path, page.encode())
    click.echo(f"{path} written", err=True)


def _colours(named: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in named.items())


def definitions(facts: Iterable[tuple[str, str]]) -> str:
    """Escape names and values."""
    return f"<dl>{''.join(f'<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>' for name, text in facts)}</dl>\n"


def html_table(
    columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]], *, styles: Iterable[str] | None = None
) -> str:
    """Return a table of escaped cells; `columns` are heads and classes, `styles` classes of the rows."""
    head = "".join(f'<th class="{style}">{html.escape(name)}</th>' for name, style in columns)
    cells = [
        "".join(f'<td class="{style}">{html.escape(cell)}</td>' for (_, style), cell in zip(columns, row, strict=True))
        for row in rows
    ]
    styled = [""] * len(cells) if styles is None else styles
    lines = "".join(f'<tr class="{style}">{row}</tr>' for style, row in zip(styled, cells, strict=True))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
