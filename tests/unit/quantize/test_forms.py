"""What a builder is handed of one model: by the table, and corrected by the means that are given."""

import numpy as np

from edge.calibrate.table import read_table, write_table
from edge.engine.kind import QdqForm
from edge.model.graph import graph_from_bytes
from edge.model.inspect import inspect_model
from edge.quantize.forms import Forms
from tests.support import models
from tests.support.tables import table_of


def biases(content):
    graph = graph_from_bytes(content, "test")
    convolutions = [node for node in graph.nodes if node.op_type == "Conv" and len(node.inputs) > 2]
    return {node.outputs[0]: graph.constant(node.inputs[2]) for node in convolutions}


def test_means_that_are_given_correct_the_biases_of_what_reads_them(tmp_path):
    path = models.yolov8(tmp_path / "model.onnx")
    write_table(tmp_path / "table.json", table_of(path))
    forms, form = Forms(inspect_model(path), read_table(tmp_path / "table.json")), QdqForm()
    plain = biases(forms.qdq_model(form).model)

    table = read_table(tmp_path / "table.json")
    corrected = biases(forms.by(table, means={"images": (0.3, 0.5, 0.7)}).qdq_model(form).model)

    changed = [name for name in plain if not np.array_equal(plain[name], corrected[name])]
    assert len(changed) == 1
