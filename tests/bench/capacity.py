"""How many live streams a model serves here without drops: what `edge-deploy capacity` predicts, and what is so.

python -m tests.bench.capacity [MODEL TABLE]...       prints the section alone, for the demo's model without any
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.measure import demo_clips
from tests.bench.rooflines import DEMO
from tests.support.ports import free_port
from tests.support.wait import wait_until

__all__ = ["HEADROOM", "MOST_LOST", "CapacityRow", "Window", "greatest", "measure_capacity"]

BATCH = 8
HEADROOM = 0.3  # of the other prediction
MOST_LOST, LEAST_RATE = (
    0.001,
    0.98,
)  # of decoded frames; of what the clips hold, which a decoder that is late gives less
WARM_UP_S = 5.0
_UP_WITHIN_S = 90.0
_TRIES = 2  # something else may want the processor for a moment
_HOPELESS = 0.05  # lost: no second try
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Window:
    """A running pipeline for some seconds, once it is warm; `lost` is by reason, `wanted` what the clips hold."""

    streams: int
    seconds: float
    wanted: float
    decoded: int
    lost: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0

    @property
    def lost_share(self) -> float:
        return sum(self.lost.values()) / max(self.decoded, 1)

    @property
    def rate(self) -> float:
        return self.decoded / self.wanted

    @property
    def is_served(self) -> bool:
        return self.lost_share <= MOST_LOST and self.rate >= LEAST_RATE

    @property
    def cores(self) -> float:
        return self.cpu_s / self.seconds


@dataclass(frozen=True, kw_only=True)
class CapacityRow:
    """One model; `found` is the last number that was served, `beyond` the first that was not."""

    model: str
    video: str
    predicted: int
    predicted_with_headroom: int
    runs_out: str
    found: Window | None
    beyond: Window


def measure_capacity(
    models: Sequence[tuple[Path, Path]], clips: Sequence[Path], *, folder: Path, seconds: float
) -> list[CapacityRow]:
    """Return a row for each model and its table; some minutes each."""
    return [_row(model, table, clips, folder=folder, seconds=seconds) for model, table in models]


def greatest(is_served: Callable[[int], bool], guess: int) -> tuple[int, int]:
    """Return the greatest number that is served and the least that is not, where they meet; from a guess outwards."""
    low, high, step, probe = 0, None, 1, max(guess, 1)
    while high is None or high - low > 1:
        if is_served(probe):
            low = probe
        else:
            high = probe
        if high is None:
            probe = low + step
        elif low == 0:
            probe = max(high - step, 1)
        else:
            probe = (low + high) // 2
        step *= 2
    return low, high


def _row(model: Path, table: Path, clips: Sequence[Path], *, folder: Path, seconds: float) -> CapacityRow:
    print(f"predicting live streams of {model.name}", file=sys.stderr)
    told = [_predicted(_pipeline(folder, model, table, clips, BATCH), headroom) for headroom in (0.0, HEADROOM)]
    numbers = [one["machines"][0]["cameras"]["typical"] for one in told]
    fps = [stream["fps"] for stream in told[0]["streams"]]
    windows: dict[int, Window] = {}

    def is_served(count: int) -> bool:
        wanted_fps = sum(fps[number % len(fps)] for number in range(count))
        for _ in range(_TRIES):
            windows[count] = _live(folder, model, table, clips, count, wanted_fps=wanted_fps, seconds=seconds)
            if windows[count].is_served or windows[count].lost_share > _HOPELESS:
                break
        return windows[count].is_served

    low, high = greatest(is_served, numbers[0])
    width, height = told[0]["streams"][0]["size"]
    return CapacityRow(
        model=model.stem,
        video=f"{width}x{height} at {fps[0]:g} fps",
        predicted=numbers[0],
        predicted_with_headroom=numbers[1],
        runs_out=told[0]["machines"][0]["first"],
        found=windows.get(low),
        beyond=windows[high],
    )


def _pipeline(
    folder: Path, model: Path, table: Path, clips: Sequence[Path], count: int, *, port: int | None = None
) -> Path:
    path = folder / f"capacity-{model.stem}.yaml"
    content = {
        "version": 1,
        "model": {"onnx": str(model), "calibration": str(table), "precision": "int8"},
        "streams": [
            {"id": f"s{i}", "uri": str(Path(clips[i % len(clips)]).resolve()), "loop": True, "realtime": True}
            for i in range(count)
        ],
        "batch": {"max_frames": BATCH},
        "overload": {"adapt": False, "at_start": "ignore"},  # what is lost is counted, and nothing done about it
        "publish": {"jsonl": str(folder / "capacity.jsonl"), "mode": "all"},
        **({} if port is None else {"http": {"port": port}}),
    }
    path.write_text(json.dumps(content))
    return path


def _predicted(pipeline: Path, headroom: float) -> dict:
    command = [sys.executable, "-m", "edge.cli.edge_deploy", "capacity", str(pipeline)]
    arguments = ["--machine", "this", "--headroom", str(headroom), "--json"]
    return json.loads(subprocess.run([*command, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout)


def _live(
    folder: Path, model: Path, table: Path, clips: Sequence[Path], count: int, *, wanted_fps: float, seconds: float
) -> Window:
    port = free_port()
    with _running(_pipeline(folder, model, table, clips, count, port=port), folder / "capacity.log"):
        wait_until(lambda: _inferred(port) == count, what=f"{count} streams infer frames", timeout_s=_UP_WITHIN_S)
        time.sleep(WARM_UP_S)
        before, began_s = _scraped(port), time.monotonic()
        time.sleep(seconds)
        after, lasted_s = _scraped(port), time.monotonic() - began_s
    window = window_between(before, after, streams=count, seconds=lasted_s, wanted=wanted_fps * lasted_s)
    print(f"  {count} live: {window.lost_share:.2%} lost, {window.rate:.1%} decoded", file=sys.stderr)
    return window


def window_between(before: Counter, after: Counter, *, streams: int, seconds: float, wanted: float) -> Window:
    """Return what happened between two readings of `/metrics`."""
    lost: Counter[str] = Counter()
    grown = Counter({sample: after[sample] - before[sample] for sample in after})
    for (name, labels), value in grown.items():
        outcome = re.search(r'outcome="dropped_(\w+)"', labels)
        if name == "edge_frames_total" and outcome and value:
            lost[outcome[1]] += int(value)
        elif name == "edge_pictures_skipped_total" and value:
            lost["skipped"] += int(value)

    def of(wanted_name: str) -> float:
        return sum(value for (name, _), value in grown.items() if name == wanted_name)

    return Window(
        streams=streams,
        seconds=seconds,
        wanted=wanted,
        decoded=int(of("edge_frames_decoded_total")),
        lost=lost,
        cpu_s=of("process_cpu_seconds_total"),
    )


def samples_of(text: str) -> Counter:
    """Return the values of Prometheus' text by name and labels."""
    return Counter({(name, labels): float(value) for name, labels, value in _SAMPLE.findall(text)})


def _scraped(port: int) -> Counter:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return samples_of(answer.read().decode())


def _inferred(port: int) -> int:
    """Return how many streams have had a frame inferred; 0 where nobody answers yet."""
    time.sleep(0.2)  # the service answers a hundred times a second at most, and has other things to do
    try:
        found = _scraped(port)
    except (urllib.error.URLError, OSError):
        return 0
    return sum(
        name == "edge_frames_total" and 'outcome="inferred"' in labels and value > 0
        for (name, labels), value in found.items()
    )


@contextmanager
def _running(pipeline: Path, log: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "edge.cli.edge_runtime", "run", "--pipeline", str(pipeline)]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as service:
        try:
            yield
        except AssertionError as error:
            raise SystemExit(f"{error}\n{log.read_text(errors='replace')[-2000:]}") from error
        finally:
            service.terminate()
            service.wait(60)


if __name__ == "__main__":
    from tests.bench.capacity_page import render_capacity

    given = [Path(one).resolve() for one in sys.argv[1:]]
    pairs = list(zip(given[::2], given[1::2], strict=True)) or [DEMO]
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        rows = measure_capacity(pairs, demo_clips(place), folder=place, seconds=15.0)
    print("\n".join(render_capacity(rows, seconds=15.0)))
