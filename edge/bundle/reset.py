"""A signed order that sets the counters of one device anew: for a device that has taken a release from far ahead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from edge.bundle.checks import check_between, check_text, read_time
from edge.bundle.strict_json import canonical, read_object
from edge.bundle.succession import MAX_PERMISSION_DAYS, ahead_of, most_sequence
from edge.errors import DeployError

__all__ = ["MAX_RESET_BYTES", "Reset", "decode_reset", "encode_reset", "unfit"]

FORMAT = "edge.reset/1"
MAX_RESET_BYTES = 16 * 1024
_NAME = r"[a-z0-9-]{1,32}"
_MAX_CHANNELS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """What a device shall count from now on; one that exists is well formed.

    Attributes:
        target: name of the one device.
        created_at, expires_at: RFC 3339 in UTC, whole seconds, at most 30 days apart. `created_at` becomes the newest
            time that the device knows of.
        given_for: what the device counts now, by channel, exactly; with `given_for_time`, the newest time it knows of.
        sequences: what it shall count, by channel; a channel that is not named is forgotten.
    """

    target: str
    created_at: str
    expires_at: str
    given_for: Mapping[str, int]
    given_for_time: str | None
    sequences: Mapping[str, int]

    def __post_init__(self) -> None:
        check_text("target", self.target, _NAME)
        created_at = read_time("created_at", self.created_at)
        expires_at = read_time("expires_at", self.expires_at)
        if not timedelta(0) < expires_at - created_at <= timedelta(days=MAX_PERMISSION_DAYS):
            raise DeployError("verify.reset.field", f"a reset expires within {MAX_PERMISSION_DAYS} days, not at once")
        if self.given_for_time is not None:
            read_time("given_for_time", self.given_for_time)
        for where, counts in (("given_for", self.given_for), ("sequences", self.sequences)):
            if not isinstance(counts, Mapping) or len(counts) > _MAX_CHANNELS:
                raise DeployError("verify.reset.field", f"the reset's {where} is no list of channels and counts")
            for channel, count in counts.items():
                check_text(f"{where}'s channel", channel, _NAME)
                check_between(f"{where}.{channel}", count, 0, 2**53, whole=True)
        for channel, count in self.sequences.items():
            if count > most_sequence(created_at):
                raise DeployError("verify.reset.field", f"the reset sets {channel} to {count}, which is far ahead")


def encode_reset(reset: Reset) -> bytes:
    """Return the reset's one spelling, which is what gets signed."""
    return canonical({"format": FORMAT, **asdict(reset)})


def decode_reset(content: bytes) -> Reset:
    """Return the reset in `content`, whose signature the caller has verified.

    Raises:
        DeployError: `verify.reset.field`, `verify.manifest.*`.
    """
    values = read_object(content, max_bytes=MAX_RESET_BYTES)
    if values.pop("format", None) != FORMAT:
        raise DeployError("verify.reset.field", f"the format is not {FORMAT}", hint="use one version of edge-deploy")
    try:
        return Reset(**values)
    except TypeError as error:
        raise DeployError("verify.reset.field", f"the reset cannot be read: {str(error)[:200]}") from None


def unfit(
    reset: Reset,
    *,
    name: str,
    sequences: Mapping[str, int],
    newest_created_at: str | None,
    reset_at: str | None,
    at: datetime,
    is_clock_sure: bool,
) -> Iterator[DeployError]:
    """Yield every reason for which the device `name` may not follow the reset.

    Args:
        reset: whose signature was verified.
        name: of the device.
        sequences: what it counts now, by channel.
        newest_created_at: the newest time that it knows of.
        reset_at: when the last reset was made that it has followed; None: never.
        at: the time, without `newest_created_at`, which is what may be wrong.
        is_clock_sure: somebody sets the device's clock, so that `at` is now.
    """
    if reset.target != name:
        yield DeployError(
            "verify.device", f"the reset is for {reset.target}, this is {name}", hint="sign one for this device"
        )
    if reset_at is not None and reset.created_at <= reset_at:  # RFC 3339 in UTC with whole seconds sorts as text
        yield DeployError(
            "verify.reset.used",
            f"{name} has followed a reset that was made at {reset_at}, this was made at {reset.created_at}",
            hint="a reset is used once; sign another one if it is still wanted",
        )
    if dict(reset.given_for) != dict(sequences) or reset.given_for_time != newest_created_at:
        yield DeployError(
            "verify.reset.counters",
            f"the reset was given for other counters than {name} has now",
            hint="sign another one: edge-deploy reset",
            evidence={"sequences": dict(sequences), "newest_created_at": newest_created_at},
        )
    if at >= read_time("expires_at", reset.expires_at):
        yield DeployError(
            "verify.expired",
            f"the reset expired at {reset.expires_at}",
            hint="sign another one; if the device's clock is ahead, set it",
        )
    yield from ahead_of(reset.created_at, at=at, is_clock_sure=is_clock_sure)
