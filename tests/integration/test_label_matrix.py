"""Labels in the forms that people have: the accuracy that each must give, by pycocotools, or its refusal."""

import contextlib
import io

import onnx
import pytest

from edge.calibrate.histogram import Method
from edge.engine.kind import load_kind
from edge.errors import DatasetError, EdgeError
from edge.evaluate.class_names import find_label_names
from edge.quantize.accuracy import EvaluationOptions, evaluate_model
from edge.quantize.calibrate import calibrate
from edge.quantize.subject import CalibrationOptions
from tests.support.label_variants import COCO_FILES, YOLO
from tests.support.labelled import CLASSES, MODEL, Detected, Given, Remembering, write_street

ABOUT = 2e-4  # six digits of a box


@pytest.fixture(scope="module")
def street(tmp_path_factory):
    return write_street(tmp_path_factory.mktemp("street"))


@pytest.fixture(scope="module")
def crew(street, tmp_path_factory):
    crew = Remembering()
    measured(street, Given(tmp_path_factory.mktemp("plain"), street).yolo(), crew)
    return crew


def measured(street, labels, crew, *, model=MODEL):
    options = EvaluationOptions(model=model, images=images_of(street, labels), labels=labels)
    return evaluate_model(options, load_kind("openvino"), crew=crew)


def model_of(path, classes):
    """Return the model where its classes are called so, a copy at `path` where it calls them otherwise."""
    if classes == CLASSES:
        return MODEL
    model = onnx.load(MODEL)
    names = next(each for each in model.metadata_props if each.key == "names")
    names.value = str(dict(enumerate(classes)))
    onnx.save(model, path)
    return path


def images_of(street, labels):
    beside = labels.parent / "images"
    return beside if labels.suffix == ".yaml" else street.images


def expected(street, crew, boxes):
    with contextlib.redirect_stdout(io.StringIO()):
        return Detected(street, crew.found).score(boxes)


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(one, id=f"{kind} {one.name}")
        for kind, all_ in (("YOLO", YOLO), ("COCO", COCO_FILES))
        for one in all_
    ],
)
@pytest.mark.promised(reason="labels as people have them")
def test_labels_give_the_accuracy_of_the_truth_or_are_refused(street, crew, tmp_path, variant):
    labels = variant.make(Given(tmp_path / "set", street))
    model = model_of(tmp_path / "model.onnx", variant.labels)

    if variant.code:
        with pytest.raises(EdgeError) as refused:
            measured(street, labels, crew, model=model)
        assert refused.value.exit_code == variant.code
        return
    found = measured(street, labels, crew, model=model)

    assert found.accuracy.map50_95 == pytest.approx(expected(street, crew, variant.boxes(street.boxes)), abs=ABOUT)
    assert sum(row["boxes"] for row in found.as_json()["per_class"]) == found.accuracy.boxes
    assert found.classes_by == variant.classes_by
    assert (len(found.unlabelled), found.left_out) == (variant.unlabelled, variant.left_out)
    assert [variant.noted in note for note in found.notes] == ([True] if variant.noted else [])


@pytest.mark.promised(reason="labels as people have them")
def test_calibrate_promises_nothing_where_classes_are_permuted(street, tmp_path):
    labels = Given(tmp_path, street).yolo(number=lambda class_id: (class_id + 1) % 4)
    options = CalibrationOptions(model=MODEL, images=street.images, labels=labels, method=Method.MINMAX)

    with pytest.raises(DatasetError, match=r"classes are permuted: .*truck is detected as car"):
        calibrate(options, load_kind("openvino"))


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("[no, bus]", r"data\.yaml:1: names\[0\]: got False"),
        ("{0: bus, 1: on}", "got True"),
        ("[bus, ~]", "got None"),
        ("[[bus]]", r"got \['bus'\]"),
    ],
)
def test_a_name_that_yaml_takes_for_something_else_is_refused(tmp_path, names, told):
    (tmp_path / "data.yaml").write_text(f"names: {names}\n")

    with pytest.raises(DatasetError, match=f"{told}, expected a name; put it in quotes"):
        find_label_names(tmp_path)


def test_a_data_yaml_as_powershell_writes_it_is_refused_and_not_passed_over(tmp_path):
    (tmp_path / "data.yaml").write_text("names: [person, bus]\n", encoding="utf-16")

    with pytest.raises(DatasetError, match="this is text in UTF-16"):
        find_label_names(tmp_path)
