"""Which paths of a command line are read and which are written: no result replaces what it is made of.

A parameter says so by its type, and a command is a `Command`, which looks before it works. What a folder or a file
brings along (its images, what a pipeline names) counts as read, too. Other types of parameters stand here as well.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from edge.cli.lazy import verbosity_option
from edge.errors import ConfigError, EdgeError

__all__ = [
    "CAMERA",
    "FOLDER",
    "IMAGES",
    "LABELS",
    "MODEL",
    "PIPELINE",
    "READ",
    "READ_FILE",
    "READ_FOLDER",
    "RELEASE",
    "SECONDS",
    "SSH_CONFIG",
    "STREAMED",
    "WRITTEN",
    "Command",
    "ReadPath",
    "WrittenFolder",
    "WrittenPath",
    "command",
    "engine_option",
    "pipeline_argument",
    "skip_option",
]


class _Seconds(click.FloatRange):
    """A time that passes: finite and positive."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"expected a finite number of seconds, got {value}", param, ctx)
        return seconds


SECONDS = _Seconds(min=0, min_open=True)


class _EngineKind(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The name of a kind of engine, or `auto`; which kinds there are is looked up when it is asked."""

    name = "kind"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(_names())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in _names():
            self.fail(f"there is no engine {value!r}; expected one of {', '.join(_names())}", param, ctx)
        return str(value)


def _names() -> tuple[str, ...]:
    from edge.engine.kinds import AUTO, kinds

    return AUTO, *kinds()


engine_option = click.option(
    "--engine", type=_EngineKind(), default="auto", show_default=True, help="The kind of engine to use."
)

skip_option = click.option(
    "--skip-undecodable", "is_skipping_undecodable", is_flag=True, help="Leave out files that cannot be decoded."
)


_STDOUT = Path("-")


class ReadPath(click.Path):
    """A path that a command reads; `files` gives all its files, `may_stream` lets a pipe or a device be one."""

    def __init__(
        self,
        files: Callable[[Path], Iterable[Path]] = lambda path: (path,),
        *,
        may_stream: bool = False,
        **settings: bool,
    ) -> None:
        super().__init__(path_type=Path, **settings)
        self.files = files
        self.may_stream = may_stream


class CameraPath(ReadPath):
    """Where a stream comes from: an address, kept as text, or the path of a clip or of a folder of them."""

    name = "camera"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return text or a path; click.BadParameter if it can be neither."""
        from edge.config.uris import local_path

        if str(value).startswith("/dev/video"):
            return f"v4l2://{value}"
        try:
            path = local_path(str(value), Path())
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value) if path is None else path


class WrittenPath(click.Path):
    """A file that a command writes; `may_stream`: also into a pipe or a device, or to stdout (`-`)."""

    def __init__(self, *, may_stream: bool = False) -> None:
        super().__init__(path_type=Path)
        self.may_stream = may_stream


class WrittenFolder(click.Path):
    """A folder into which a command puts files of its own names."""


class Command(click.Command):
    """A command that looks at its places before it works."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; ConfigError if a result cannot be written where it is wanted, or would replace what is read."""
        _require_places(ctx)
        return super().invoke(ctx)


def command(
    examples: str, *, group: click.Group | None = None, json: str = "One JSON document.", **settings: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return what makes a `Command` with `-v`, with `--json` where it takes `as_json`, and with examples."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        made = click.command(cls=Command, epilog=f"\b\nExamples:{examples}", **settings)(function)
        if "as_json" in inspect.signature(function).parameters:
            made = click.option("--json", "as_json", is_flag=True, help=json)(made)
        if group is not None:
            group.add_command(made)
        return verbosity_option(made)

    return decorate


@dataclass(frozen=True, slots=True)
class _Place:
    """A path on the command line, and how its parameter is called there."""

    called: str
    path: Path
    kind: ReadPath | WrittenPath


def _require_places(ctx: click.Context) -> None:
    places = [place for param in ctx.command.params for place in _places(param, ctx.params.get(param.name or ""))]
    written = [one for one in places if isinstance(one.kind, WrittenPath) and one.path != _STDOUT]
    for number, one in enumerate(written):
        _require_writable(one)
        for other in written[:number]:
            if _identity(one.path) == _identity(other.path):
                raise ConfigError(
                    f"{one.called} {one.path}: is the place of {other.called} too", hint="name another file"
                )
    for place in places:
        _require_no_stream(place)
    # Nothing that is not there can be read, so that most command lines cost nothing here.
    existing = {_identity(one.path): one for one in written if one.path.exists()}
    for place in places if existing else ():
        for path in place.kind.files(place.path) if isinstance(place.kind, ReadPath) else ():
            lost = existing.get(_identity(path))
            if lost is not None:
                raise ConfigError(
                    f"{lost.called} {lost.path}: is read by this command ({place.called}), and would be lost",
                    hint="name another file",
                )


def _places(param: click.Parameter, value: object) -> Iterator[_Place]:
    if isinstance(param.type, (ReadPath, WrittenPath)):
        called = param.human_readable_name.upper() if isinstance(param, click.Argument) else max(param.opts, key=len)
        for path in value if isinstance(value, tuple) else (value,):
            if isinstance(path, Path):
                yield _Place(called, path, param.type)


def _require_no_stream(place: _Place) -> None:
    """Refuse a pipe, which would be waited for, a device, which may have no end, and a place that is closed to us."""
    try:
        mode = place.path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return  # its reader says so
    except OSError as error:  # `Path.is_dir` of Python 3.14 would say that there is none
        raise ConfigError(
            f"{place.called} {place.path}: {error.strerror}", hint="name one that this user may read"
        ) from None
    if not place.kind.may_stream and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ConfigError(
            f"{place.called} {place.path}: expected a file, this is a pipe or a device",
            hint="name a file; what a pipe gives has to be kept in one first",
        )


def _require_writable(place: _Place) -> None:
    path, where = place.path, f"{place.called} {place.path}"
    try:
        is_stream = not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        is_stream = False
    except OSError as error:
        raise ConfigError(
            f"{where}: cannot be written: {error.strerror}", hint="name a file in a folder of yours"
        ) from error
    if path.is_dir():
        raise ConfigError(f"{where}: expected a file, this is a folder", hint="name a file in it")
    if not path.parent.is_dir():
        raise ConfigError(
            f"{where}: expected a file in a folder that is there", hint="make the folder, or name another"
        )
    needed = (path,) if is_stream else (path, path.parent)  # in which the file is replaced
    if not all(os.access(one, os.W_OK) for one in needed if one.exists()):
        raise ConfigError(f"{where}: cannot be written", hint="name a file in a folder of yours")


def _identity(path: Path) -> tuple[int, int] | str:
    """Return what two names of one file share; a hard link and another spelling are the same file."""
    try:
        status = path.stat()
    except OSError:
        return os.path.realpath(path)
    return status.st_dev, status.st_ino


def _images(folder: Path) -> Iterable[Path]:
    from edge.media.images import list_images

    return list_images(folder)


def _in_folder(pattern: str) -> Callable[[Path], Iterable[Path]]:
    return lambda path: path.glob(pattern) if path.is_dir() else (path,)


def _model(path: Path) -> Iterator[Path]:
    from edge.model.binding import external_locations
    from edge.model.graph import parsed, read_model_bytes

    yield path
    with contextlib.suppress(EdgeError):  # the command itself says what is wrong with it
        yield from (path.parent / name for name in external_locations(parsed(read_model_bytes(path), str(path))))


def _pipeline(path: Path) -> Iterator[Path]:
    from edge.config.pipeline import files_of_pipeline, load_pipeline

    yield path
    if path.is_file():
        yield from (file for _, file in files_of_pipeline(load_pipeline(path)))


READ = ReadPath()
READ_FILE = ReadPath(dir_okay=False)
SSH_CONFIG = ReadPath(may_stream=True, dir_okay=False)  # /dev/null: none at all
CAMERA = CameraPath(_in_folder("*"))
READ_FOLDER = ReadPath(file_okay=False)
IMAGES = ReadPath(_images)
LABELS = ReadPath(_in_folder("*.txt"))
MODEL = ReadPath(_model)
PIPELINE = ReadPath(_pipeline)
RELEASE = ReadPath(lambda folder: folder.rglob("*"))
WRITTEN = WrittenPath()
STREAMED = WrittenPath(may_stream=True)
FOLDER = WrittenFolder(path_type=Path)


def pipeline_argument(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator by which a command takes PIPELINE as an argument, or by `--pipeline`, as `path`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.argument("argument", metavar="[PIPELINE]", required=False, type=PIPELINE)
        @click.option("--pipeline", "option", type=PIPELINE, metavar="PIPELINE", help=help_text)
        @functools.wraps(command)
        def with_path(*args: Any, argument: Path | None, option: Path | None, **others: Any) -> Any:
            if argument is not None and option is not None:
                raise click.UsageError(f"PIPELINE is given twice: {argument} and {option}")
            return command(*args, path=argument or option, **others)

        return with_path

    return decorate
