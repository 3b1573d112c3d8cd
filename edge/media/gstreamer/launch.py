"""The launch texts under `pipelines/launch/`: sections of GStreamer launch descriptions, read and parsed here.

A comment is a whole line that begins with `#`, a section begins with its name in brackets, and everything up to the
next one is a single launch description, on as many lines as it likes.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

from edge.errors import ConfigError

__all__ = ["joined", "parse_sections", "read_sections"]


def joined(*descriptions: str) -> str:
    """Return one launch description in which each of `descriptions` is linked to the next; empty ones are left out."""
    return " ! ".join(description for description in descriptions if description)


@cache
def read_sections(name: str) -> dict[str, str]:
    """Raises `ConfigError` if there is no launch text `name`, e.g. `software`, or it cannot be parsed."""
    file_name = f"{name}.launch"
    return parse_sections(_find_text(file_name), file_name)


def parse_sections(text: str, file_name: str) -> dict[str, str]:
    """Return section name -> launch description on one line. Asking for a section that is not there says which are.
    Raises `ConfigError` if text stands before the first header, or a header is empty or comes twice.
    """
    lines: dict[str, list[str]] = {}
    current: list[str] | None = None
    for number, line in enumerate((raw.strip() for raw in text.splitlines()), start=1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            current = _start_section(lines, line[1:-1].strip(), f"{file_name}:{number}")
        elif current is None:
            raise ConfigError(f"{file_name}:{number}: expected a [section] header first, got {line!r}")
        else:
            current.append(line)
    return _Sections(file_name, {name: " ".join(parts) for name, parts in lines.items()})


def _start_section(lines: dict[str, list[str]], name: str, where: str) -> list[str]:
    if not name or name in lines:
        raise ConfigError(f"{where}: expected a new section name, got [{name}]")
    lines[name] = []
    return lines[name]


class _Sections(dict[str, str]):
    """A dict whose missing keys are errors for the user."""

    def __init__(self, file_name: str, sections: dict[str, str]) -> None:
        super().__init__(sections)
        self._file_name = file_name

    def __missing__(self, name: str) -> str:
        known = ", ".join(self) or "none"
        raise ConfigError(f"{self._file_name}: there is no section [{name}]", hint=f"its sections are: {known}")


def _find_text(file_name: str) -> str:
    """Installed, the texts are data of `edge.pipelines`; in a checkout they lie beside the package."""
    try:
        return (resources.files("edge.pipelines") / "launch" / file_name).read_text("utf-8")
    except (ModuleNotFoundError, FileNotFoundError):
        pass
    path = Path(__file__).resolve().parents[3] / "pipelines" / "launch" / file_name
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(
            f"launch text {file_name} is neither in the package edge.pipelines nor at {path}",
            hint="install the package again, with its data files",
        ) from error
