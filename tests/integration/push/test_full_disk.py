"""A disk that fills while a release arrives, under the real client and agent: told, and nothing lost."""

import errno
import itertools

import pytest

from tests.support.agent_push import AgentPush
from tests.support.crash import current_of, is_whole
from tests.support.cut_files import CutFiles
from tests.support.faults import GROWING, FaultyFiles
from tests.support.pushes import device_over
from tests.support.scenarios import BARE, after

pytestmark = pytest.mark.slow(reason="further pushes over real agents")


@pytest.fixture(scope="module")
def pushes(tmp_path_factory):
    return AgentPush(tmp_path_factory.mktemp("device"))


@pytest.fixture(scope="module")
def serving_old(pushes):
    return after(lambda device: pushes.push(device, lambda: None, pushes.old), start=BARE)


def test_f17_a_disk_that_fills_while_a_release_arrives_is_told_and_the_next_push_goes_on(pushes, serving_old):
    for at in itertools.count():
        memory = CutFiles(serving_old)
        full = FaultyFiles(memory, at=at, number=errno.ENOSPC, lasts=True, which=GROWING)
        outcome = pushes.try_push(device_over(full), pushes.new)
        assert (outcome.result, outcome.code, outcome.exit_code) == ("failed", "device.disk.space", 1)
        assert current_of(dict(memory.tree())) == pushes.old.name
        assert is_whole(dict(memory.tree()), pushes.old)
        pushes.push(device_over(memory), lambda: None, pushes.new)  # once there is room
        assert is_whole(dict(memory.tree()), pushes.new)
        if outcome.problem and ".state.json.tmp" in outcome.problem:
            break  # all has arrived and is built: what follows is the switch, and its trial is taken up as any orphan
    assert at > 18
