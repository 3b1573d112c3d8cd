"""Traces of heat and power replayed: one alarm for one throttling, taken back when it has been calm for a while."""

import threading

from edge.device.sensors import Sensors, read_sensors
from edge.runtime.look.server import HeatWatch
from edge.runtime.serve.streams import StreamStates
from edge.types import StreamId
from tests.support.logged import logged
from tests.support.service_parts import Kept
from tests.support.sysfs import orin, write_tree
from tests.support.wait import wait_until


def replay(tmp_path, steps):
    """Return what the alarm says at each (second, changes)."""
    told, said = [None], []
    watch = HeatWatch(told.append, read=lambda: read_sensors(tmp_path))
    for second, changes in steps:
        write_tree(tmp_path, orin(**changes))
        watch.look(now_s=second)
        said.append(told[-1])
    return said


def test_heat_throttles_the_alarm_says_by_what_and_the_log_where_and_in_which_mode(tmp_path, caplog):
    said = replay(
        tmp_path,
        [
            (0, {"tj": "88000"}),
            (5, {"tj": "99500", "gpu_alert": "1"}),
            (10, {"tj": "98000"}),
            (15, {"tj": "99000", "cpu_alert": "1"}),
            (20, {"tj": "90000"}),
            (70, {"tj": "80000"}),
            (75, {"tj": "80000"}),
        ],
    )
    text = "throttled by gpu-throttle-alert"
    assert said == [None, text, text, text, text, text, None]
    assert f"device-throttled reason={text}; tj-thermal at 99.5 °C; power mode 2 MAXN_SUPER" in logged(caplog)


def test_over_current_of_before_the_start_is_no_alarm_and_one_more_is(tmp_path):
    said = replay(tmp_path, [(0, {}), (5, {"oc3": "not readable just now"}), (10, {}), (15, {"oc3": "38"})])
    assert said[:3] == [None] * 3
    assert said[3] == "throttled by instantaneous-over-current"


def test_subscribers_and_the_log_hear_of_it_once(tmp_path, caplog):
    caplog.set_level("INFO")
    kept = Kept()
    states = StreamStates([StreamId("a")], kept, device="dev")
    write_tree(tmp_path, orin(gpu_alert="1"))
    looks = 0

    def read():
        nonlocal looks
        looks += 1
        return read_sensors(tmp_path)

    watch = HeatWatch(states.alarm, read=read, every_s=0.01)
    watch.start()
    wait_until(lambda: looks > 3, what="it has looked several times")
    watch.close()

    ((state, reason),) = kept.states()
    assert state == "degraded"
    assert reason == "throttled by gpu-throttle-alert"
    assert logged(caplog).count("device-throttled") == 1


def test_a_sensor_that_never_answers_holds_up_nobody():
    hangs = threading.Event()
    watch = HeatWatch(lambda text: None, read=lambda: hangs.wait(30) and Sensors(), every_s=0.01)
    watch.start()
    watch.close()
    assert watch.sensors == Sensors()
    hangs.set()
