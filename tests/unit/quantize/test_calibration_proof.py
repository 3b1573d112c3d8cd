"""When a promise counts as kept, and what is measured beside it."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from edge.calibrate.table import Evidence
from edge.engine.kind import load_kind
from edge.errors import VerificationError
from edge.evaluate.truth import GroundTruth
from edge.model.graph import read_model_file
from edge.model.inspect import inspect_file
from edge.quantize.calibrate import Promise
from edge.quantize.crew import Here
from edge.quantize.forms import Forms
from edge.quantize.subject import MaxDrop, find_images
from edge.quantize.trials import Prover
from tests.support.clips import draw
from tests.support.few_layers import few_layers
from tests.support.tables import calibrated
from tests.support.values import calibration_table


def proof(drop, uncertainty):
    int8 = 0.5 - drop / 100
    return Evidence(metric="mAP50-95", images=64, float_=0.5, int8=int8, int8_mac_share=1.0, uncertainty=uncertainty)


@pytest.mark.parametrize(("drop", "is_kept"), [(-1.0, True), (0.4, True), (0.6, False), (0.9, False)])
@pytest.mark.parametrize("uncertainty", [None, 0.0, 0.01])
def test_a_promise_is_about_what_was_measured_whatever_chance_may_have_done(drop, uncertainty, is_kept):
    assert Promise(MaxDrop(amount=0.5)).is_kept(proof(drop, uncertainty)) is is_kept


@pytest.mark.parametrize(("drop", "is_kept"), [(1.4, True), (1.6, False)])  # points; the float model reaches 50
def test_a_relative_promise_is_about_what_the_float_model_reaches(drop, is_kept):
    assert Promise(MaxDrop(amount=3.0, is_relative=True)).is_kept(proof(drop, None)) is is_kept


@pytest.mark.parametrize(
    ("fixed_by", "advice"),
    [(None, "; run this model in fp16"), ("--method", r"; leave out --method \(auto .*\), or run this model in fp16")],
)
def test_a_promise_that_fails_tells_what_was_doubtful_and_first_what_was_not_tried(fixed_by, advice):
    promise = Promise(MaxDrop(amount=0.5), notes=("6 of 18 images are copies",), fixed_by=fixed_by)
    doubtful = msgspec.structs.replace(proof(2.0, 0.01), notes=("of the labels",))
    with pytest.raises(VerificationError, match=f"written; 6 of 18 images are copies; of the labels{advice}"):
        promise.with_evidence(calibration_table({}), "m", doubtful)
    for uncertainty in (None, 0.5):
        noisy = msgspec.structs.replace(proof(0.0, uncertainty), notes=("of the labels",))
        with pytest.raises(VerificationError, match="written; 6 of 18 images are copies; of the labels; give more"):
            promise.with_evidence(calibration_table({}), "m", noisy)
    with pytest.raises(VerificationError, match="written; 6 of 18 images are copies; check that"):
        promise.require_sense(0.01, Claimed())


@pytest.mark.parametrize(("uncertainty", "notes"), [(0.004, 0), (0.0074, 1)])
def test_a_promise_that_chance_may_have_kept_says_what_makes_it_surer(uncertainty, notes):
    table = Promise(MaxDrop(amount=0.5)).with_evidence(calibration_table({}), "m", proof(0.4, uncertainty))

    assert len(table.evidence.notes) == notes
    assert all("0.74 points" in note and "give more labelled images" in note for note in table.evidence.notes)


def test_the_drop_is_in_points():
    assert proof(1.25, None).drop == pytest.approx(1.25)


class Claimed:
    """Labels that say the same of every image, whatever is on it."""

    path, unlabelled, left_out, classes_by, notes = Path("said"), (), 0, "number", ()

    def __init__(self, *boxes):
        self.truth_of_each = GroundTruth.of(boxes, [0] * len(boxes))

    def truth(self, stem, size):
        return self.truth_of_each


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A float model, images, and its INT8 forms by a good table and by one that clips nearly everything."""
    folder = tmp_path_factory.mktemp("proof")
    draw(folder / "seen", 4)
    file = read_model_file(few_layers(folder / "m.onnx"))
    forms = Forms(inspect_file(file), file=file)
    (folder / "table").mkdir()
    table = calibrated(folder / "table", folder / "m.onnx").table
    clipped = {name: msgspec.structs.replace(one, amax=one.amax / 50) for name, one in table.tensors.items()}
    by = [forms.by(one) for one in (table, msgspec.structs.replace(table, tensors=clipped))]
    return forms, find_images(folder / "seen")[0], *by


def prover(place, labels=None):
    forms, images, *_ = place
    return Prover(load_kind("openvino"), forms, images, labels, on_image=lambda: None, crew=Here())


def test_agreement_is_with_what_the_float_model_reports_whatever_the_labels_say(place):
    *_, good, clipped = place
    own, labelled = prover(place), prover(place, Claimed((0.0, 0.0, 3.0, 3.0)))

    agreements = [own.agreement(forms) for forms in (good, clipped)]

    assert agreements == [own.prove(forms).int8 for forms in (good, clipped)]
    assert agreements == [labelled.agreement(forms) for forms in (good, clipped)]
    assert agreements[0] > agreements[1] + 0.2
    assert labelled.prove(good).int8 < 0.1


def test_where_the_float_model_reports_nothing_no_table_agrees_better(place, monkeypatch):
    monkeypatch.setattr("edge.quantize.trials._REPORTED_SCORE", np.inf)
    *_, good, clipped = place
    nothing = prover(place, Claimed((0.0, 0.0, 3.0, 3.0)))

    assert (nothing.agreement(good), nothing.agreement(clipped)) == (0.0, 0.0)
