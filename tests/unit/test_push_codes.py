"""Every code of a push is explained in docs/push-codes.md, which names no other; each means an exit code."""

import ast
import functools
import re
from pathlib import Path

from edge.cli.commands.push import push
from edge.errors import EXIT_CODE_OF

ROOT = Path(__file__).parents[2]
CODE = re.compile(rf"(?:{'|'.join(EXIT_CODE_OF)})(?:\.[a-z0-9-]+)+")
FILES = {"build.json", "device.toml", "lock.json"}  # written like codes


@functools.cache
def _nodes():
    return list(_found_nodes())


def _found_nodes():
    for path in sorted((ROOT / "edge").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "DeployError" in text or CODE.search(text):
            yield from ((path.relative_to(ROOT), node) for node in ast.walk(ast.parse(text)))


def _written():
    """Yield every literal that is nothing but a code, wherever it stands: raised, in a table, handed on."""
    for path, node in _nodes():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
            yield node.value, path


def _raised():
    """Yield the first argument of each DeployError that is made: a literal, one of two, or anything else."""
    for path, node in _nodes():
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "DeployError" and node.args:
            first = node.args[0]
            for one in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
                yield path, one


def _rows():
    page = (ROOT / "docs/push-codes.md").read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in row.split(" | ")] for row in page if row.startswith("| `")]


def _documented():
    return [row[0].strip("|` ") for row in _rows()]


def test_every_code_is_documented():
    known = {*_documented(), *FILES}
    missing = {f"{code} ({path})" for code, path in _written() if code not in known}
    assert not missing, sorted(missing)


def test_page_and_help_say_the_same_of_each_exit_code_that_a_device_causes():
    page, told = (
        re.search(r"3 not reached.*?(?=\.)", " ".join(text.split()))[0]
        for text in ((ROOT / "docs/first-device.md").read_text(encoding="utf-8"), push.help)
    )
    assert page == told
    assert sorted(map(int, re.findall(r"\d+", page))) == sorted({one for one in EXIT_CODE_OF.values() if 3 <= one < 10})


def test_every_documented_code_is_used():
    written = {code for code, _ in _written()}
    assert [code for code in _documented() if code not in written] == []


def test_every_code_that_is_raised_means_an_exit_code():
    raised = [(one.value, path) for path, one in _raised() if isinstance(one, ast.Constant)]
    assert len(raised) > 100
    assert {f"{code} ({path})" for code, path in raised if code.partition(".")[0] not in EXIT_CODE_OF} == set()


def test_no_code_is_put_together():
    """Else nobody who looks for a code would find where it comes from, nor would this file."""
    assert [str(path) for path, one in _raised() if isinstance(one, (ast.JoinedStr, ast.BinOp))] == []


def test_the_page_is_sorted_and_names_each_code_once():
    assert _documented() == sorted(set(_documented()))


def test_a_code_says_what_happened_and_what_to_do():
    short = [row for row in _rows() if len(row) != 3 or not all(len(cell.strip("| ")) > 3 for cell in row)]
    assert short == []
