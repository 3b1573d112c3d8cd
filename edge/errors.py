"""Every error that edge-deploy raises on purpose.

A message says where, what was expected, what came; `hint` says what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

__all__ = [
    "CalibrationError",
    "CertificateError",
    "ClusterError",
    "ConfigError",
    "DatasetError",
    "DeployError",
    "EXIT_CODE_OF",
    "EdgeError",
    "EndOfPicture",
    "EndOfStream",
    "EngineError",
    "LackingError",
    "MissingDependencyError",
    "ModelError",
    "OutOfMemoryError",
    "PublishError",
    "SourceError",
    "StatedError",
    "TensorMismatchError",
    "VerificationError",
    "nearest",
]


def nearest(key: str, names: Sequence[str]) -> str:
    """Return the names that `key` may mean, as they stand behind an unknown one."""
    near = difflib.get_close_matches(key, names, n=3, cutoff=0.4) or [name for name in names if key and key in name][:3]
    return f" (nearest: {', '.join(near)})" if near else ""


class EdgeError(Exception):
    """Base of all errors that are meant for the user; `str(error)` is fit to be printed as it is."""

    exit_code = 1

    def __init__(self, problem: str, *, hint: str | None = None) -> None:
        super().__init__(problem if hint is None else f"{problem}; {hint}")
        self.problem = problem
        self.hint = hint


class ConfigError(EdgeError):
    """The configuration cannot be used as written."""

    exit_code = 2


class LackingError(ConfigError):
    """This machine has not what the configuration asks of it, in a form that can be used: a secret."""


class ModelError(EdgeError):
    """The ONNX file is damaged, unknown, or does not fit what the configuration says of it."""

    exit_code = 2


class StatedError(ModelError):
    """What was stated of a model does not fit it: `key` of `edge.model.inspect.ModelOverrides`."""

    def __init__(self, key: str, problem: str, *, hint: str) -> None:
        super().__init__(problem, hint=hint)
        self.key = key


class DatasetError(EdgeError):
    """Images or labels are missing or unreadable."""

    exit_code = 2


class CalibrationError(EdgeError):
    """A calibration table or a calibration cache cannot be used as it is."""

    exit_code = 2


class EngineError(EdgeError):
    """An engine cannot be built, loaded or run on this machine."""

    exit_code = 7


class OutOfMemoryError(EngineError):
    """Memory of the GPU or of the machine ran out: the same made another way needs as much."""


class TensorMismatchError(EngineError):
    """An array given to an engine has another shape or dtype than the engine takes."""


class SourceError(EdgeError):
    """A stream cannot be read.

    `is_permanent` tells whether trying again soon is of no use (404, 401, no such file), `wants_login` whether user and
    password are missing or not the right ones.
    """

    exit_code = 3

    def __init__(
        self, problem: str, *, hint: str | None = None, is_permanent: bool = False, wants_login: bool = False
    ) -> None:
        super().__init__(problem, hint=hint)
        self.is_permanent = is_permanent
        self.wants_login = wants_login


class CertificateError(SourceError):
    """A camera has shown a certificate that is not the expected one; `fingerprint` is what it has."""

    def __init__(self, problem: str, *, hint: str, fingerprint: str) -> None:
        super().__init__(problem, hint=hint, is_permanent=True)
        self.fingerprint = fingerprint


class EndOfStream(SourceError):  # noqa: N818 - the field's own name for it
    """A finite source has delivered its last frame."""


class EndOfPicture(SourceError):  # noqa: N818 - as `EndOfStream`
    """A web camera has answered a request with a single picture: the next one has to be asked for."""


class PublishError(EdgeError):
    """The broker cannot be reached or refuses us."""

    exit_code = 3


class ClusterError(EdgeError):
    """The scheduler or the workers of a cluster cannot be reached, or are gone."""

    exit_code = 3


class VerificationError(EdgeError):
    """Something was measured or checked, and is not as good as it was promised to be."""

    exit_code = 4


class MissingDependencyError(EdgeError):
    """A library that this function needs is not installed."""

    exit_code = 2


EXIT_CODE_OF: Mapping[str, int] = MappingProxyType(
    {
        "device": 1,  # the device's own files or tools
        "bundle": 2,  # what was to be bundled
        "request": 2,  # what was asked for
        "transfer": 3,
        "verify": 4,
        "lock": 5,
        "preflight": 6,
        "build": 7,
        "smoke": 7,
        "trial": 8,
        "person": 9,
        "fleet": 11,
        "registry": 12,
    }
)
"""Exit code by the first part of a `DeployError.code`."""


class DeployError(EdgeError):
    """A step between the workstation and a serving device failed.

    `code` is a path from the general to the particular (`transfer.disk.space`), documented in docs/push-codes.md with
    its fix; `evidence` holds the numbers that it rests on. It travels over the wire as these four values.
    """

    def __init__(
        self, code: str, problem: str, *, hint: str | None = None, evidence: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(problem, hint=hint)
        self.code = code
        self.evidence = dict(evidence or {})

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return EXIT_CODE_OF[self.code.partition(".")[0]]
