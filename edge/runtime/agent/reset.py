"""A signed reset of the counters, for a device that has taken a release from far ahead."""

from __future__ import annotations

from datetime import datetime, timezone

from edge.bundle.clock import time_floor
from edge.bundle.reset import Reset, decode_reset, unfit
from edge.bundle.sign import RESET as NAMESPACE
from edge.bundle.sign import verify
from edge.device.counters import Counters, read_counters, reset_counters
from edge.device.device import Device
from edge.device.moment import is_clock_sure
from edge.device.settings import read_settings
from edge.runtime.agent.offer import bytes_of
from edge.runtime.agent.session import Session
from edge.wire.reset import ResetAnswer, ResetRequest
from edge.wire.verbs import RESET

__all__ = ["reset"]


def reset(session: Session, request: ResetRequest) -> ResetAnswer:
    """Follow a signed reset: the counters become what it says, in one write; the releases stay as they are."""
    session.check_locked(RESET)
    device = session.device
    content, signature = bytes_of(request.reset, "a reset"), bytes_of(request.signature, "the signature of a reset")
    with device.locked():
        counters = read_counters(device.layout, device.durable.files)
        # Without the newest release ever taken: its time is what has led the device astray.
        at = time_floor(datetime.now(timezone.utc), newest_created_at=counters.reset_at).at
        signer = _signer_of(device, content, signature, at)
        order = decode_reset(content)
        _check(device, order, counters, at)
        changed = Counters(
            sequences=dict(order.sequences), newest_created_at=order.created_at, reset_at=order.created_at
        )
        reset_counters(device.layout, device.durable, changed)
    return ResetAnswer(signer=signer, sequences=changed.sequences)


def _signer_of(device: Device, content: bytes, signature: bytes, at: datetime) -> str:
    revoked = device.layout.revoked_keys
    return verify(
        content,
        signature,
        allowed_signers=device.layout.allowed_signers,
        revoked=revoked if revoked.exists() else None,
        at=at,
        namespace=NAMESPACE,
    )


def _check(device: Device, order: Reset, counters: Counters, at: datetime) -> None:
    reasons = unfit(
        order,
        name=read_settings(device.layout.device_toml).name,
        sequences=counters.sequences,
        newest_created_at=counters.newest_created_at,
        reset_at=counters.reset_at,
        at=at,
        is_clock_sure=is_clock_sure(),
    )
    for reason in reasons:
        raise reason
