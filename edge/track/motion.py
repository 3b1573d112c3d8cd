"""Where objects will be: constant velocity Kalman filters over the four numbers of a box, for all objects at once.

Each number of a box (centre x and y, width, height) is filtered by itself together with its speed: in this model the
four have nothing to do with each other, so that an 8x8 covariance is four of 2x2. Uncertainty is in shares of the
object's size, as in SORT and ByteTrack, but per second, so that the frame rate does not matter.

Source: Zhang et al., ByteTrack (ECCV 2022), and its reference implementation: 1/20 and 1/160 per frame at 30 fps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Motion", "cxcywh_from_xyxy"]

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.int64]

_FPS = 30.0
_POSITION = 1 / 20
_SPEED = 1 / 160
_NOISE = np.array([_POSITION**2, 0.0, (_SPEED * _FPS) ** 2])[:, None, None]
_FIRST_POSITION = 2 * _POSITION
_FIRST_SPEED = 10 * _SPEED * _FPS


class Motion:
    """The filters of T objects.

    `state` is float64 (2, T, 4): cxcywh in pixels, and per second; `cov` is float64 (3, T, 4): variance of the number,
    covariance with its speed, variance of the speed.
    """

    def __init__(self) -> None:
        self.state: FloatArray = np.empty((2, 0, 4))
        self.cov: FloatArray = np.empty((3, 0, 4))

    def predict(self, elapsed_s: float) -> None:
        """Move all objects on by some time."""
        state, cov = self.state, self.cov
        state[0] += state[1] * elapsed_s
        np.maximum(state[0, :, 2:], 1.0, out=state[0, :, 2:])
        onward = np.array([[1, 2 * elapsed_s, elapsed_s**2], [0, 1, elapsed_s], [0, 0, 1]])
        self.cov = (onward @ cov.reshape(3, -1)).reshape(cov.shape)
        self.cov += _NOISE * (self._variance() * (elapsed_s * _FPS))

    def correct(self, index: Indices, cxcywh: FloatArray) -> None:
        """Take in what was seen, float64 (M, 4), of M different objects."""
        cov, state = self.cov.take(index, axis=1), self.state.take(index, axis=1)
        gain = cov[:2] / (cov[0] + (_size(state[0]) * _POSITION) ** 2)
        self.state[:, index] = state + gain * (cxcywh - state[0])
        cov[2] -= gain[1] * cov[1]
        cov[:2] *= 1 - gain[0]
        self.cov[:, index] = cov

    def add(self, cxcywh: FloatArray) -> None:
        """Begin to follow M more, float64 (M, 4), standing still as far as known."""
        variance = _size(cxcywh) ** 2
        first = np.stack([variance * _FIRST_POSITION**2, np.zeros_like(variance), variance * _FIRST_SPEED**2])
        self.state = np.concatenate([self.state, np.stack([cxcywh, np.zeros_like(cxcywh)])], axis=1)
        self.cov = np.concatenate([self.cov, np.broadcast_to(first, (3, len(cxcywh), 4))], axis=1)

    def keep(self, kept: Mask) -> None:
        """Forget the others; bool (T,)."""
        self.state, self.cov = self.state.compress(kept, axis=1), self.cov.compress(kept, axis=1)

    def xyxy(self) -> NDArray[np.float32]:
        """Return where the objects are thought to be: float32 (T, 4), pixels."""
        cxcywh = self.state[0]
        half = cxcywh[:, 2:] / 2
        return np.concatenate([cxcywh[:, :2] - half, cxcywh[:, :2] + half], axis=1, dtype=np.float32)

    def _variance(self) -> FloatArray:
        size = _size(self.state[0])
        return size * size


def cxcywh_from_xyxy(xyxy: NDArray[np.float32]) -> FloatArray:
    """Return float64 (M, 4)."""
    low, high = xyxy[:, :2].astype(np.float64), xyxy[:, 2:]
    return np.concatenate([(low + high) / 2, high - low], axis=1)


def _size(cxcywh: FloatArray) -> FloatArray:
    """Return the mean of width and height, (M, 1)."""
    size: FloatArray = (cxcywh[:, 2:3] + cxcywh[:, 3:]) / 2
    return size
