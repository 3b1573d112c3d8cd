"""Every code that a push can end with is explained in docs/push-codes.md, and means an exit code."""

import ast
import re
from pathlib import Path

from edge.errors import EXIT_CODE_OF

ROOT = Path(__file__).parents[2]
CODE = re.compile(rf"(?:{'|'.join(EXIT_CODE_OF)})(?:\.[a-z0-9-]+)+")


def _raised():
    for path in sorted((ROOT / "edge").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "DeployError" and node.args:
                for part in ast.walk(node.args[0]):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str) and CODE.fullmatch(part.value):
                        yield part.value, path


def _named_in_tables():
    # ssh's reasons and the like: a literal that is nothing but a code.
    for path in sorted((ROOT / "edge" / "transport").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                yield node.value, path


def _documented():
    rows = (ROOT / "docs/push-codes.md").read_text(encoding="utf-8").splitlines()
    return [row.split("`")[1] for row in rows if row.startswith("| `")]


def test_every_code_is_documented_with_its_fix():
    known = set(_documented())
    found = [*_raised(), *_named_in_tables()]
    missing = {f"{code} ({path.relative_to(ROOT)})" for code, path in found if code not in known}
    assert not missing, sorted(missing)


def test_the_page_is_sorted_and_names_each_code_once():
    assert _documented() == sorted(set(_documented()))
