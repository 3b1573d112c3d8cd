"""What a provision starts on this side ends when it is told to, and files go out as they are."""

import threading

import pytest

from edge.delivery.link import Interrupted
from edge.deploy.provision.admin import contents, run_until
from edge.errors import DeployError
from tests.support.wait import wait_looks, wait_until

NEVER = threading.Event()


def test_a_command_gets_its_content_and_tells_what_it_wrote():
    content = b"x" * 300_000

    done = run_until(["sh", "-c", "cat; echo no >&2; exit 3"], [content], host="gate-01", timeout_s=20, stop=NEVER)

    assert (done.returncode, done.stdout, done.stderr) == (3, content, b"no\n")


@pytest.mark.parametrize("program", ["sleep 60", "sleep 60 & wait", "trap '' TERM; sleep 60"])
def test_stop_ends_a_command_and_its_children_within_a_second(tmp_path, program):
    stop, began = threading.Event(), tmp_path / "began"
    ended: list[BaseException] = []

    def run() -> None:
        try:
            run_until(["sh", "-c", f"touch {began}; {program}"], (), host="gate-01", timeout_s=60, stop=stop)
        except Interrupted as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(began.exists, what="the command has begun")
    stop.set()
    wait_looks(lambda: not thread.is_alive(), what="it has ended", seconds=1.5)

    assert len(ended) == 1


def test_a_command_that_takes_too_long_is_ended():
    with pytest.raises(DeployError, match=r"gate-01 has not answered within 0\.1 s"):
        run_until(["sleep", "60"], (), host="gate-01", timeout_s=0.1, stop=NEVER)


def sent(program, *paths, on_bytes=lambda count: None, stop=NEVER):
    return run_until(program, contents(paths, on_bytes), host="gate-01", timeout_s=60, stop=stop)


def test_files_arrive_as_they_are_and_their_bytes_are_counted(tmp_path):
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        path.write_bytes(path.name.encode() * 100_000)
    told: list[int] = []

    done = sent(["cat"], *paths, on_bytes=told.append)

    assert (done.returncode, done.stdout) == (0, b"one" * 100_000 + b"two" * 100_000)
    assert told == sorted(told)
    assert told[-1] == 600_000


@pytest.mark.parametrize("program", ["exit 1", "head -c 1000 >/dev/null; echo full >&2; exit 1"])
def test_a_receiver_that_leaves_early_is_an_end_and_no_hang(tmp_path, program):
    (tmp_path / "big").write_bytes(b"x" * 5_000_000)

    done = sent(["sh", "-c", program], tmp_path / "big")

    assert done.returncode == 1


def test_a_receiver_that_does_not_read_is_left_when_told_to(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 5_000_000)
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()

    with pytest.raises(Interrupted):
        sent(["sleep", "60"], tmp_path / "big", stop=stop)
    for feeder in (thread for thread in threading.enumerate() if thread.name.endswith("(_feed)")):
        feeder.join(10)  # an exception that it did not expect fails the test
