"""Running either command: what a person sees of an error, and the exit codes."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import traceback
from typing import NoReturn, TextIO

import click

from edge.cli.interrupts import end_as_interrupted, hand_over_interrupts
from edge.device.units import FAILURE, LACKING_STATUS, Notifier
from edge.errors import ConfigError, DeployError, EdgeError, LackingError, MissingDependencyError, ModelError
from edge.stdout import lenient_stderr, stdout_problem
from edge.writing import remedy

__all__ = ["INTERRUPTED", "exit_code_of", "let_go", "run_command", "tell"]

_INTERNAL_ERROR = 1
_USAGE_ERROR = 2
_SERVICE_CONFIGURATION = 78  # EX_CONFIG: tells systemd that a restart does not help
INTERRUPTED = 130
_STATUS_CHARACTERS = 500


def run_command(command: click.Command, *, is_service: bool = False) -> NoReturn:
    """Run `command` and end the process with its exit code; a traceback is only shown with `-v`."""
    lenient_stderr()
    if not is_service:
        end_as_interrupted()
    code = exit_code_of(command, is_service=is_service)
    media = sys.modules.get("edge.media.threads")  # only a command that has read streams has loaded it
    if media is not None and media.has_stuck_threads():
        # A thread that never came back from a decoder would crash the interpreter while it is taken down.
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def exit_code_of(command: click.Command, *, is_service: bool) -> int:
    """Run `command` and return its exit code, with every error told."""
    try:
        hand_over_interrupts()
        code = command.main(standalone_mode=False)
        return _full_stdout() or (code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        return _USAGE_ERROR
    except (click.Abort, KeyboardInterrupt):
        return _interrupted()
    except SystemExit as ended:  # as our groups and rich answer a closed pipe
        closed = ended.__context__
        if not isinstance(closed, BrokenPipeError):
            raise
        return _full_stdout(closed) if _is_of_printing(closed) else _failed(closed, is_service=is_service)
    except Exception as error:
        return _interrupted() if _is_of_ctrl_c(error) else _failed(error, is_service=is_service)


def _interrupted() -> int:
    tell("interrupted")
    return INTERRUPTED


def _is_of_ctrl_c(error: BaseException | None) -> bool:
    """Return whether Ctrl-C led to it: an import makes an ImportError of it, and a library may stumble over its end."""
    seen: set[int] = set()  # causes may go round in a circle
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _failed(error: Exception, *, is_service: bool) -> int:
    if isinstance(error, EdgeError):
        tell(f"error: {error}{_code_and_numbers(error)}")
        if is_service:
            Notifier().tell(f"STATUS={FAILURE}{str(error)[:_STATUS_CHARACTERS]}")
        return _service_code(error) if is_service and "INVOCATION_ID" in os.environ else error.exit_code
    # The border: everything else is ours to mend.
    if isinstance(error, OSError) and (full := _full_stdout(error if _is_of_printing(error) else None)):
        return full
    if logging.getLogger("edge").isEnabledFor(logging.INFO):
        logging.getLogger(__name__).error("internal error", exc_info=error)
    if isinstance(error, OSError) and isinstance(error.filename, (str, bytes, os.PathLike)) and error.strerror:
        todo = f"; {room} (TMPDIR for temporary files)" if (room := remedy(error, "")) else ""
        tell(f"error: {os.fsdecode(error.filename)}: {error.strerror}{todo}")
        return _USAGE_ERROR
    tell(f"internal error: {type(error).__name__}: {error}; run again with -v and report it")
    return _INTERNAL_ERROR


def _full_stdout(raised: OSError | None = None) -> int:
    """Return the exit code where standard output took not all of the result, with that told; else 0."""
    problem = stdout_problem(raised)
    if problem is None:
        return 0
    tell(f"error: {problem}")
    return problem.exit_code


def _is_of_printing(error: OSError) -> bool:
    """Return whether an error came from printing, whose errors name no file."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).partition(".")[0] in ("click", "rich")


def _code_and_numbers(error: EdgeError) -> str:
    if not isinstance(error, DeployError):
        return ""
    # A device wrote them: JSON leaves nothing that a terminal would obey.
    told = (f"\n  {json.dumps(name)[1:-1]}: {json.dumps(one)}" for name, one in error.evidence.items())
    return f" ({error.code}){''.join(told)}"


def tell(text: str) -> None:
    """Say something to the person at the terminal; where it cannot be heard (a full or closed stderr), go on."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def let_go(*streams: TextIO) -> None:
    """Send nowhere what is still buffered for a reader who has gone: Python complains at its end otherwise."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _service_code(error: EdgeError) -> int:
    if isinstance(error, (LackingError, MissingDependencyError)):
        return LACKING_STATUS
    is_configuration = isinstance(error, (ConfigError, ModelError))
    return _SERVICE_CONFIGURATION if is_configuration else error.exit_code
