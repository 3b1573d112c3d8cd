"""What is taught on a model's own layer: the steps are those of the formula, the own one is among them."""

import dataclasses

import pytest

from edge.model.layer_account import ConvShape, LayerAccount, ModelAccount
from edge.roofline.lessons import lessons_of
from edge.types import Precision

SHAPE = ConvShape(
    kernel=(3, 3), channels_in=32, channels_out=64, groups=1, size_in=(40, 40), size_out=(20, 20)
)  # fmt: skip


def a_layer(name="it", shape=SHAPE, *, batch=1):
    return LayerAccount(
        name=name, op_type="Conv", fused=("Conv",), precision=Precision.INT8, operations=shape.operations(batch),
        parameters=0, weight_bytes=shape.weights, read_bytes=0, written_bytes=0, shape=shape,
    )  # fmt: skip


def lessons(*layers, batch=1):
    found = lessons_of(ModelAccount(batch=batch, precision=Precision.INT8, layers=layers))
    return {lesson.topic: lesson for lesson in found}


def test_steps_change_one_thing_and_mark_the_layer_as_it_is():
    found = lessons(a_layer())
    steps = {topic: [step.label for step in lesson.steps] for topic, lesson in found.items()}

    assert steps == {
        "Kernel size": ["1x1", "3x3", "5x5", "7x7"],
        "Channels": ["8 to 16", "16 to 32", "32 to 64", "64 to 128", "128 to 256"],
        "Output size": ["5x5", "10x10", "20x20", "40x40", "80x80"],
        "Groups": ["1", "2", "8", "32"],
        "Fully connected": ["batch 1", "batch 8", "batch 64", "batch 512"],
    }
    own = {topic: [step for step in lesson.steps if step.is_own] for topic, lesson in found.items()}
    assert own.pop("Fully connected") == []
    assert {step.intensity for steps in own.values() for step in steps} == {SHAPE.intensity(1, Precision.INT8)}
    assert [len(steps) for steps in own.values()] == [1] * 4


@pytest.mark.parametrize("topic", ["Kernel size", "Channels", "Output size", "Fully connected"])
def test_intensity_rises_along_the_steps(topic):
    values = [step.intensity for step in lessons(a_layer())[topic].steps]

    assert values == sorted(values)
    assert len(set(values)) == len(values)


def test_it_falls_with_the_groups():
    values = [step.intensity for step in lessons(a_layer())["Groups"].steps]

    assert values == sorted(values, reverse=True)


def test_sentences_hold_the_figures_of_the_layer():
    found = lessons(a_layer("/model.5/Conv"))

    assert found["Kernel size"].sentence.startswith("/model.5/Conv (3x3, 32 to 64 channels, 20x20) multiplies each ")
    first, *_, last = found["Kernel size"].steps
    assert (
        f"{first.intensity:.3g} operations per byte at 1x1, {last.intensity:.3g} at 7x7."
        in found["Kernel size"].sentence
    )
    assert "32 groups save operations" in found["Groups"].sentence
    square = dataclasses.replace(SHAPE, channels_out=32)
    assert "a depthwise convolution saves operations" in lessons(a_layer("it", square))["Groups"].sentence


def test_steps_that_are_no_whole_numbers_are_left_out():
    odd = dataclasses.replace(SHAPE, channels_in=6, channels_out=10, size_in=(10, 14), size_out=(10, 14))
    found = lessons(a_layer("odd", odd))

    assert [step.label for step in found["Channels"].steps] == ["3 to 5", "6 to 10", "12 to 20", "24 to 40"]
    assert [step.label for step in found["Output size"].steps] == ["5x7", "10x14", "20x28", "40x56"]
    assert [step.label for step in found["Groups"].steps] == ["1", "2"]


def test_a_batch_counts():
    assert lessons(a_layer(batch=8), batch=8)["Output size"].steps[2].intensity == SHAPE.intensity(8, Precision.INT8)


def test_the_example_is_heavy_in_work_then_in_weights_and_mixes_channels():
    light = a_layer("light", dataclasses.replace(SHAPE, size_out=(5, 5)))
    early = a_layer("early", dataclasses.replace(SHAPE, channels_in=16, channels_out=32, size_out=(40, 40)))
    depthwise = a_layer("depthwise", dataclasses.replace(SHAPE, channels_out=32, groups=32, size_out=(400, 400)))
    first = a_layer("first", dataclasses.replace(SHAPE, channels_in=3, size_out=(200, 200)))
    point = a_layer("point", dataclasses.replace(SHAPE, kernel=(1, 1), size_out=(200, 200)))

    found = lessons(light, early, a_layer("it"), depthwise, first, point)

    assert found["Kernel size"].sentence.startswith("it ")
    assert lessons(point)["Kernel size"].sentence.startswith("point (1x1")
    assert lessons(first)["Kernel size"].sentence.startswith("first ")
    assert lessons(depthwise) == {}
    assert lessons() == {}
