"""The whole of a calibration: look at images, choose ranges, prove them. The table is returned, not written."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from edge.calibrate.lint.check import lint_table
from edge.calibrate.lint.facts import facts_of_graph
from edge.calibrate.observations import Observations, merge_observations
from edge.calibrate.observations_file import read_observations
from edge.calibrate.peaks import tensors_to_look_at
from edge.calibrate.search import FloatLimits, Int8Choice, SearchResult, search
from edge.calibrate.table import CalibrationTable
from edge.engine.kind import EngineKind
from edge.engine.select import quick_kind
from edge.model.qdq import corrected_tensors, quantizable_tensors
from edge.quantize.crew import Crew, Here
from edge.quantize.forms import Forms
from edge.quantize.make_table.earlier import merged, require_unseen
from edge.quantize.make_table.layers import layers_of
from edge.quantize.make_table.library import able_kind, seen_by_calibrator, table_by_calibrator
from edge.quantize.make_table.means import MeansOfEach, mean_of_all
from edge.quantize.make_table.new_tables import made_table, ranges_by_method, with_means
from edge.quantize.make_table.observe import Observing
from edge.quantize.make_table.options import Calibration, CalibrationHooks, CalibrationOptions, LibraryCalibrator
from edge.quantize.make_table.promise import Promise
from edge.quantize.make_table.proof import Prover
from edge.quantize.make_table.references import references_of
from edge.quantize.make_table.stages import CalibrationStages
from edge.quantize.make_table.subject import open_subject
from edge.quantize.make_table.trials import Trials, Trying

__all__ = ["FEW_IMAGES", "calibrate"]

FEW_IMAGES = 64  # fewer hardly show what the cameras will see
_TRIAL_IMAGES = 64  # more make the search slower, and hardly surer
_WIDER = tuple(FloatLimits(other=share, total=share + 0.1) for share in (0.1, 0.15, 0.25, 0.35))
_STEPS_BESIDE_LAYERS = 110  # of a search, about

Ranges = Mapping[str, Mapping[str, float]]
Means = Mapping[str, Sequence[float]]


def calibrate(
    options: CalibrationOptions,
    kind: EngineKind,
    hooks: CalibrationHooks | None = None,
    *,
    crew: Crew | None = None,
) -> Calibration:
    """Return a table for a model, proven where labels are given or the method is searched.

    Args:
        options: what to calibrate, and how.
        kind: of the engines that look at the model, try and prove.
        hooks: told of stages and steps.
        crew: who looks, tries and proves; None: this process. A calibrator of a library runs in this process anyway.

    Raises:
        VerificationError: if INT8 loses more than was promised, whatever stays in float.
        EdgeError: if model, images, labels or histograms cannot be used.
    """
    return _Run(options, kind, hooks or CalibrationHooks(), crew or Here()).result()


class _Run:
    """One calibration, stage by stage."""

    def __init__(self, options: CalibrationOptions, kind: EngineKind, hooks: CalibrationHooks, crew: Crew) -> None:
        if options.calibrator is not None:
            able_kind(kind, options.calibrator)
        self._options = options
        self._kind = kind
        self._crew = crew
        self._stages = CalibrationStages(hooks)
        self._subject = open_subject(options)
        self._forms, self._split = self._subject.forms, self._subject.split
        self._promise = Promise(None if self._subject.labels is None else options.max_drop)
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

    def _observed(self) -> tuple[Observations, str]:
        spec, graph, images = self._forms.spec, self._forms.graph, self._split.observed
        names, facts = quantizable_tensors(graph), facts_of_graph(graph, spec)
        others = [name for name in facts.activations if name not in set(names)]
        peaks_of = tensors_to_look_at(graph, others, scores=facts.scores)
        earlier = [read_observations(path) for path in self._options.histograms]
        require_unseen(self._split, earlier)
        if not images:
            return merged(earlier, spec), "histograms"
        with self._stages.stage("observe", len(images)), self._subject.told():
            rows = self._options.max_batch
            work = Observing(kind=self._kind, forms=self._forms, max_batch=rows, names=names, peaks_of=peaks_of)
            with self._crew.take_on(work) as job:
                seen = functools.reduce(merge_observations, job.each(images, on_item=self._stages.step))
                return merged([*earlier, seen], spec), job.engine

    def _means(self) -> dict[str, tuple[float, ...]]:
        names, images = corrected_tensors(self._forms.graph), self._split.observed
        with self._stages.stage("means", len(images)), self._subject.told():
            work = MeansOfEach(kind=self._kind, forms=self._forms, max_batch=self._options.max_batch, names=names)
            with self._crew.take_on(work) as job:
                return mean_of_all(job.each(images, on_item=self._stages.step))

    def _by_library(self, calibrator: LibraryCalibrator) -> Calibration:
        images = self._split.observed
        with self._stages.stage("calibrator", len(images)), self._subject.told():
            table = table_by_calibrator(
                self._forms,
                self._kind,
                calibrator,
                images,
                max_batch=self._options.max_batch,
                floats=self._kept,
                on_image=self._stages.step,
            )
        return self._fixed(table, seen_by_calibrator(self._forms.spec, images))

    def _fixed(self, table: CalibrationTable, observations: Observations) -> Calibration:
        """Return what one table came to that nothing was searched for."""
        forms = self._forms.by(table)
        if self._subject.labels is not None:
            prover = self._prover()
            with self._stages.stage("prove", len(self._split.held_out)):
                proof = prover.prove(forms)
            table = self._promise.with_evidence(table, forms, proof)
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
        finished, settler = _Finished(table_of, self._forms), self._settler(found, prover)
        with self._stages.stage("prove", len(found.tied) * len(self._split.held_out)):
            found = found.settled_by(lambda choice: settler.agreement(finished.by(choice)[1]))
            for limits in (None, *_WIDER):
                found = found if limits is None else found.widened(limits)
                table, forms = finished.by(found.best.choice)
                proof = prover.prove(forms)
                if self._promise.is_kept(proof):
                    break
        return self._done(self._promise.with_evidence(table, forms, proof), forms, observations, found)

    def _settler(self, found: SearchResult, prover: Prover) -> Prover:
        """Return who measures what is tied: by a quick kind of engine, as what is tried."""
        kind = quick_kind(self._kind)
        return prover if len(found.tied) == 1 or kind is self._kind else self._prover(kind)

    def _search(self, ranges: Ranges, means: Means) -> SearchResult:
        layers = layers_of(self._forms.graph, self._forms.spec)
        is_centred, on_trial = self._options.is_centred, self._stages.step
        kind = quick_kind(self._kind)  # a hundred engines are tried; the proof is by the kind that was asked for
        images = self._split.held_out[:_TRIAL_IMAGES]
        with self._stages.stage("search", len(layers) // 4 + _STEPS_BESIDE_LAYERS), self._subject.told():
            references = references_of(kind, self._forms, images, crew=self._crew)
            work = Trying(
                kind=kind, forms=self._forms, references=references, ranges=ranges, means=means, is_centred=is_centred
            )
            with self._crew.take_on(work) as job:
                trials = Trials(job, on_trial=on_trial)
                return search(ranges, layers, trials, images=len(images), steady=trials.by_best, floats=self._kept)

    def _prover(self, kind: EngineKind | None = None) -> Prover:
        images, labels = self._split.held_out, self._subject.labels
        with self._stages.stage("float", len(images)), self._subject.told():
            return Prover(kind or self._kind, self._forms, images, labels, on_image=self._stages.step, crew=self._crew)

    def _done(
        self, table: CalibrationTable, forms: Forms, observations: Observations, found: SearchResult | None = None
    ) -> Calibration:
        return Calibration(
            spec=forms.spec,
            table=table,
            observations=observations,
            left_out=self._subject.left_out,
            int8_mac_share=forms.mac_share_int8,
            errors={} if found is None else {name: step.error for name, step in found.steps.items()},
            seconds=self._stages.seconds,
            findings=lint_table(table, facts_of_graph(forms.graph, forms.spec)),
        )


class _Finished:
    """Tables of choices, and the forms of the model by them; those of the same choice are made once."""

    def __init__(self, table_of: Callable[[Int8Choice], CalibrationTable], forms: Forms) -> None:
        self._table_of = table_of
        self._forms = forms
        self._made: list[tuple[Int8Choice, CalibrationTable, Forms]] = []

    def by(self, choice: Int8Choice) -> tuple[CalibrationTable, Forms]:
        for known, table, forms in self._made:
            if known is choice:
                return table, forms
        table = self._table_of(choice)
        self._made.append((choice, table, self._forms.by(table)))
        return self._made[-1][1:]
