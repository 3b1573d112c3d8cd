"""Training pictures: scenes rendered once into memory, then varied anew for every batch."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from edge.types import ImageSize
from tools.street.scene import Scene

__all__ = [
    "CANVAS_PX",
    "PAD_TOP_PX",
    "SCENE_SIZE",
    "Batch",
    "Pool",
    "batches",
    "degrade",
    "halved",
    "on_canvas",
    "render_pool",
]

SCENE_SIZE = ImageSize(width=640, height=360)
CANVAS_PX = 320
PAD_TOP_PX = 70
"""The scene is shown to the model at half size, 320 x 180, in the middle of a square canvas."""

_PAD_VALUE = 114 / 255
_BLOCK = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Rendered frames. `images` uint8 `(N, 180, 320, 3)` RGB; `truths` per frame float32 `(M, 5)`: class_id, xyxy."""

    images: NDArray[np.uint8]
    truths: tuple[NDArray[np.float32], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`images` float32 `(B, 3, H, 320)` 0 to 1; `truth` float32 `(B, M, 5)`: class_id (-1 for none), xyxy in pixels."""

    images: Tensor
    truth: Tensor


def halved(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the frame at half its size, each pixel the mean of four; uint8 `(H / 2, W / 2, 3)`."""
    quads = frame.reshape(frame.shape[0] // 2, 2, frame.shape[1] // 2, 2, 3)
    small: NDArray[np.uint8] = ((quads.sum(axis=(1, 3), dtype=np.uint16) + 2) >> 2).astype(np.uint8)
    return small


def render_pool(seeds: Sequence[int], *, frames_per_scene: int, workers: int) -> Pool:
    """Render `frames_per_scene` frames of every scene, spread over its period."""
    render = functools.partial(_render_scene, count=frames_per_scene)
    if workers == 1:
        parts = [render(seed) for seed in seeds]
    else:
        # Not forked: torch has started threads by now, and a fork would not carry them along.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as executor:
            parts = list(executor.map(render, seeds, chunksize=4))
    images = np.concatenate([part.images for part in parts])
    return Pool(images=images, truths=tuple(truth for part in parts for truth in part.truths))


def _render_scene(seed: int, *, count: int) -> Pool:
    scene = Scene(seed, SCENE_SIZE)
    start = np.random.default_rng([seed, 6]).integers(scene.period_frames)
    frames = [scene.frame(int(start + step * scene.period_frames / count)) for step in range(count)]
    truths = [np.column_stack((truth.class_id, truth.xyxy / 2)).astype(np.float32) for _, truth in frames]
    return Pool(images=np.stack([halved(image) for image, _ in frames]), truths=tuple(truths))


def batches(pool: Pool, *, batch_size: int, seed: int) -> Iterator[Batch]:
    """Yield batches without end: every frame once per pass, in a new order and a new guise each time.

    The pictures are `(B, 3, 180, 320)` without the border; see `on_canvas`.
    """
    order, dice = np.random.default_rng([seed, 7]), torch.Generator().manual_seed(seed)
    while True:
        shuffled = order.permutation(len(pool.images))
        for first in range(0, len(shuffled) - batch_size + 1, batch_size):
            rows = shuffled[first : first + batch_size]
            images = torch.from_numpy(pool.images[rows]).permute(0, 3, 1, 2).float()
            yield _varied(images, _padded([pool.truths[row] for row in rows]), dice)


def on_canvas(batch: Batch, *, rows: int) -> Batch:
    """Return the batch on a grey canvas `rows` pixels high, the picture in its middle.

    A canvas of 192 rows is the middle of the full one, in step with it (both pads are 6 modulo 32), and trains faster.
    """
    pad = (rows - batch.images.shape[2]) // 2
    images = functional.pad(batch.images, (0, 0, pad, pad), value=_PAD_VALUE)
    offset = torch.tensor([0.0, 0.0, pad, 0.0, pad])
    return Batch(images=images, truth=batch.truth + offset)


def _padded(truths: list[NDArray[np.float32]]) -> Tensor:
    most = max(1, *(len(truth) for truth in truths))
    padded = torch.full((len(truths), most, 5), -1.0)
    for row, truth in enumerate(truths):
        padded[row, : len(truth)] = torch.from_numpy(truth)
    return padded


def _varied(images: Tensor, truth: Tensor, dice: torch.Generator) -> Batch:
    """Return pictures (0 to 255 in, 0 to 1 out) mirrored, relit and spoilt at random, and the truth moved along."""
    count = len(images)
    is_flipped = torch.rand(count, generator=dice) < 0.5
    images = torch.where(is_flipped[:, None, None, None], images.flip(3), images)
    mirrored = truth[..., [0, 3, 2, 1, 4]] * torch.tensor([1.0, -1, 1, -1, 1])
    mirrored = mirrored + torch.tensor([0.0, images.shape[3], 0, images.shape[3], 0])
    truth = torch.where(is_flipped[:, None, None], mirrored, truth)
    gain = 1 + (torch.rand(count, 3, 1, 1, generator=dice) - 0.5) * 0.16
    gain = gain * (0.75 + 0.5 * torch.rand(count, 1, 1, 1, generator=dice))
    lift = (torch.rand(count, 1, 1, 1, generator=dice) - 0.5) * 30
    return Batch(images=degrade(images * gain + lift, dice).clamp(0, 255) / 255, truth=truth)


def degrade(images: Tensor, dice: torch.Generator) -> Tensor:
    """Blur, add noise and quantise as a camera's lens, sensor and encoder do, each on a random part of the batch.

    `images`: float32 `(B, 3, H, W)`, 0 to 255; H and W are multiples of 4.
    """
    pick = torch.rand(3, len(images), 1, 1, 1, generator=dice)
    blurred = functional.avg_pool2d(functional.pad(images, (1, 1, 1, 1), mode="replicate"), 3, 1)
    share = torch.where(pick[0] < 0.3, torch.rand(len(images), 1, 1, 1, generator=dice), 0.0)
    images = images + (blurred - images) * share
    images = images + torch.randn(images.shape, generator=dice) * torch.where(pick[1] < 0.3, 5.0, 0.0)
    step = 3 * torch.exp(torch.rand(len(images), 1, 1, 1, generator=dice) * 1.9)
    return torch.where(pick[2] < 0.7, _quantised(images, step), images)


def _quantised(images: Tensor, step: Tensor) -> Tensor:
    """Return the pictures after the loss of a block encoder: rounded cosine coefficients, chroma twice as coarse.

    `images`: float32 `(B, 3, H, W)`, 0 to 255. `step`: float32 `(B, 1, 1, 1)`, of the lowest luma frequency.
    """
    to_luma = torch.tensor([[0.299, 0.587, 0.114], [-0.169, -0.331, 0.5], [0.5, -0.419, -0.081]])
    rows, columns = (-side % _BLOCK for side in images.shape[2:])
    padded = functional.pad(torch.einsum("kc,bchw->bkhw", to_luma, images), (0, columns, 0, rows), mode="replicate")
    high, wide = padded.shape[2] // _BLOCK, padded.shape[3] // _BLOCK
    blocks = padded.reshape(len(images), 3, high, _BLOCK, wide, _BLOCK).transpose(3, 4)
    basis, slope = _cosines(), torch.arange(_BLOCK) / 4
    coarseness = torch.tensor([1.0, 2.0, 2.0])[:, None, None, None, None] * step[..., None, None]
    steps = (1 + slope[:, None] + slope) * coarseness
    coefficients = torch.round(basis @ blocks @ basis.T / steps) * steps
    back = (basis.T @ coefficients @ basis).transpose(3, 4).flatten(4, 5).flatten(2, 3)
    kept = back[:, :, : images.shape[2], : images.shape[3]]
    return torch.einsum("ck,bkhw->bchw", torch.linalg.inv(to_luma), kept)


def _cosines() -> Tensor:
    """Return the orthonormal cosine basis, float32 `(8, 8)`, frequency by position."""
    place = torch.arange(_BLOCK, dtype=torch.float32)
    basis: Tensor = torch.cos(torch.pi * (place + 0.5) * place[:, None] / _BLOCK) * (2 / _BLOCK) ** 0.5
    basis[0] /= 2**0.5
    return basis
