"""The mutants of a module: a step or a check left out, two steps in the other order, a condition turned round."""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """One change to one file; `content` is the whole file after it."""

    path: str
    line: int
    function: str
    kind: str  # "step", "check", "order", "condition"
    what: str  # the source that is left out or turned round, or the two steps that change places, on one line
    content: str

    @property
    def name(self) -> str:
        """Return what the list and the review call it: not by its line, which moves."""
        return f"{self.path} {self.function}: {self.kind}: {self.what}"


def mutants_of(root: Path, path: str) -> Iterator[Mutant]:
    """Yield the mutants of a file, by line; what a function says twice is told apart by a number."""
    seen: Counter[str] = Counter()
    for mutant in _mutants(root, path):
        seen[mutant.name] += 1
        again = seen[mutant.name]
        yield mutant if again == 1 else replace(mutant, what=f"{mutant.what} (no. {again})")


def _mutants(root: Path, path: str) -> Iterator[Mutant]:
    source = (root / path).read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    for function, body in _bodies(ast.parse(source)):
        for index, statement in enumerate(body):
            if kind := _kind(statement):
                content = "".join(_replaced(lines, statement, "pass"))
                yield Mutant(path, statement.lineno, function, kind, _text(source, statement), content)
            following = body[index + 1] if index + 1 < len(body) else None
            if following is not None and _is_step(statement) and _is_step(following):
                what = f"{_text(source, statement)} <-> {_text(source, following)}"
                content = "".join(_swapped(lines, statement, following))
                yield Mutant(path, statement.lineno, function, "order", what, content)


def conditions_of(root: Path, path: str) -> Iterator[Mutant]:
    """Yield a mutant for each condition of an `if` that stands on one line."""
    source = (root / path).read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        for test in (node.test for node in ast.walk(function) if isinstance(node, ast.If)):
            if test.lineno != test.end_lineno or any(isinstance(one, ast.NamedExpr) for one in ast.walk(test)):
                continue
            line = lines[test.lineno - 1].encode()
            begin, end = test.col_offset, test.end_col_offset or 0
            turned = (line[:begin] + b"not (" + line[begin:end] + b")" + line[end:]).decode()
            content = "".join([*lines[: test.lineno - 1], turned, *lines[test.lineno :]])
            yield Mutant(path, test.lineno, function.name, "condition", line[begin:end].decode(), content)


def _bodies(tree: ast.AST, function: str = "") -> Iterator[tuple[str, list[ast.stmt]]]:
    for node in ast.iter_child_nodes(tree):
        name = function
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            name = f"{function}.{node.name}".lstrip(".")
        for part in ("body", "orelse", "finalbody"):
            body = getattr(node, part, None)
            if isinstance(body, list) and name:
                yield name, body
        yield from _bodies(node, name)


def _kind(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Raise) and statement.exc is not None:
        return "check"
    return "step" if _is_step(statement) else None


def _is_step(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def _text(source: str, statement: ast.stmt) -> str:
    return " ".join((ast.get_source_segment(source, statement) or "").split())


def _replaced(lines: list[str], statement: ast.stmt, by: str) -> list[str]:
    first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
    return [*lines[:first], f"{' ' * statement.col_offset}{by}\n", *lines[last:]]


def _swapped(lines: list[str], one: ast.stmt, other: ast.stmt) -> list[str]:
    first, middle = one.lineno - 1, one.end_lineno or one.lineno
    begin, end = other.lineno - 1, other.end_lineno or other.lineno
    return [*lines[:first], *lines[begin:end], *lines[middle:begin], *lines[first:middle], *lines[end:]]
