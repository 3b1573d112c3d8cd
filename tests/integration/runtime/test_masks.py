"""Parts of a picture that are black, or ignored: looked for in everything that leaves a real service."""

import json

import av
import cv2
import numpy as np
import pytest

from tests.support import models
from tests.support.device_root import DeviceRoot
from tests.support.http_client import ask
from tests.support.showing import showing
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(
    "test_what_is_black_is_in_no_picture[software]", reason="further services over real models and pictures"
)
WIDTH, HEIGHT = 640, 360
BRIGHT = np.full((HEIGHT, WIDTH, 3), 230, np.uint8)
HOUSE = [[0.0, 0.0], [0.5, 0.0], [0.5, 0.5], [0.0, 0.5]]
WINDOW = [[0.7, 0.6], [0.9, 0.7], [0.8, 1.0]]
LABELS = ["person", "car", "bird"]
BLACK = [{"polygon": HOUSE}, {"polygon": WINDOW}]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return models.yolov8(tmp_path_factory.mktemp("model") / "tiny.onnx", size=320)


@pytest.fixture
def clip(tmp_path):
    path = tmp_path / "bright.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for _ in range(30):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(BRIGHT, "rgb24")))
        container.mux(stream.encode())
    return path


def inside(polygon, width, height):
    """The pixels whose centre lies in a polygon, by OpenCV's distance to it."""
    corners = np.multiply(polygon, (width, height)).astype(np.float32)
    return np.array(
        [[cv2.pointPolygonTest(corners, (x + 0.5, y + 0.5), False) >= 0 for x in range(width)] for y in range(height)]
    )


def require_black(picture):
    """The polygons are black up to their border, what is three pixels from them is not."""
    height, width = picture.shape[:2]
    hidden = inside(HOUSE, width, height) | inside(WINDOW, width, height)
    near = cv2.dilate(hidden.astype(np.uint8), np.ones((17, 17), np.uint8)).astype(bool)  # JPEG spreads over 16 pixels
    deep = cv2.erode(hidden.astype(np.uint8), np.ones((17, 17), np.uint8)).astype(bool)
    assert deep.sum() > 1000
    assert picture[deep].max() <= 40  # noise of JPEG
    assert picture[~near].min() >= 200 - 40


@pytest.mark.parametrize("decoder", ["software", "pyav"])
def test_what_is_black_is_in_no_picture(run, model, clip, tmp_path, decoder):
    streams = [{"id": "a", "uri": str(clip), "decoder": decoder, "black": BLACK}, {"id": "b", "uri": str(clip)}]
    path = run.write(streams, model={"onnx": str(model), "score_threshold": 1.0})  # no boxes in the pictures
    shown = ("--frames", str(tmp_path / "frames"), "--annotate", str(tmp_path / "look"), "--annotate-every", "0.3")
    run.finish(run.start(path, *shown))

    for folder in ("frames", "look"):
        pictures = sorted((tmp_path / folder).glob("a-*.jpg"))
        assert pictures
        for path in pictures:
            require_black(cv2.imread(str(path)))
        other = cv2.imread(str(next((tmp_path / folder).glob("b-*.jpg"))))
        assert np.median(other[: HEIGHT // 5, : WIDTH // 5]) > 150  # another stream shows what is there


def test_the_status_page_shows_it_black_from_the_first_picture_after_a_reload(tmp_path, model, clip, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    device, silent = DeviceRoot(tmp_path), {"onnx": str(model), "score_threshold": 1.0}
    stream = {"id": "a", "uri": str(clip), "loop": True, "realtime": True}

    def picture(port):
        status, _, body = ask(port, "/pictures/a.jpg")
        return cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_COLOR) if status == 200 else None

    with showing(tmp_path, streams=[stream], health=device.layout.health, model=silent) as service:
        wait_until(lambda: picture(service.port) is not None, what="a picture")
        content = json.loads(service.pipeline.read_text())
        content["streams"][0]["black"] = BLACK
        service.pipeline.write_text(json.dumps(content))
        service.reload.set()

        def is_black():
            shown = picture(service.port)
            return shown is not None and shown[: HEIGHT // 5, : WIDTH // 5].max() < 40

        wait_until(is_black, what="it is black")
        require_black(picture(service.port))
        document = json.loads(ask(service.port, "/status.json")[2])
        assert document["streams"][0]["black"] == BLACK
    device.stop()


def test_a_picture_for_the_broker_is_retained_for_a_while_and_black_where_it_has_to_be(
    run, model, clip, broker, subscribe
):
    def pictures(collector):
        return [one for one in list(collector.messages) if one.topic.endswith("/streams/a/picture")]

    stream = {"id": "a", "uri": str(clip), "loop": True, "realtime": True, "black": BLACK}
    silent = {"onnx": str(model), "score_threshold": 1.0}
    publish = {"mode": "nonempty", "pictures_s": 1}
    process = run.start(run.write([stream], broker_port=broker.port, model=silent, publish=publish))
    first = subscribe(broker.port)
    wait_until(lambda: len(pictures(first)) >= 2, what="pictures")
    second = subscribe(broker.port)
    wait_until(lambda: pictures(second), what="the one that is retained")
    kept = pictures(second)[0]

    assert kept.retain
    assert 0 < kept.properties.MessageExpiryInterval <= 60
    for one in (*pictures(first), kept):
        require_black(cv2.imdecode(np.frombuffer(one.payload, np.uint8), cv2.IMREAD_COLOR))
    run.stop(process)


def test_what_is_ignored_is_in_no_message(run, model, clip):
    """The model of random weights finds something everywhere; nothing of it may be in the left half."""
    left = [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]
    streams = [
        {"id": "a", "uri": str(clip), "ignore": [{"polygon": left}]},
        {"id": "b", "uri": str(clip)},
        {"id": "c", "uri": str(clip), "ignore": [{"polygon": left, "classes": ["person"]}], "classes": ["person"]},
    ]
    run.finish(run.start(run.write(streams, model={"onnx": str(model), "score_threshold": 0.001, "labels": LABELS})))

    def centres(name):
        frames = [one for one in run.messages() if one["stream"] == name]
        return [box["bbox"][0] + box["bbox"][2] / 2 for frame in frames for box in frame["detections"]]

    assert min(centres("b")) < WIDTH / 2 <= min(centres("a"))
    assert len(centres("a")) > 0
    assert all(x >= WIDTH / 2 for x in centres("c"))
