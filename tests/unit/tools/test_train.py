"""The training code: geometry by hand, a loss that falls, and an exported file that computes what torch computes."""

import ast

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is missing: pip install torch")

from tools.train.data import Pool, batches, degrade, halved, on_canvas, render_pool  # noqa: E402
from tools.train.export import export_onnx, fold_batch_norms, metadata  # noqa: E402
from tools.train.fit import train_step  # noqa: E402
from tools.train.loss import assign, complete_iou, pairwise_iou  # noqa: E402
from tools.train.network import Detector, Exported, anchors_for  # noqa: E402


@pytest.fixture(scope="module")
def pool():
    return render_pool([10_000, 10_001], frames_per_scene=2, workers=1)


def _seeded_detector():
    torch.manual_seed(0)
    return Detector(4)


def test_halving_averages_and_rounds():
    frame = np.array([[[1, 0, 0], [2, 0, 0]], [[3, 0, 0], [4, 255, 8]]], np.uint8)
    assert halved(frame).tolist() == [[[3, 64, 2]]]


def test_anchors_are_the_centres_of_the_cells():
    anchors = anchors_for(64, 32)
    assert len(anchors.xy) == 8 * 4 + 4 * 2 + 2 * 1
    assert anchors.xy[0].tolist() == [0.5, 0.5]
    assert (anchors.xy * anchors.stride)[-1].tolist() == [48, 16]


def test_iou_of_boxes_that_share_a_third():
    first, second = torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[5.0, 0, 15, 10]])
    assert pairwise_iou(first, second).item() == pytest.approx(1 / 3, abs=1e-4)
    # Centres 5 apart, hull 15 x 10, equal aspect: 1/3 - 25 / 325.
    assert complete_iou(first, second).item() == pytest.approx(1 / 3 - 25 / 325, abs=1e-4)
    assert complete_iou(first, first).item() == pytest.approx(1, abs=1e-4)


def test_an_object_is_assigned_to_anchors_inside_it_only():
    anchors = anchors_for(64, 64)
    truth = torch.tensor([[[2.0, 8, 8, 40, 40], [-1, 0, 0, 0, 0]]])
    predicted = truth[:, :1, 1:].expand(-1, len(anchors.xy), -1)
    aim = assign(torch.full((1, len(anchors.xy), 4), 0.1), predicted, truth, anchors)

    centres = (anchors.xy * anchors.stride)[aim.is_used[0]]
    assert len(centres) == 10
    assert ((centres > 8) & (centres < 40)).all()
    assert aim.score[0, aim.is_used[0]].argmax(1).tolist() == [2] * 10
    assert aim.score.max().item() == pytest.approx(1, abs=1e-4)


def test_a_picture_without_objects_assigns_nothing():
    anchors = anchors_for(64, 64)
    truth, boxes = torch.full((1, 3, 5), -1.0), torch.zeros(1, len(anchors.xy), 4)
    assert not assign(torch.full((1, len(anchors.xy), 4), 0.1), boxes, truth, anchors).is_used.any()


def test_spoiling_changes_a_picture_a_little(pool):
    images = torch.from_numpy(pool.images).permute(0, 3, 1, 2).float()
    spoilt = degrade(images, torch.Generator().manual_seed(1))
    assert spoilt.shape == images.shape
    assert 0.1 < (spoilt - images).abs().mean().item() < 8


def test_a_mirrored_batch_keeps_boxes_on_their_objects(pool):
    one = Pool(images=np.zeros_like(pool.images[:1]), truths=(np.array([[0, 10, 20, 60, 50]], np.float32),))
    one.images[:, 20:50, 10:60] = 255
    stream = batches(one, batch_size=1, seed=0)
    seen = set()
    for _ in range(8):
        batch = on_canvas(next(stream), rows=320)
        x0, y0, x1, y1 = batch.truth[0, 0, 1:].int().tolist()
        bright, rest = batch.images[0, :, y0:y1, x0:x1].mean(), batch.images[0, :, 70:250].mean()
        assert (y0, y1) == (90, 120)
        assert bright > 4 * rest
        seen.add(x0)
    assert seen == {10, 260}


def test_the_loss_falls_within_some_steps(pool):
    detector = _seeded_detector()
    optimizer = torch.optim.AdamW(detector.parameters(), lr=3e-3)
    batch = next(batches(pool, batch_size=4, seed=0))
    losses = [train_step(detector, optimizer, batch, is_full=False) for _ in range(12)]
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.8 * losses[0]


def test_folding_batch_norms_changes_nothing():
    detector = _seeded_detector().eval()
    images = torch.rand(1, 3, 64, 64)
    for before, after in zip(detector(images), fold_batch_norms(detector)(images), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


def test_the_exported_file_computes_what_torch_computes(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is missing: install the dev extra")
    onnx = pytest.importorskip("onnx", reason="onnx is missing")
    detector = _seeded_detector().eval()
    export_onnx(detector, tmp_path / "model.onnx")
    images = np.random.default_rng(0).random((2, 3, 320, 320), np.float32)

    output = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["output0"], {"images": images})[0]

    assert output.shape == (2, 8, 2100)
    with torch.no_grad():
        expected = Exported(detector, 320).eval()(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-3)
    model = onnx.load(tmp_path / "model.onnx")
    assert {entry.key: entry.value for entry in model.metadata_props} == metadata()
    assert model.graph.node[-1].op_type == "Concat"
    assert not [node for node in model.graph.node if node.op_type == "BatchNormalization"]


def test_metadata_names_the_classes():
    assert ast.literal_eval(metadata()["names"]) == {0: "car", 1: "truck", 2: "bus", 3: "person"}
