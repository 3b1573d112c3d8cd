"""The whole of a calibration: look at images, choose ranges, prove them. The table is returned, not written."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from edge.calibrate.findings import Finding, facts_of_graph
from edge.calibrate.lint import lint_table
from edge.calibrate.measurements import ChoiceKey, FloatLimits, Int8Choice
from edge.calibrate.observations import Observations, merge_observations, variety_of
from edge.calibrate.search import SearchResult, search
from edge.calibrate.table import CalibrationTable, DatasetId, Evidence
from edge.engine.kind import EngineKind, quick_kind
from edge.errors import VerificationError
from edge.evaluate.truth import Labels
from edge.model.qdq import corrected_tensors, quantizable_tensors
from edge.quantize.crew import Crew, Here
from edge.quantize.forms import Forms
from edge.quantize.library import able_kind, seen_by_calibrator, table_by_calibrator
from edge.quantize.new_tables import (
    MeansOfEach,
    Observing,
    made_table,
    mean_of_all,
    ranges_by_method,
    tensors_to_look_at,
    with_means,
)
from edge.quantize.subject import (
    CalibrationOptions,
    MaxDrop,
    layers_of,
    open_subject,
)
from edge.quantize.trials import Prover, Trials, Trying, references_of
from edge.types import ModelSpec

__all__ = ["FEW_IMAGES", "Calibration", "calibrate"]

_LEAST_FLOAT = 0.05  # mAP50-95: below it the model finds next to nothing of what is labelled
_NOISIEST_POINTS = 2.0  # standard error; of 64 images of COCO it is 0.5 to 0.9
_NOISIEST = 4.0  # times what may be lost


class Promise:
    """No more than `max_drop` is lost; None: nothing is promised. `left_out` and `notes` become evidence.

    `fixed_by`: the option that leaves no layer to be searched; None: there is none.
    """

    def __init__(
        self,
        max_drop: MaxDrop | None,
        *,
        left_out: Sequence[Path] = (),
        notes: tuple[str, ...] = (),
        fixed_by: str | None = None,
    ) -> None:
        self._max_drop = max_drop
        self._fixed_by = fixed_by
        self._left_out = tuple(path.name for path in left_out)
        self._notes = notes

    def is_kept(self, proof: Evidence) -> bool:
        """Return whether `proof` shows no larger drop; chance is no excuse."""
        return self._max_drop is None or proof.drop <= self._max_drop.points_of(proof.float_)

    def require_sense(self, float_: float, labels: Labels | None) -> None:
        """Refuse to promise anything of a float model that does not find what is labelled.
        Raises `VerificationError` if it reaches next to nothing.
        """
        if self._max_drop is not None and labels is not None and float_ < _LEAST_FLOAT:
            missing = f"; {len(set(labels.unlabelled))} images have no labels" if labels.unlabelled else ""
            raise VerificationError(
                f"{labels.path}: the float model reaches mAP50-95 {float_:.4f} on these labels, so that nothing can be "
                f"promised of INT8{missing}; nothing was written{_told(self._notes)}",
                hint="check that labels, classes and images belong together: edge-deploy evaluate without a table",
            )

    def with_evidence(self, table: CalibrationTable, model: str, proof: Evidence) -> CalibrationTable:
        """Return `table`, which is of `model`, with what was measured.
        Raises `VerificationError` if that breaks the promise, or says too little to keep one.
        """
        if not self.is_kept(proof):
            first = "" if self._fixed_by is None else f"leave out {self._fixed_by} (auto keeps layers in float), or "
            raise VerificationError(
                f"{model}: INT8 loses {proof.drop:.2f} mAP50-95 points (float {100 * proof.float_:.2f}, INT8 "
                f"{100 * proof.int8:.2f}, standard error {100 * (proof.uncertainty or 0.0):.2f}) on {proof.images} "
                f"images that no range comes from; promised were at most {self._max_drop}, so nothing was written"
                f"{_told((*self._notes, *proof.notes))}",
                hint=f"{first}run this model in fp16, or give more images like those of the cameras, "
                "or allow a larger drop",
            )
        evidence = msgspec.structs.replace(
            proof,
            float_=round(proof.float_, 5),
            int8=round(proof.int8, 5),
            int8_mac_share=round(proof.int8_mac_share, 4),
            uncertainty=None if proof.uncertainty is None else round(proof.uncertainty, 5),
            left_out=self._left_out,
            notes=(*self._notes, *proof.notes, *self._doubts(model, proof)),
        )
        return msgspec.structs.replace(table, evidence=evidence)

    def _doubts(self, model: str, proof: Evidence) -> tuple[str, ...]:
        """Return what makes a kept promise weak. Raises `VerificationError` if it is none."""
        if self._max_drop is None:
            return ()
        promised = self._max_drop.points_of(proof.float_)
        error = None if proof.uncertainty is None else 100 * proof.uncertainty
        if error is None or error > max(_NOISIEST_POINTS, _NOISIEST * promised):
            known = "cannot be known" if error is None else f"is {error:.2f} points"
            raise VerificationError(
                f"{model}: {proof.images} images that no range comes from tell too little: the standard error of what "
                f"INT8 loses {known}, promised were at most {self._max_drop}, so nothing was written"
                f"{_told((*self._notes, *proof.notes))}",
                hint="give more labelled images, or allow a larger drop",
            )
        if error > promised:
            return (
                f"the standard error of the difference, {error:.2f} points, is larger than what was promised: "
                "give more labelled images",
            )
        return ()


def _told(notes: Sequence[str]) -> str:
    return "".join(f"; {note}" for note in notes)


FEW_IMAGES = 64  # fewer hardly show what the cameras will see
_TRIAL_IMAGES = 64  # more make the search slower, and hardly surer
_WIDER = tuple(FloatLimits(other=share, total=share + 0.1) for share in (0.1, 0.15, 0.25, 0.35))
_STEPS_BESIDE_LAYERS = 110  # of a search, about

Ranges = Mapping[str, Mapping[str, float]]
Means = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Result of a calibration."""

    spec: ModelSpec
    table: CalibrationTable
    observations: Observations
    left_out: tuple[Path, ...]  # files that could not be decoded
    notes: tuple[str, ...]  # sentences about images that show the same; with a proof they are in its evidence
    int8_mac_share: float
    # at the outputs, after each step of the search; empty where nothing was searched
    errors: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)  # of each stage
    findings: tuple[Finding, ...] = ()  # what lint says of the table


def calibrate(
    options: CalibrationOptions,
    kind: EngineKind,
    *,
    on_stage: Callable[[str, int], None] = lambda name, steps: None,
    on_step: Callable[[], None] = lambda: None,
    crew: Crew | None = None,
) -> Calibration:
    """Return a table for a model, proven where labels are given or the method is searched.

    `kind`: of the engines that look at the model, try and prove. `on_stage`: called with the name of each stage and the
    number of its steps (about). `on_step`: called after each step. `crew`: who looks, tries and proves; None: this
    process. A calibrator of a library runs in this process anyway.
    Raises VerificationError if INT8 loses more than was promised, whatever stays in float; EdgeError if model, images
    or labels cannot be used.
    """
    return _Run(options, kind, crew or Here(), on_stage, on_step).result()


class _Run:
    def __init__(
        self,
        options: CalibrationOptions,
        kind: EngineKind,
        crew: Crew,
        on_stage: Callable[[str, int], None],
        on_step: Callable[[], None],
    ) -> None:
        if options.calibrator is not None:
            able_kind(kind, options.calibrator)
        self._options = options
        self._kind = kind
        self._crew = crew
        self._on_stage = on_stage
        self._on_step = on_step
        self._seconds: dict[str, float] = {}
        self._subject = open_subject(options)
        self._forms, self._split = self._subject.forms, self._subject.split
        subject, max_drop = self._subject, None if self._subject.labels is None else options.max_drop
        self._objects = subject.objects
        fixed_by = "--calibrator" if options.calibrator is not None else None if options.is_searched else "--method"
        self._promise = Promise(max_drop, left_out=subject.left_out, notes=subject.notes, fixed_by=fixed_by)
        self._kept = dict.fromkeys(options.keep_float, "asked for")

    def result(self) -> Calibration:
        if self._options.calibrator is not None:
            return self._by_library(self._options.calibrator)
        observations, engine = self._observed()
        ranges = ranges_by_method(observations, self._options.method)
        means = self._means() if self._options.method is None else {}

        def table_of(choice: Int8Choice) -> CalibrationTable:
            method = "auto" if self._options.method is None else self._options.method.value
            spec, graph = self._forms.spec, self._forms.graph
            is_centred = self._options.is_centred
            table = made_table(
                spec, graph, observations, ranges, choice, method=method, is_centred=is_centred, engine=engine
            )
            return with_means(table, means)

        if self._options.method is None:
            return self._searched(ranges, means, table_of, observations)
        method = dict.fromkeys(ranges, self._options.method.value)
        return self._fixed(table_of(Int8Choice(methods=method, floats=self._kept)), observations)

    @contextmanager
    def _stage(self, name: str, steps: int) -> Iterator[None]:
        self._on_stage(name, steps)
        started = time.monotonic()
        yield
        self._seconds[name] = time.monotonic() - started

    def _observed(self) -> tuple[Observations, str]:
        spec, graph, images = self._forms.spec, self._forms.graph, self._split.observed
        names, facts = quantizable_tensors(graph), facts_of_graph(graph, spec)
        others = [name for name in facts.activations if name not in set(names)]
        peaks_of = tensors_to_look_at(graph, others, scores=facts.scores)
        with self._stage("observe", len(images)):
            rows = self._options.max_batch
            work = Observing(kind=self._kind, forms=self._forms, max_batch=rows, names=names, peaks_of=peaks_of)
            with self._crew.take_on(work) as job:
                return functools.reduce(merge_observations, job.each(images, on_item=self._on_step)), job.engine

    def _means(self) -> dict[str, tuple[float, ...]]:
        names, images = corrected_tensors(self._forms.graph), self._split.observed
        with self._stage("means", len(images)):
            work = MeansOfEach(kind=self._kind, forms=self._forms, max_batch=self._options.max_batch, names=names)
            with self._crew.take_on(work) as job:
                return mean_of_all(job.each(images, on_item=self._on_step))

    def _by_library(self, calibrator: str) -> Calibration:
        images = self._split.observed
        with self._stage("calibrator", len(images)):
            table = table_by_calibrator(
                self._forms,
                self._kind,
                calibrator,
                images,
                max_batch=self._options.max_batch,
                floats=self._kept,
                on_image=self._on_step,
            )
        return self._fixed(table, seen_by_calibrator(images))

    def _fixed(self, table: CalibrationTable, observations: Observations) -> Calibration:
        forms = self._forms.by(table)
        if self._subject.labels is not None:
            prover = self._prover()
            with self._stage("prove", len(self._split.held_out)):
                proof = prover.prove(forms)
            table = self._promise.with_evidence(table, forms.spec.name, proof)
        return self._done(table, forms, observations)

    def _searched(
        self,
        ranges: Ranges,
        means: Means,
        table_of: Callable[[Int8Choice], CalibrationTable],
        observations: Observations,
    ) -> Calibration:
        """Return the first table that keeps the promise, from the fastest on."""
        prover, found = self._prover(), self._search(ranges, means)
        settler, made = self._settler(found, prover), dict[ChoiceKey, tuple[CalibrationTable, Forms]]()

        def finished(choice: Int8Choice) -> tuple[CalibrationTable, Forms]:
            """Of a choice that comes again, the same forms: what a prover has detected by these it keeps."""
            if choice.key not in made:
                table = table_of(choice)
                made[choice.key] = table, self._forms.by(table)
            return made[choice.key]

        with self._stage("prove", len(found.tied) * len(self._split.held_out)):
            found = found.settled_by(lambda choice: settler.agreement(finished(choice)[1]))
            for limits in (None, *_WIDER):
                found = found if limits is None else found.widened(limits)
                table, forms = finished(found.best.choice)
                proof = prover.prove(forms)
                if self._promise.is_kept(proof):
                    break
        table = self._promise.with_evidence(table, forms.spec.name, proof)
        return self._done(table, forms, observations, found)

    def _settler(self, found: SearchResult, prover: Prover) -> Prover:
        """Return who measures what is tied: by a quick kind of engine, as what is tried."""
        kind = quick_kind(self._kind)
        return prover if len(found.tied) == 1 or kind is self._kind else self._prover(kind)

    def _search(self, ranges: Ranges, means: Means) -> SearchResult:
        layers = layers_of(self._forms.graph, self._forms.spec)
        is_centred, on_trial = self._options.is_centred, self._on_step
        kind = quick_kind(self._kind)  # a hundred engines are tried; the proof is by the kind that was asked for
        images = self._split.held_out[:_TRIAL_IMAGES]
        with self._stage("search", len(layers) // 4 + _STEPS_BESIDE_LAYERS):
            references = references_of(kind, self._forms, images, crew=self._crew)
            work = Trying(
                kind=kind, forms=self._forms, references=references, ranges=ranges, means=means, is_centred=is_centred
            )
            with self._crew.take_on(work) as job:
                trials = Trials(job, on_trial=on_trial)
                return search(ranges, layers, trials, images=len(images), steady=trials.by_best, floats=self._kept)

    def _prover(self, kind: EngineKind | None = None) -> Prover:
        images, labels = self._split.held_out, self._subject.labels
        with self._stage("float", len(images)):
            prover = Prover(kind or self._kind, self._forms, images, labels, on_image=self._on_step, crew=self._crew)
        self._promise.require_sense(prover.float_, labels)
        if labels is None:
            self._objects = prover.reported()
        return prover

    def _done(
        self, table: CalibrationTable, forms: Forms, observations: Observations, found: SearchResult | None = None
    ) -> Calibration:
        table = msgspec.structs.replace(table, dataset=self._dataset(observations))
        return Calibration(
            spec=forms.spec,
            table=table,
            observations=observations,
            left_out=self._subject.left_out,
            notes=self._subject.notes,
            int8_mac_share=forms.mac_share_int8,
            errors={} if found is None else {name: step.error for name, step in found.steps.items()},
            seconds=self._seconds,
            findings=lint_table(table, facts_of_graph(forms.graph, forms.spec)),
        )

    def _dataset(self, observations: Observations) -> DatasetId:
        variety = msgspec.structs.replace(variety_of(self._subject.scenes), objects=self._objects)
        return msgspec.structs.replace(observations.dataset, variety=variety)
