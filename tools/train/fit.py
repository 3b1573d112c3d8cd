"""The training loop: AdamW, a cosine schedule, averaged weights, and a last stretch on the full canvas."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tools.street.scene import CLASSES
from tools.train.data import CANVAS_PX, Batch, Pool, batches, on_canvas
from tools.train.loss import detection_loss
from tools.train.network import Detector, anchors_for

__all__ = ["Budget", "Fitted", "Report", "fit"]

Report = Callable[[str], None]

_CROPPED_ROWS = 192
_FULL_CANVAS_FROM = 0.8
_LEARNING_RATE, _FINAL_SHARE, _WEIGHT_DECAY = 3e-3, 0.02, 0.01
_WARM_UP = 0.03
_AVERAGE_DECAY, _AVERAGE_RAMP = 0.998, 300
_GRADIENT_LIMIT = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long to train: `steps` when given (repeatable), otherwise `minutes` of wall clock."""

    steps: int | None
    minutes: float

    def progress(self, step: int, started_at: float) -> float:
        """Return how far the training is, 0 to 1, from the step number or the monotonic start time in seconds."""
        if self.steps is not None:
            return step / self.steps
        return (time.monotonic() - started_at) / (60 * self.minutes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The averaged detector and what it took."""

    detector: Detector
    steps: int
    minutes: float


def fit(pool: Pool, *, budget: Budget, batch_size: int, seed: int, report: Report) -> Fitted:
    """Train a new detector on rendered frames and return the running average of its weights."""
    torch.manual_seed(seed)
    detector = Detector(len(CLASSES))
    average = copy.deepcopy(detector).eval()
    optimizer = torch.optim.AdamW(_parameter_groups(detector), lr=_LEARNING_RATE)
    started_at, step, shown = time.monotonic(), 0, 0.0
    for batch in batches(pool, batch_size=batch_size, seed=seed):
        progress = budget.progress(step, started_at)
        if progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(progress)
        loss = train_step(detector, optimizer, batch, is_full=progress >= _FULL_CANVAS_FROM)
        step += 1
        _follow(average, detector, step)
        shown += (loss - shown) * max(0.02, 1 / step)
        if step % 100 == 0:
            report(f"step {step}  {progress:4.0%}  loss {shown:.3f}  {(time.monotonic() - started_at) / 60:.1f} min")
    return Fitted(detector=average, steps=step, minutes=(time.monotonic() - started_at) / 60)


def train_step(detector: Detector, optimizer: torch.optim.Optimizer, batch: Batch, *, is_full: bool) -> float:
    """Take one step and return the loss before it.

    Most steps see the canvas without most of its border, in bfloat16; `is_full` steps see what the runtime will see,
    in float32, so that the batch statistics settle on it.
    """
    rows = CANVAS_PX if is_full else _CROPPED_ROWS
    placed = on_canvas(batch, rows=rows)
    with torch.autocast("cpu", torch.bfloat16, enabled=not is_full):
        maps = detector(placed.images)
    loss: Tensor = detection_loss([level.float() for level in maps], placed.truth, anchors_for(CANVAS_PX, rows))
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(detector.parameters(), _GRADIENT_LIMIT)
    optimizer.step()
    return float(loss.detach())


def _parameter_groups(detector: Detector) -> list[dict[str, object]]:
    """Return parameter groups for the optimizer: only weights with more than one axis decay."""
    decaying = [weight for weight in detector.parameters() if weight.ndim > 1]
    others = [weight for weight in detector.parameters() if weight.ndim <= 1]
    return [{"params": decaying, "weight_decay": _WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]


def _learning_rate(progress: float) -> float:
    falling = _FINAL_SHARE + (1 - _FINAL_SHARE) * (1 + math.cos(math.pi * min(1.0, progress))) / 2
    return _LEARNING_RATE * min(1.0, (progress + 1e-3) / _WARM_UP) * falling


def _follow(average: Detector, detector: Detector, step: int) -> None:
    """Move the averaged weights and statistics a little towards the current ones."""
    share = 1 - _AVERAGE_DECAY * (1 - math.exp(-step / _AVERAGE_RAMP))
    with torch.no_grad():
        for kept, now in zip(average.state_dict().values(), detector.state_dict().values(), strict=True):
            kept.copy_(kept.lerp(now, share) if kept.is_floating_point() else now)
