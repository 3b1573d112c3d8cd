"""What a model that is no detector of ours most likely is, so that its refusal can name it."""

from __future__ import annotations

from edge.model.graph import Graph, TensorInfo

__all__ = ["likely_kind"]


def likely_kind(graph: Graph) -> str | None:
    """Return half a sentence, "it looks like ...", from the outputs alone; None when nothing comes to mind."""
    ranks = [len(info.shape) for info in graph.outputs]
    if len(ranks) == 1:
        return _single(graph.outputs[0])
    if 5 in ranks or (ranks == [4] * len(ranks) and len(ranks) in (2, 3, 4, 6, 9)):
        return "it looks like a head without its decoding (raw maps per level): export it for inference"
    if sorted(ranks) == [3, 4]:
        return "it looks like an instance segmentation model (detections and mask prototypes)"
    if _has_words(graph, "box") and _has_words(graph, "score", "label", "class", "logit", "conf"):
        return "it looks like SSD, DETR or a model with NMS in several outputs (boxes and scores apart)"
    return "a detector that we decode has one output"


def _single(output: TensorInfo) -> str | None:
    last = output.shape[-1] if output.shape else None
    match len(output.shape):
        case 2 if last == 7:
            return "it looks like YOLOv7 with NMS in the graph (batch, box, class, score): export it without --end2end"
        case 2:
            return "it looks like a classification model"
        case 3 if output.shape[1] in (100, 300, 900):
            return f"it looks like DETR, RT-DETR or another head without a grid: {output.shape[1]} candidates"
        case 4:
            return "it looks like a semantic segmentation model, or one level of a raw head"
        case 5:
            return "it looks like one level of a raw YOLOv5 or v7 head: export it for inference"
    return None


def _has_words(graph: Graph, *words: str) -> bool:
    return any(word in info.name.lower() for info in graph.outputs for word in words)
