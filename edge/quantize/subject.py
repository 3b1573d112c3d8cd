"""Inputs of a calibration: its options, a float model that was read once, the images, and facts about them.

Images are known by their content, so that names and order do not matter, and none counts twice.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from edge.calibrate.histogram import Method
from edge.calibrate.measurements import Layer
from edge.calibrate.observations import Scene, scene_of
from edge.calibrate.table import Objects
from edge.errors import DatasetError, ModelError, nearest
from edge.evaluate.class_names import listed
from edge.evaluate.labels import open_labels
from edge.evaluate.truth import GroundTruth, Labels
from edge.media.images import list_images
from edge.model.cost import cost_for_one
from edge.model.graph import Graph, read_model_file
from edge.model.inspect import inspect_file
from edge.model.opset import require_float32
from edge.model.qdq.placement import WEIGHTED, called, place
from edge.quantize.forms import Forms
from edge.quantize.stills import Look, StillImage, each_decoded, image_digest, look_of, looking_like
from edge.types import ModelSpec

__all__ = [
    "CalibrationOptions",
    "FoundImages",
    "ImageSplit",
    "MaxDrop",
    "Subject",
    "counted_objects",
    "find_images",
    "labelled_objects",
    "layers_of",
    "open_subject",
    "split_images",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxDrop:
    """The most that INT8 may lose: `amount` mAP points, or that percentage of what the float model reaches."""

    amount: float = 0.5
    is_relative: bool = False

    def points_of(self, float_: float) -> float:
        """Return it in mAP points (hundredths), where the float model reaches `float_`, 0 to 1."""
        return self.amount * float_ if self.is_relative else self.amount

    def __str__(self) -> str:
        return f"{self.amount:g} % of float's" if self.is_relative else f"{self.amount:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions:
    """Options of a calibration."""

    model: Path
    images: Path  # folder
    method: Method | None = None  # None: searched for each tensor
    # of the engine's own library, which finds the ranges instead; with it there is no method
    calibrator: str | None = None
    labels: Path | None = None  # folder or file; with them it is mAP that is measured, and `max_drop` is a promise
    max_drop: MaxDrop = field(default_factory=MaxDrop)
    is_symmetric: bool = False  # a searched table has no centres (ADR 2), as those of single methods have none
    keep_float: tuple[str, ...] = ()  # nodes that stay in float whatever is found
    max_batch: int = 1  # images on one canvas; changes nothing in the result, but for that of some calibrators
    is_skipping_undecodable: bool = False  # leave out files that cannot be decoded, instead of refusing them

    @property
    def is_searched(self) -> bool:
        return self.method is None and self.calibrator is None

    @property
    def is_centred(self) -> bool:
        return self.is_searched and not self.is_symmetric


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSplit:
    """Images whose activations are looked at, and others that what was found is tried and proven on."""

    observed: tuple[StillImage, ...]
    held_out: tuple[StillImage, ...]


class FoundImages(NamedTuple):
    """The images of a folder by their digest; files that were left out; how each image looks, by its digest.

    `copies` are pairs "left out = kept" of files with the same pixels.
    """

    images: tuple[StillImage, ...]
    left_out: tuple[Path, ...]
    looks: Mapping[str, Look]
    copies: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence about copies: a camera that nothing moves in front of gives many of them."""
        if not self.copies:
            return ()
        total = len(self.images) + len(self.copies)
        return (
            f"{len(self.copies)} of {total} images are copies of another one, and are left out: {listed(self.copies)}",
        )

    def scenes(self, images: Iterable[StillImage]) -> tuple[Scene, ...]:
        """Return the scenes of some of them."""
        return tuple(scene_of(self.looks[image.sha256].coarse, image.path.stem) for image in images)


def find_images(folder: Path, *, is_skipping_undecodable: bool | None = None) -> FoundImages:
    """Return the images directly in `folder`, each of which was decoded once; of copies the first by name.

    Raises `DatasetError` if there is no such folder or no image in it, and as `each_decoded`.
    """
    found, left_out = each_decoded(list_images(folder), look_of, is_skipping_undecodable=is_skipping_undecodable)
    by_digest, looks = dict[str, Path](), dict[str, Look]()
    by_pixels, copies = dict[str, Path](), list[str]()
    for path, look in found.items():
        first = by_pixels.setdefault(look.pixels_sha256, path)
        if first is path:
            digest = image_digest(path)
            by_digest[digest], looks[digest] = path, look
        else:
            copies.append(f"{path.name} = {first.name}")
    images = tuple(StillImage(by_digest[digest], digest) for digest in sorted(by_digest))
    return FoundImages(images, left_out, looks, tuple(copies))


def labelled_objects(found: FoundImages, labels: Labels, classes: Sequence[str]) -> Objects:
    """Raise `DatasetError` if the labels of an image cannot be used."""
    sized = ((image.path.stem, found.looks[image.sha256].size) for image in found.images)
    return counted_objects(list(itertools.starmap(labels.truth, sized)), classes, by="labels")


def counted_objects(
    truths: Collection[GroundTruth], classes: Sequence[str], *, by: Literal["labels", "model"]
) -> Objects:
    """Return the objects of images; classes of the same name are one."""
    counts = Counter(classes[class_id] for truth in truths for class_id in truth.class_id.tolist())
    return Objects(by=by, images=len(truths), counts={name: counts[name] for name in classes})


def split_images(images: Sequence[StillImage], *, held_out: int) -> ImageSplit:
    """Return `held_out` images to try on, spread evenly over the digests, and the others to look at."""
    step = len(images) / held_out if held_out else 0.0
    chosen = {int(step * number) for number in range(held_out)}
    return ImageSplit(
        observed=tuple(image for index, image in enumerate(images) if index not in chosen),
        held_out=tuple(image for index, image in enumerate(images) if index in chosen),
    )


def layers_of(graph: Graph, spec: ModelSpec) -> tuple[Layer, ...]:
    """Return the weighted layers of a float model that can run in INT8, in the order of the file."""
    cost = cost_for_one(graph, spec)
    by_output = {node.output: node for node in cost.nodes}
    last = _last(graph)
    return tuple(
        Layer(
            name=called(node),
            mac_share=by_output[node.outputs[0]].macs / max(1, cost.macs),
            is_depthwise=by_output[node.outputs[0]].is_depthwise,
            is_last=called(node) in last,
        )
        for node in place(graph).quantized
    )


def _last(graph: Graph) -> frozenset[str]:
    """Return the weighted nodes behind which there is no other one."""
    found, seen = set(), set()
    waiting = [info.name for info in graph.outputs]
    while waiting:
        tensor = waiting.pop()
        node = graph.producer(tensor)
        if node is None or tensor in seen:
            continue
        seen.add(tensor)
        if node.op_type in WEIGHTED and graph.is_varying(tensor) and graph.constant(node.inputs[1]) is not None:
            found.add(called(node))
        else:
            waiting.extend(name for name in node.inputs if graph.is_varying(name))
    return frozenset(found)


_FEWEST_TO_SPLIT = 4
_HELD_OUT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Inputs of a calibration; `labels` are of the images, `left_out` of them could not be decoded.

    `scenes` are those of the observed images; `objects` those that are labelled. `notes` say what makes a
    proof weak.
    """

    forms: Forms
    split: ImageSplit
    left_out: tuple[Path, ...]
    labels: Labels | None
    scenes: tuple[Scene, ...]
    objects: Objects | None
    notes: tuple[str, ...]


def open_subject(options: CalibrationOptions) -> Subject:
    """Raise `ModelError` if the model cannot be read, is no float model, or has no layer of a name that is to stay in
    float; DatasetError if images or labels cannot be used, or there are too few to prove anything.
    """
    file = read_model_file(options.model)
    spec = inspect_file(file)
    require_float32(file.graph, str(spec.path))
    forms = Forms(spec, file=file)
    found, split = _images(options)
    labels = None
    if options.labels is not None:
        labels = open_labels(options.labels, spec.labels, images=options.images)
    _require_layers(forms, options.keep_float)
    return Subject(
        forms=forms,
        split=split,
        left_out=found.left_out,
        labels=labels,
        scenes=found.scenes(split.observed),
        objects=None if labels is None else labelled_objects(found, labels, spec.labels),
        notes=_notes(found, split),
    )


def _notes(found: FoundImages, split: ImageSplit) -> tuple[str, ...]:
    name_of = {image.sha256: image.path.name for image in found.images}
    observed, held_out = (
        {image.sha256: found.looks[image.sha256] for image in part} for part in (split.observed, split.held_out)
    )
    same = [f"{name_of[one]} = {name_of[other]}" for one, other in looking_like(held_out, observed).items()]
    if not same:
        return found.notes
    return (
        *found.notes,
        f"{len(same)} of {len(held_out)} images that prove the ranges look like one that these come from: "
        f"{listed(same)}",
    )


def _images(options: CalibrationOptions) -> tuple[FoundImages, ImageSplit]:
    found = find_images(options.images, is_skipping_undecodable=options.is_skipping_undecodable)
    images = found.images
    held_out = 0
    if options.is_searched or options.labels is not None:
        if len(images) < _FEWEST_TO_SPLIT:
            raise DatasetError(
                f"{options.images}: {len(images)} images, expected at least {_FEWEST_TO_SPLIT}: some are looked at, "
                "others prove what was found",
                hint="give more images, 100 to 2000 are usual",
            )
        held_out = max(len(images) // 3, min(_HELD_OUT, len(images) // 2))
    return found, split_images(images, held_out=held_out)


def _require_layers(forms: Forms, keep_float: tuple[str, ...]) -> None:
    known = [layer.name for layer in layers_of(forms.graph, forms.spec)]
    unknown = sorted(set(keep_float).difference(known))
    if unknown:
        raise ModelError(
            f'{forms.spec.path}: --keep-float names "{unknown[0]}", which is no layer that could run in INT8'
            f"{nearest(unknown[0], known)}",
            hint="edge-deploy roofline MODEL --machine NAME lists them",
        )
