"""`proxy.env`: what systemd gives edge-pull.service, for who starts a pull by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from edge.errors import DeployError
from edge.reading import read_file

__all__ = ["read_environment"]

# Source: systemd.exec(5), EnvironmentFile=. A quote counts at the beginning of a value, and a value may be several.
_QUOTED = re.compile(r"""'([^']*)'\s*|"((?:[^"\\]|\\.)*)"\s*""")
_ESCAPED_IN_QUOTES = re.compile(r'\\(["\\`$])')
_CONTINUED = re.compile(r"\\\n")
_ESCAPED = re.compile(r"\\(.)")


def read_environment(path: Path) -> Mapping[str, str]:
    """Return the variables of a file; none where there is no file, or it is not for us: then systemd has read it.

    Raises:
        DeployError: `device.settings` with the line, and nothing of what stands in it, which may be a password.
    """
    try:
        text = read_file(path, follows_links=True).decode("utf-8")  # root's folder
    except (FileNotFoundError, PermissionError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(str(path), str(getattr(error, "strerror", None) or "expected UTF-8")) from None
    found = {}
    for number, line in enumerate(_CONTINUED.sub("", text).splitlines(), start=1):
        name, equals, value = line.partition("=")
        if equals and name.strip()[:1] not in ("#", ";"):
            found[name.strip()] = _unquoted(value.strip(), f"{path}:{number}")
    return found


def _unquoted(value: str, where: str) -> str:
    whole = ""
    while match := _QUOTED.match(value):
        single, double = match.groups()
        whole += _ESCAPED_IN_QUOTES.sub(r"\1", double) if single is None else single
        value = value[match.end() :]
    if value[:1] in ("'", '"'):
        raise _wrong(where, "a quote that is not closed")
    return whole + _ESCAPED.sub(r"\1", value)


def _wrong(where: str, what: str) -> DeployError:
    return DeployError("device.settings", f"{where}: {what}", hint="write https_proxy=http://proxy.lan:3128")
