"""Proofs that people sent: each is whole, says nothing of its sender, and has its row on the page."""

import re

import msgspec

from edge.roofline.proof import FORMAT, Proof, Row, Step, Verdict, decode_proof, encode_proof
from edge.runtime.prove.run import STEPS, redacted
from tools.proofs_page import FOLDER, page_of

PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
SENT = sorted(FOLDER.glob("*.json"))


def test_a_proof_that_was_sent_is_whole_and_says_nothing_of_its_sender():
    for path in SENT:
        proof = decode_proof(path.read_bytes(), path.name)
        assert redacted(proof) == proof, path.name


def test_the_page_has_a_row_for_each_step_and_each_proof():
    rows = re.findall(r"^\| (\d) (\w+) \|", PAGE, re.MULTILINE)

    assert [(int(number), name) for number, name in rows] == [(step.number, step.name) for step in STEPS]
    assert page_of(FOLDER, PAGE) == PAGE, "make docs"


def test_the_row_of_a_proof_says_what_its_board_is_and_which_form_it_should_take(tmp_path):
    rows = (
        Row(name="machine", verdict=Verdict.TOLD, detail="", values={"key": "orin-nano-8gb-super"}),
        Row(name="device", verdict=Verdict.TOLD, detail="", values={"jetpack": "6"}),
        Row(name="form", verdict=Verdict.WORSE, detail="", values={"form": "int8 implicit-cache |\n| x"}),
    )
    steps = (Step(number=1, name="facts", seconds=1, rows=rows),)
    made = Proof(format=FORMAT, host="h", software="1", made_at="2026-11-26T09:00:00Z", seconds=1, steps=steps)
    (tmp_path / "orin-nano-6.json").write_bytes(encode_proof(made))
    (tmp_path / "other.json").write_bytes(encode_proof(msgspec.structs.replace(made, steps=())))

    page = page_of(tmp_path, PAGE)

    assert page.splitlines()[-2:] == [
        "| orin-nano-8gb-super | 6 | [orin-nano-6](orin-nano-6.json) | worse | int8 implicit-cache / / x |",
        "| other | not told | [other](other.json) | told | none |",
    ]
    assert page_of(tmp_path, page) == page
