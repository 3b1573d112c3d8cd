"""A camera that is dead is not silent: what stands on stderr, which is the journal of a device, without any -v."""

import pytest

from tests.support.clips import write_clip
from tests.support.rtsp import RtspMount, RtspServer, require_gstreamer
from tests.support.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow(reason="further services over real models")]
NETWORK = "see that the camera is on, and that this machine knows its name and reaches its port"
PASSWORD = "store the camera's user:password under the name of the stream's credential"


@pytest.mark.parametrize("decoder", ["software", "pyav"])
def test_each_dead_camera_is_named_once_with_its_address_and_what_to_do(run, tmp_path, decoder):
    require_gstreamer("rtspsrc", "rtph264depay", "avdec_h264", server=True)
    clip = str(write_clip(tmp_path / "a.h264", count=240, gop=15))
    locked = RtspServer({"/a": RtspMount(clip, "h264", login=("user", "secret"))})
    with locked, RtspServer({"/b": RtspMount(clip, "h264")}) as server:
        expected = {
            "refused": ("rtsp://127.0.0.1:9/a", NETWORK),
            "unknown-host": ("rtsp://no-such-host.invalid/a", NETWORK),
            "no-login": (locked.url("/a"), PASSWORD),
            "no-path": (server.url("/none"), "correct the path in the stream's address"),
        }
        streams = [{"id": name, "uri": address, "decoder": decoder} for name, (address, _) in expected.items()]
        if decoder == "software":
            expected["missing"] = ("/dev/video77", "see which cameras this machine has")
            streams.append({"id": "missing", "uri": "v4l2:///dev/video77"})
        process = run.start(run.write([*streams, {"id": "killed", "uri": server.url("/b"), "decoder": decoder}]))

        def lines(name):
            return [one for one in run.told().splitlines() if f" stream={name} " in one]

        wait_until(lambda: all(lines(name) for name in expected), what="a line for each camera")
        messages = tmp_path / "out.jsonl"
        wait_until(lambda: "edge.detections/1" in messages.read_text(), what="frames of the one that lives")
        server.kill()
        wait_until(lambda: lines("killed"), what="a line for the one that was killed")
        server.start()
        wait_until(lambda: len(lines("killed")) == 2, what="a line for its return")
        _, told = run.stop(process, expected=3)

    for name, (address, remedy) in expected.items():
        first, *others = lines(name)
        assert first.startswith("WARNING")
        assert f" stream down stream={name} address={address} " in first
        assert f"; {remedy}" in first
        assert not [one for one in others if one.startswith("WARNING")], others
    assert f" stream down stream=killed address={server.url('/b')} " in lines("killed")[0]
    assert "stream up stream=killed" in lines("killed")[1]
    assert "secret" not in told
