"""Forms of INT8 race on the device: the gate first, then the time; the winner is remembered."""

import json
from dataclasses import replace

import pytest

from edge.engine.kind import EngineRequest, Int8Form, Plan
from edge.engine.tensorrt.options import Options
from edge.errors import EngineError, OutOfMemoryError
from edge.runtime.build.choice import Candidate
from edge.runtime.build.int8_forms import FormRace, WinnerFile
from edge.types import Precision
from tests.unit.runtime.build.test_choice import FAST, SLOW, Working, score

SLOWER = 4 * SLOW
VERSIONS = {"tensorrt": "10.3.0", "gpu": "Orin"}
USUAL = {"centred": (SLOW, score()), "plain": (FAST, score())}
REQUEST = EngineRequest(precision=Precision.INT8, max_batch=2, options=Options())


class Machine:
    """Builds the forms that it knows; counts what was built and what was closed."""

    def __init__(self, folder=None, versions=VERSIONS, is_beside=False, **known):
        self.known = {name.replace("_", " "): value for name, value in known.items()}
        self.winner = WinnerFile(folder, versions, is_beside=is_beside)
        self.built, self.closed, self.has_time = [], [], True

    def make(self, form):
        self.built.append(form.name)
        known = self.known[form.name]
        if isinstance(known, Exception):
            raise known
        rounds, golden = known
        plan = Plan(data=form.name.encode(), report={"route": "of a test"})
        return Candidate(precision=Precision.INT8, plan=plan, engine=Working(rounds), score=golden)

    def close(self, candidate):
        self.closed.append(candidate.plan.data.decode())

    def run(self):
        forms = [Int8Form(name=name, request=REQUEST) for name in self.known]
        race = FormRace(self.make, self.close, gate=None, winner=self.winner, has_time=lambda: self.has_time)
        return race.run(forms)


def rows(candidate):
    return {row["form"]: row for row in candidate.plan.report["int8_forms"]["rows"]}


def test_the_fastest_that_passes_serves_and_the_others_are_closed():
    machine = Machine(**USUAL, cache=(SLOWER, score()))

    won = machine.run()

    assert won.plan.data == b"plain"
    assert sorted(machine.closed) == ["cache", "centred"]
    assert won.plan.report["int8_forms"]["taken"] == "plain"
    assert won.plan.report["route"] == "of a test"
    assert rows(won)["plain"]["ratio"] < 1 < rows(won)["cache"]["ratio"]
    assert rows(won)["plain"]["ms"] < rows(won)["plain"]["against_ms"]


def test_a_fast_form_that_misses_objects_does_not_serve():
    won = Machine(centred=(SLOW, score()), plain=(FAST, score("9 of 10"))).run()

    assert won.plan.data == b"centred"
    assert rows(won)["plain"]["misses"] == ["9 of 10"]


def test_a_slow_form_that_passes_takes_the_place_of_one_that_does_not():
    machine = Machine(centred=(FAST, score("9 of 10")), cache=(SLOWER, score()))

    assert machine.run().plan.data == b"cache"
    assert machine.closed == ["centred"]


def test_where_none_passes_the_proven_one_is_refused_by_the_gate():
    won = Machine(centred=(SLOW, score("9 of 10")), plain=(FAST, score("5 of 10"))).run()

    assert won.plan.data == b"centred"
    assert won.failures == ("9 of 10",)


def test_a_form_that_cannot_be_built_leaves_the_others():
    won = Machine(centred=EngineError("no implementation"), cache=(SLOW, score())).run()

    assert won.plan.data == b"cache"
    assert rows(won)["centred"] == {"form": "centred", "not_built": "no implementation"}


def test_where_none_can_be_built_the_reason_of_the_proven_one_is_told():
    with pytest.raises(EngineError, match="no implementation"):
        Machine(centred=EngineError("no implementation"), cache=EngineError("not taken")).run()


def test_where_memory_runs_out_no_other_form_is_tried():
    machine = Machine(centred=OutOfMemoryError("out of memory"), cache=(FAST, score()))

    with pytest.raises(OutOfMemoryError):
        machine.run()
    assert machine.built == ["centred"]


def test_without_time_for_another_build_what_there_is_serves_and_is_not_remembered(tmp_path):
    machine = Machine(tmp_path, **USUAL)
    machine.has_time = False

    won = machine.run()

    assert (won.plan.data, machine.built) == (b"centred", ["centred"])
    assert "time" in rows(won)["plain"]["not_built"]
    assert machine.winner.read() is None


def test_the_winner_alone_is_built_the_next_time(tmp_path):
    Machine(tmp_path, **USUAL).run()
    later = Machine(tmp_path, **USUAL)

    won = later.run()

    assert (won.plan.data, later.built) == (b"plain", ["plain"])
    assert "won here before" in rows(won)["centred"]["not_built"]


def test_a_winner_that_misses_objects_of_another_model_is_raced_again(tmp_path):
    Machine(tmp_path, **USUAL).run()
    later = Machine(tmp_path, centred=(SLOW, score()), plain=(FAST, score("9 of 10")))

    assert later.run().plan.data == b"centred"
    assert later.winner.read() == "centred"


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"form": 3}', json.dumps({"form": "plain"}).encode()])
def test_a_damaged_note_of_the_winner_means_a_race(tmp_path, content):
    (tmp_path / "int8-form.json").write_bytes(content)
    machine = Machine(tmp_path, **USUAL)

    machine.run()

    assert machine.built == ["centred", "plain"]
    assert machine.winner.read() == "plain"


def test_the_winner_of_another_tensorrt_is_not_believed(tmp_path):
    Machine(tmp_path, **USUAL).run()

    assert WinnerFile(tmp_path, VERSIONS | {"tensorrt": "10.7.0"}, is_beside=False).read() is None


@pytest.mark.parametrize(
    ("was_beside", "is_beside", "built"),
    [
        (False, False, ["plain"]),
        (False, True, ["plain"]),
        (True, True, ["plain"]),
        (True, False, ["centred", "plain"]),
    ],
)
def test_a_winner_that_was_found_beside_a_service_is_believed_beside_one_only(tmp_path, was_beside, is_beside, built):
    Machine(tmp_path, is_beside=was_beside, **USUAL).run()

    later = Machine(tmp_path, is_beside=is_beside, **USUAL)
    later.run()

    assert later.built == built
    (last := Machine(tmp_path, is_beside=is_beside, **USUAL)).run()
    assert last.built == ["plain"]


def test_a_single_form_is_built_as_it_is():
    won = Machine(int8=(SLOW, score())).run()

    assert won.plan.report == {"route": "of a test"}


class Failing(Working):
    def wait(self, index):
        raise EngineError("an inference failed")


def test_a_form_that_passes_and_then_cannot_be_timed_leaves_the_one_that_works(tmp_path):
    machine = Machine(tmp_path, **USUAL, cache=(SLOWER, score()))
    make = machine.make

    def failing(form):
        made = make(form)
        return replace(made, engine=Failing(FAST)) if form.name == "plain" else made

    machine.make = failing
    won = machine.run()

    assert won.plan.data == b"centred"
    assert rows(won)["plain"] == {"form": "plain", "not_timed": "an inference failed"}
    assert sorted(machine.closed) == ["cache", "plain"]
    assert machine.winner.read() is None


def test_a_race_that_was_short_of_memory_is_run_again_the_next_time(tmp_path):
    known = {"centred": (SLOW, score()), "plain": OutOfMemoryError("out of memory")}
    assert Machine(tmp_path, **known).run().plan.data == b"centred"
    later = Machine(tmp_path, **known | {"plain": (FAST, score())})

    assert later.run().plan.data == b"plain"
    assert later.built == ["centred", "plain"]


def test_a_winner_that_is_not_among_the_forms_any_more_means_a_race(tmp_path):
    Machine(tmp_path, **USUAL).run()
    later = Machine(tmp_path, centred=(SLOW, score()), cache=(FAST, score()))

    assert later.run().plan.data == b"cache"
    assert later.winner.read() == "cache"
