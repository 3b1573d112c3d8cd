"""Tells subscribers how the last switch on this device ended: when a release begins to serve, and at each verdict."""

from __future__ import annotations

import logging

import msgspec

from edge.device.files import RealFiles
from edge.device.layout import Layout
from edge.device.state import Phase, read_state
from edge.errors import DeployError
from edge.protocols import Publisher
from edge.publish.device_messages import DeployMessage

__all__ = ["LastSwitchPublisher"]

_log = logging.getLogger(__name__)


class LastSwitchPublisher:
    """Looks at the state of the device at `layout` and publishes what is news; never raises."""

    def __init__(self, publisher: Publisher, layout: Layout, *, device: str) -> None:
        self._publisher = publisher
        self._layout = layout
        self._device = device
        self._said: DeployMessage | None = None
        self._is_broken = False
        self._phase: Phase | None = None

    @property
    def said(self) -> DeployMessage | None:
        """How the last switch ended, as subscribers know it; None: there was none."""
        return self._said

    @property
    def is_on_trial(self) -> bool:
        """Whether a release is on trial."""
        return self._phase is Phase.TRIAL

    def tick(self) -> None:
        """Publish how the last switch ended, if that was not published yet."""
        try:
            state = read_state(self._layout, RealFiles())
            last, self._phase = state.last, state.phase
            found = None if not last else msgspec.convert({**last, "device": self._device}, DeployMessage)
        except (DeployError, msgspec.ValidationError) as error:
            if not self._is_broken:  # once is enough for the journal; the next push or recovery mends it
                _log.warning("state of the device cannot be read reason=%s", error)
            self._is_broken = True
            return
        self._is_broken = False
        if found is not None and found != self._said:
            self._said = found
            self._publisher.publish(found)
