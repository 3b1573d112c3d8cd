"""The whole of a calibration: look at images, choose ranges, prove them. The table is returned, not written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from edge.calibrate.apply import quantized_model
from edge.calibrate.lint.facts import facts_of_graph
from edge.calibrate.observations import Observations, merge_observations
from edge.calibrate.observations_file import read_observations
from edge.calibrate.peaks import tensors_to_look_at
from edge.calibrate.search import Choice, Found, Limits, search
from edge.calibrate.table import CalibrationTable, Evidence
from edge.calibrate.thresholds.method import Method
from edge.engine.openvino.activations import OpenVinoActivations
from edge.errors import CalibrationError, DatasetError, ModelError, SourceError, VerificationError
from edge.evaluate.labels import open_labels
from edge.model.graph import Graph, load_graph
from edge.model.inspect import ModelOverrides, inspect_model
from edge.model.obstacles import INTEGER_OPERATORS
from edge.model.qdq import corrected_tensors, quantizable_tensors
from edge.quantize.calibration.draft import made_table, ranges_by_method, with_means
from edge.quantize.calibration.images import ImageSplit, find_images, require_decodable, split_images
from edge.quantize.calibration.layers import layers_of
from edge.quantize.calibration.means import channel_means
from edge.quantize.calibration.observe import observe
from edge.quantize.calibration.proof import Proof, Prover
from edge.quantize.calibration.trials import Trials
from edge.types import ModelSpec

__all__ = ["FEW_IMAGES", "Calibration", "CalibrationHooks", "CalibrationOptions", "calibrate"]

FEW_IMAGES = 64  # fewer hardly show what the cameras will see
_FEWEST_TO_SPLIT = 4
_TRIAL_IMAGES = 64  # more make the search slower, and hardly surer
_HELD_OUT = 64
_WIDER = tuple(Limits(other=share, total=share + 0.1) for share in (0.1, 0.15, 0.25, 0.35))
_STEPS_BESIDE_LAYERS = 150  # of a search, about


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions:
    """What to calibrate, and how.

    Attributes:
        images: folder; None: only what `histograms` have seen.
        method: None: searched for each tensor.
        labels: folder or file; with them it is mAP that is measured, and `max_drop` is a promise.
        max_drop: in mAP points.
        keep_float: nodes that stay in float whatever is found.
        histograms: of other images, to be merged.
        max_batch: images on one canvas; changes nothing in the result.
        is_skipping_undecodable: leave out files that cannot be decoded, instead of refusing them.
    """

    model: Path
    images: Path | None
    method: Method | None = None
    labels: Path | None = None
    max_drop: float = 0.5
    keep_float: tuple[str, ...] = ()
    histograms: tuple[Path, ...] = ()
    max_batch: int = 1
    is_skipping_undecodable: bool = False
    overrides: ModelOverrides | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationHooks:
    """What is told meanwhile: a stage with the number of its steps (about), and each step."""

    on_stage: Callable[[str, int], None] = lambda name, steps: None
    on_step: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What came out.

    Attributes:
        observations: to be saved and merged with those of other images.
        left_out: files that could not be decoded.
        errors: at the outputs, after each step of the search; empty where nothing was searched.
        seconds: of each stage.
    """

    spec: ModelSpec
    table: CalibrationTable
    observations: Observations
    left_out: tuple[Path, ...]
    int8_mac_share: float
    errors: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


def calibrate(options: CalibrationOptions, hooks: CalibrationHooks | None = None) -> Calibration:
    """Return a table for a model, proven where labels are given or the method is searched.

    Raises:
        VerificationError: if INT8 loses more than was promised, whatever stays in float.
        EdgeError: if model, images, labels or histograms cannot be used.
    """
    return _Run(options, hooks or CalibrationHooks()).result()


class _Run:
    """One calibration, stage by stage."""

    def __init__(self, options: CalibrationOptions, hooks: CalibrationHooks) -> None:
        self._options = options
        self._hooks = hooks
        self._seconds: dict[str, float] = {}
        self._spec = _float_model(options)
        self._graph = _float_graph(self._spec)
        self._split, self._left_out = _images(options)
        self._labels = None if options.labels is None else open_labels(options.labels, self._spec.labels)
        self._require_nodes()

    def result(self) -> Calibration:
        observations, engine = self._observed()
        ranges = ranges_by_method(observations, self._options.method)
        means = self._means() if self._options.method is None else {}

        def table_of(choice: Choice) -> CalibrationTable:
            method = "auto" if self._options.method is None else self._options.method.value
            table = made_table(self._spec, self._graph, observations, ranges, choice, method=method, engine=engine)
            return with_means(table, means)

        table, found = self._chosen(ranges, means, table_of)
        return Calibration(
            spec=self._spec,
            table=table,
            observations=observations,
            left_out=self._left_out,
            int8_mac_share=quantized_model(table, self._spec).mac_share_int8,
            errors={} if found is None else {name: step.error for name, step in found.steps.items()},
            seconds=self._seconds,
        )

    def _observed(self) -> tuple[Observations, str]:
        names = quantizable_tensors(self._graph)
        facts = facts_of_graph(self._graph, self._spec)
        others = [name for name in facts.activations if name not in set(names)]
        peaks_of = tensors_to_look_at(self._graph, others, scores=facts.scores)
        earlier = [read_observations(path) for path in self._options.histograms]
        _require_unseen(self._split, earlier)
        if not self._split.observed:
            return _merged(earlier, self._spec), "histograms"
        with self._stage("observe", len(self._split.observed)), _told(self._split):
            engine = OpenVinoActivations(self._spec, names, largest_of=peaks_of, max_batch=self._options.max_batch)
            try:
                seen = observe(
                    self._spec,
                    self._split.observed,
                    engine,
                    names=names,
                    peaks_of=peaks_of,
                    on_image=self._hooks.on_step,
                )
                return _merged([*earlier, seen], self._spec), engine.name
            finally:
                engine.close()

    def _means(self) -> dict[str, tuple[float, ...]]:
        names, images = corrected_tensors(self._graph), self._split.observed
        with self._stage("means", len(images)), _told(self._split):
            engine = OpenVinoActivations(self._spec, names, max_batch=self._options.max_batch)
            try:
                return channel_means(self._spec, images, engine, names=names, on_image=self._hooks.on_step)
            finally:
                engine.close()

    def _chosen(
        self,
        ranges: Mapping[str, Mapping[str, float]],
        means: Mapping[str, Sequence[float]],
        table_of: Callable[[Choice], CalibrationTable],
    ) -> tuple[CalibrationTable, Found | None]:
        kept = dict.fromkeys(self._options.keep_float, "asked for")
        method = self._options.method
        if method is not None and self._labels is None:
            return table_of(Choice(methods=dict.fromkeys(ranges, method.value), floats=kept)), None
        with self._stage("float", len(self._split.held_out)), _told(self._split):
            prover = Prover(self._spec, self._split.held_out, self._labels, on_image=self._hooks.on_step)
        if method is None:
            return self._proven(self._searched(ranges, means, kept), prover, table_of)
        table = table_of(Choice(methods=dict.fromkeys(ranges, method.value), floats=kept))
        with self._stage("prove", len(self._split.held_out)):
            proof = prover.prove(quantized_model(table, self._spec).model)
        return self._with_evidence(table, proof), None

    def _searched(
        self,
        ranges: Mapping[str, Mapping[str, float]],
        means: Mapping[str, Sequence[float]],
        kept: Mapping[str, str],
    ) -> Found:
        layers = layers_of(self._graph, self._spec)
        trials = Trials(self._spec, self._graph, ranges, means, on_trial=self._hooks.on_step)
        with self._stage("search", len(layers) + _STEPS_BESIDE_LAYERS), _told(self._split):
            images = self._split.held_out[:_TRIAL_IMAGES]
            trials.prepare(images)
            return search(ranges, layers, trials, images=len(images), floats=kept)

    def _proven(
        self, found: Found, prover: Prover, table_of: Callable[[Choice], CalibrationTable]
    ) -> tuple[CalibrationTable, Found]:
        """Return the first table that keeps the promise, from the fastest on."""
        with self._stage("prove", len(self._split.held_out)):
            for limits in (None, *_WIDER):
                found = found if limits is None else found.widened(limits)
                table = table_of(found.best.choice)
                proof = prover.prove(quantized_model(table, self._spec).model)
                if self._keeps_promise(proof):
                    break
        return self._with_evidence(table, proof), found

    def _keeps_promise(self, proof: Proof) -> bool:
        return self._labels is None or proof.keeps(self._options.max_drop)

    def _with_evidence(self, table: CalibrationTable, proof: Proof) -> CalibrationTable:
        if not self._keeps_promise(proof):
            raise VerificationError(
                f"{self._spec.name}: INT8 loses {proof.drop:.2f} mAP50-95 points (float {100 * proof.float_:.2f}, INT8 "
                f"{100 * proof.int8:.2f}, standard error {100 * (proof.uncertainty or 0.0):.2f}) on {proof.images} "
                f"images that no range comes from; promised were at most {self._options.max_drop:g}, so nothing was "
                "written",
                hint="run this model in fp16, or give more images like those of the cameras, or allow a larger drop",
            )
        share = quantized_model(table, self._spec).mac_share_int8
        evidence = Evidence(
            metric=proof.metric,
            images=proof.images,
            float_=round(proof.float_, 5),
            int8=round(proof.int8, 5),
            int8_mac_share=round(share, 4),
            uncertainty=None if proof.uncertainty is None else round(proof.uncertainty, 5),
        )
        return msgspec.structs.replace(table, evidence=evidence)

    def _require_nodes(self) -> None:
        known = {layer.name for layer in layers_of(self._graph, self._spec)}
        unknown = sorted(set(self._options.keep_float) - known)
        if unknown:
            raise ModelError(
                f'{self._spec.path}: --keep-float names "{unknown[0]}", which is no layer that could run in INT8',
                hint="edge-deploy compare lists the layers by name",
            )

    @contextmanager
    def _stage(self, name: str, steps: int) -> Iterator[None]:
        self._hooks.on_stage(name, steps)
        started = time.monotonic()
        yield
        self._seconds[name] = time.monotonic() - started


def _float_model(options: CalibrationOptions) -> ModelSpec:
    spec = inspect_model(options.model, overrides=options.overrides)
    if spec.is_quantized:
        raise ModelError(
            f"{spec.path}: expected a float model, it carries Q/DQ nodes already",
            hint="calibrate the float model; edge-deploy table import makes a table of this one",
        )
    return spec


def _float_graph(spec: ModelSpec) -> Graph:
    graph = load_graph(spec.path)
    if found := sorted({node.op_type for node in graph.nodes}.intersection(INTEGER_OPERATORS)):
        raise ModelError(
            f"{spec.path}: expected a float model, it computes in integers already ({', '.join(found)})",
            hint="calibrate the float model that it was made of",
        )
    return graph


def _images(options: CalibrationOptions) -> tuple[ImageSplit, tuple[Path, ...]]:
    if options.images is None:
        return ImageSplit(observed=(), held_out=()), ()
    images, left_out = find_images(options.images, is_decodable_only=options.is_skipping_undecodable)
    held_out = 0
    if options.method is None or options.labels is not None:
        if len(images) < _FEWEST_TO_SPLIT:
            raise DatasetError(
                f"{options.images}: {len(images)} images, expected at least {_FEWEST_TO_SPLIT}: some are looked at, "
                "others prove what was found",
                hint="give more images, 100 to 2000 are usual",
            )
        held_out = max(len(images) // 3, min(_HELD_OUT, len(images) // 2))
    return split_images(images, held_out=held_out), tuple(left_out)


def _merged(parts: list[Observations], spec: ModelSpec) -> Observations:
    if not parts:
        raise CalibrationError("nothing to calibrate with", hint="give a folder of images, or saved histograms")
    merged = parts[0]
    for part in parts[1:]:
        merged = merge_observations(merged, part)
    for what, expected in (("model_sha256", spec.sha256), ("preprocess_sha256", spec.preprocess.sha256)):
        found = getattr(merged, what)
        if found != expected:
            raise CalibrationError(
                f"the histograms are of {what} {found[:12]}, {spec.name} is {expected[:12]}",
                hint="observe the images again with this very model",
            )
    return merged


def _require_unseen(split: ImageSplit, earlier: Sequence[Observations]) -> None:
    """Refuse to prove ranges on images that they come from."""
    seen = {digest for part in earlier for digest in part.image_sha256s}
    again = [image.path.name for image in split.held_out if image.sha256 in seen]
    if again:
        raise CalibrationError(
            f"{len(again)} of the images that are to prove the ranges were seen by the histograms, the first is "
            f"{again[0]}",
            hint="give --images that are not in the --histograms",
        )


@contextmanager
def _told(split: ImageSplit) -> Iterator[None]:
    """Turn one image that cannot be decoded into the list of all of them."""
    try:
        yield
    except SourceError as error:
        require_decodable((*split.observed, *split.held_out))
        raise DatasetError(error.problem, hint=error.hint) from error
