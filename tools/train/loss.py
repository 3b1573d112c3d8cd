"""The training loss: which prediction answers for which object, and how far off it is.

Source: task-aligned assignment as in TOOD (Feng et al., 2021), complete IoU (Zheng et al., 2020), distribution focal
loss (Li et al., 2020), with the weights that YOLOv8 uses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tools.train.network import REG_MAX, Anchors, boxes_from_raw

__all__ = ["Assignment", "assign", "complete_iou", "detection_loss"]

_TOP_COUNT = 10
_SCORE_POWER, _IOU_POWER = 0.5, 6.0
_BOX_WEIGHT, _SCORE_WEIGHT, _BINS_WEIGHT = 7.5, 0.5, 1.5
_TINY = 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What each of the A anchors of each picture shall predict.

    Attributes:
        xyxy: float32 `(B, A, 4)`, pixels; only meaningful where `is_used`.
        score: float32 `(B, A, K)`, target scores, 0 to 1.
        is_used: bool `(B, A)`, True where an anchor answers for an object.
    """

    xyxy: Tensor
    score: Tensor
    is_used: Tensor


def pairwise_iou(first: Tensor, second: Tensor) -> Tensor:
    """Return IoU `(..., M, A)` of xyxy boxes `(..., M, 4)` and `(..., A, 4)`."""
    a, b = first.unsqueeze(-2), second.unsqueeze(-3)
    shared = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp_min(0).prod(-1)
    areas = (a[..., 2:] - a[..., :2]).clamp_min(0).prod(-1) + (b[..., 2:] - b[..., :2]).clamp_min(0).prod(-1)
    return shared / (areas - shared + _TINY)


def complete_iou(first: Tensor, second: Tensor) -> Tensor:
    """Return the complete IoU `(N,)` of xyxy boxes `(N, 4)`, pair by pair: overlap, centre distance, aspect ratio."""
    shared = (torch.minimum(first[:, 2:], second[:, 2:]) - torch.maximum(first[:, :2], second[:, :2])).clamp_min(0)
    size_a, size_b = first[:, 2:] - first[:, :2], second[:, 2:] - second[:, :2]
    overlap = shared.prod(-1)
    iou = overlap / (size_a.prod(-1) + size_b.prod(-1) - overlap + _TINY)
    hull = torch.maximum(first[:, 2:], second[:, 2:]) - torch.minimum(first[:, :2], second[:, :2])
    apart = ((first[:, :2] + first[:, 2:] - second[:, :2] - second[:, 2:]) / 2).square().sum(-1)
    angle = [torch.atan(size[:, 0] / (size[:, 1] + _TINY)) for size in (size_a, size_b)]
    aspect = 4 / math.pi**2 * (angle[0] - angle[1]).square()
    with torch.no_grad():
        weight = aspect / (1 - iou + aspect + _TINY)
    return iou - apart / (hull.square().sum(-1) + _TINY) - weight * aspect


def assign(score: Tensor, xyxy: Tensor, truth: Tensor, anchors: Anchors) -> Assignment:
    """Choose for each object the anchors inside it that predict it best already.

    `score`: float32 `(B, A, K)`, predicted, 0 to 1. `xyxy`: float32 `(B, A, 4)`, predicted, pixels. `truth`: float32
    `(B, M, 5)`: class_id and xyxy in pixels; rows without an object have class_id -1.
    """
    class_id, boxes = truth[..., 0].long(), truth[..., 1:]
    centres = anchors.xy * anchors.stride
    margins = torch.cat((centres - boxes[..., None, :2], boxes[..., None, 2:] - centres), -1)
    allowed = (margins.amin(-1) > _TINY) & (class_id >= 0)[..., None]
    iou = pairwise_iou(boxes, xyxy) * allowed
    named = score.transpose(1, 2).gather(1, class_id.clamp_min(0)[..., None].expand(-1, -1, score.shape[1]))
    quality = named.pow(_SCORE_POWER) * iou.pow(_IOU_POWER) * allowed
    best = quality.topk(_TOP_COUNT, -1)
    chosen = torch.zeros_like(quality).scatter_(-1, best.indices, (best.values > 0).float()) > 0
    # An anchor that two objects chose keeps the one it overlaps most.
    contested = chosen.sum(1, keepdim=True) > 1
    closest = functional.one_hot(iou.argmax(1), iou.shape[1]).transpose(1, 2) > 0
    chosen = torch.where(contested, closest & allowed, chosen)
    return _targets(chosen, quality * chosen, iou * chosen, truth, score.shape[2])


def _targets(chosen: Tensor, quality: Tensor, iou: Tensor, truth: Tensor, class_count: int) -> Assignment:
    owner, is_used = chosen.float().argmax(1), chosen.any(1)
    rows = truth.gather(1, owner[..., None].expand(-1, -1, 5))
    # Scaled so that an object's best anchor aims at that object's best overlap.
    level = quality / (quality.amax(-1, keepdim=True) + 1e-9) * iou.amax(-1, keepdim=True)
    aim = level.amax(1)[..., None] * is_used[..., None]
    score = functional.one_hot(rows[..., 0].long().clamp_min(0), class_count) * aim
    return Assignment(xyxy=rows[..., 1:], score=score, is_used=is_used)


def detection_loss(maps: list[Tensor], truth: Tensor, anchors: Anchors) -> Tensor:
    """Return the mean loss of a batch, a scalar.

    `maps`: raw output of the detector, one `(B, 4 * REG_MAX + K, H, W)` per stride. `truth`: float32 `(B, M, 5)`:
    class_id (-1 for none) and xyxy in pixels. `anchors`: for the canvas that the maps belong to.
    """
    raw = torch.cat([level.flatten(2) for level in maps], 2).transpose(1, 2)
    sides, logits = raw[..., : 4 * REG_MAX], raw[..., 4 * REG_MAX :]
    boxes = boxes_from_raw(sides, anchors)
    with torch.no_grad():
        aim = assign(logits.sigmoid(), boxes * anchors.stride, truth, anchors)
    total = aim.score.sum().clamp_min(1.0)
    loss = _SCORE_WEIGHT * functional.binary_cross_entropy_with_logits(logits, aim.score, reduction="sum")
    if aim.is_used.any():
        loss = loss + _box_loss(boxes, sides, aim, anchors)
    return loss / total


def _box_loss(boxes: Tensor, sides: Tensor, aim: Assignment, anchors: Anchors) -> Tensor:
    """Return the summed box loss over the anchors in use, each weighted by its target score."""
    used, weight = aim.is_used, aim.score.sum(-1)[aim.is_used]
    wanted = (aim.xyxy / anchors.stride)[used]
    overlap = ((1 - complete_iou(boxes[used], wanted)) * weight).sum()
    centres = anchors.xy.expand(len(used), -1, -1)[used]
    distance = torch.cat((centres - wanted[:, :2], wanted[:, 2:] - centres), -1).clamp(0, REG_MAX - 1.01)
    low = distance.long()
    share = distance - low
    bins = sides[used].view(-1, REG_MAX)
    below = functional.cross_entropy(bins, low.flatten(), reduction="none").view_as(share)
    above = functional.cross_entropy(bins, low.flatten() + 1, reduction="none").view_as(share)
    spread = ((below * (1 - share) + above * share).mean(-1) * weight).sum()
    return _BOX_WEIGHT * overlap + _BINS_WEIGHT * spread
