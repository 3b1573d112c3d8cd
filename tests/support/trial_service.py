"""A service as a trial sees it, in its own time."""

from collections.abc import Callable

from edge.bundle.manifest import HealthLimits
from edge.device.device import Device
from edge.device.health import Health, read_health, write_health
from edge.device.units import Units
from edge.reports import UnitState
from edge.runtime.trial.trial import Observation, Trial
from tests.support.values import health

S = 1_000_000_000
LIMITS = HealthLimits(hold_s=20, deadline_s=60)
BASELINE = {"streams": {"east": 10.0}, "infer_p95_ms": 20.0, "mqtt_connected": True, "mqtt_per_s": 10.0}


class Service:
    """A service that writes its health once a second of its own time; what goes wrong is set by the test."""

    def __init__(self, device: Device, release: str, *, started_ns: int) -> None:
        self.device, self.release, self.now_ns, self.started_ns = device, release, started_ns, started_ns
        self.unit = UnitState(active="active", sub="running", invocation="run-1")
        self.fps, self.mqtt, self.is_silent = 10.0, True, False
        self.odd: dict[str, float] = {}
        self.at: dict[int, Callable[[], object]] = {}

    @property
    def second(self) -> int:
        return (self.now_ns - self.started_ns) // S

    def observe(self, device: Device, units: Units) -> Observation:
        if not self.is_silent:
            write_health(self.device.layout.health, self._health())
        return Observation(
            at_ns=self.now_ns, unit=self.unit, health=read_health(self.device.layout.health), available_bytes=2**30
        )

    def wait(self, seconds: float) -> None:
        self.now_ns += round(seconds * S)
        assert self.second < 200, "the trial does not end"
        self.at.pop(self.second, lambda: None)()

    def trial(self) -> Trial:
        return Trial(observe=self.observe, wait=self.wait)

    def _health(self) -> Health:
        inferred = int(self.fps * self.second)
        said = {"infer_p95_ms": BASELINE["infer_p95_ms"], "mqtt_acknowledged": inferred + 1 if self.mqtt else 0}
        return health(
            {"east": ("up" if self.fps else "down", inferred)},
            release=self.release,
            invocation=self.unit.invocation,
            at_boottime_ns=self.now_ns,
            batches=inferred,
            mqtt_connected=self.mqtt,
            **{**said, **self.odd},
        )
