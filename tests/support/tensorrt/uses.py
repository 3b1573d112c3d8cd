"""Walks the code of `edge/engine/tensorrt` and lists what it uses of TensorRT: names, members, calls, arguments.

Types are followed through the code by what the bindings themselves say: `trt.Runtime(logger)` is a Runtime, and what
its `deserialize_cuda_engine` returns stands in its docstring. So a use is found wherever the object came from.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

MODULE = ("module", "")
PACKAGE = "edge.engine.tensorrt."
_RETURNS = re.compile(r"-> (?:[\w]+(?:\.|::))*(\w+)\s*(?:$|\n)")
_SIGNATURE = re.compile(r"^(?:\d+\. )?(\w+)\((.*?)\) -> ", re.MULTILINE)
_CALLED_OTHERWISE = {
    "IBuilder": "Builder",
    "IEngineInspector": "EngineInspector",
    "IParserError": "ParserError",
    "IRuntime": "Runtime",
}


@dataclass(frozen=True)
class Use:
    """`name` as `BuilderFlag.INT8`; `call` is (positional arguments, names of keywords), None where it is no call."""

    name: str
    where: str
    call: tuple[int, tuple[str, ...]] | None = None


@dataclass
class Code:
    """All of a folder: functions of ours by what they return, fields of our classes by their types."""

    surface: dict
    returns: dict = field(default_factory=dict)
    fields: dict = field(default_factory=dict)
    uses: set = field(default_factory=set)

    def instance(self, annotation):
        """Return the type that an annotation names, if it is TensorRT's or a class of ours."""
        names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
        names |= {node.value for node in ast.walk(annotation) if isinstance(node, ast.Constant)}
        for name in sorted(str(one) for one in names):
            if name in self.surface["classes"]:
                return "instance", name
            if name in self.fields:
                return "ours", name
        return None


def uses_in(folder: Path, surface: dict) -> set[Use]:
    """Return what the files of `folder` use, with types as in `surface` (`tests.support.tensorrt.surface`)."""
    code = Code(surface)
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                code.fields[node.name] = {}
    for path, tree in trees.items():
        _declared(code, tree, path.relative_to(folder).as_posix())
    for _ in range(2):  # a second time, when fields that are set in methods are known
        code.uses.clear()
        for path, tree in trees.items():
            _Walker(code, path.relative_to(folder).as_posix()).visit(tree)
    return code.uses


def _declared(code, tree, file):
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            fields = code.fields[node.name]
            for one in node.body:
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                    fields[one.target.id] = code.instance(one.annotation)
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            code.returns[file, node.name] = code.instance(node.returns)


class _Walker(ast.NodeVisitor):
    def __init__(self, code, file):
        self.code, self.file, self.scopes, self.classes = code, file, [{}], []
        self.home = {name: (where, name) for where, name in code.returns if where == file}

    def visit_ImportFrom(self, node):
        if node.module and node.module.startswith(PACKAGE):
            file = node.module.removeprefix(PACKAGE).replace(".", "/") + ".py"
            self.home |= {one.asname or one.name: (file, one.name) for one in node.names}

    def visit_ClassDef(self, node):
        base = self.type_of(node.bases[0]) if node.bases else None
        if base is not None and base[0] == "class":
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name != "__init__":
                    self.note(f"{base[1]}.{one.name}", one, (len(one.args.args) - 1, ()))
        self.classes.append(node.name)
        self.generic_visit(node)
        self.classes.pop()

    def visit_FunctionDef(self, node):
        scope = {}
        for one in (*node.args.args, *node.args.kwonlyargs):
            if one.annotation is not None:
                scope[one.arg] = self.code.instance(one.annotation)
        self.scopes.append(scope)
        for one in node.body:
            self.visit(one)
        self.scopes.pop()

    def visit_Assign(self, node):
        for target in node.targets:
            self.bind(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.bind(node.target, node.value, self.code.instance(node.annotation))
            self.visit(node.target)
            self.visit(node.value)

    def visit_NamedExpr(self, node):
        self.bind(node.target, node.value)
        self.generic_visit(node)

    def visit_For(self, node):
        self.bind(node.target, node.iter)  # a function of ours that is annotated with what it yields
        self.generic_visit(node)

    def visit_comprehension(self, node):
        self.bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_ListComp(self, node):
        for one in (
            *node.generators,
            *(getattr(node, name) for name in ("elt", "key", "value") if hasattr(node, name)),
        ):
            self.visit(one)

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp  # noqa: N815

    def visit_Attribute(self, node):
        self.type_of(node)
        self.generic_visit(node)

    def visit_Call(self, node):
        self.type_of(node)
        self.generic_visit(node)

    def bind(self, target, value, declared=None):
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, part in zip(target.elts, value.elts, strict=True):
                self.bind(one, part)
            return
        found = self.type_of(value) or declared
        if isinstance(target, ast.Name) and found is not None:
            self.scopes[-1][target.id] = found
        is_own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
        if is_own and found is not None and self.classes:
            self.code.fields[self.classes[-1]][target.attr] = found

    def type_of(self, node):
        if isinstance(node, ast.Name):
            if node.id == "self" and self.classes:
                return "ours", self.classes[-1]
            return next((scope[node.id] for scope in reversed(self.scopes) if scope.get(node.id)), None)
        if isinstance(node, ast.Attribute):
            return self.of_attribute(node)
        if isinstance(node, ast.Call):
            return self.of_call(node)
        if isinstance(node, ast.NamedExpr):
            return self.type_of(node.value)
        if isinstance(node, ast.IfExp):
            return self.type_of(node.body) or self.type_of(node.orelse)
        return None

    def of_attribute(self, node):
        if node.attr == "trt":
            return MODULE
        owner = self.type_of(node.value)
        if owner is None:
            return None
        kind, name = owner[:2]
        if kind == "ours":
            return self.code.fields[name].get(node.attr)
        if node.attr.startswith("__"):
            return None
        classes = self.code.surface["classes"]
        if kind == "module":
            self.note(node.attr, node)
            return ("class", node.attr) if node.attr in classes else None
        if kind == "method" or name not in classes:
            return None
        if kind == "instance" and classes[name]["enum"]:
            return None  # name and value of Python's own enums
        self.note(f"{name}.{node.attr}", node)
        member = classes[name]["members"].get(node.attr)
        if member is None or kind == "class":
            return ("instance", name) if kind == "class" else None
        return ("method", name, node.attr) if member["kind"] == "method" else self.returned(member["doc"])

    def of_call(self, node):
        callee, count = node.func, len(node.args)
        keywords = tuple(one.arg for one in node.keywords if one.arg)
        if isinstance(callee, ast.Name) and self.home.get(callee.id) in self.code.returns:
            return self.code.returns[self.home[callee.id]]
        found = self.type_of(callee)
        if found is None:
            return None
        if found[0] == "class":
            self.note(f"{found[1]}.__init__", node, (count, keywords))
            return "instance", found[1]
        if found[0] == "method":
            self.note(f"{found[1]}.{found[2]}", node, (count, keywords))
            return self.returned(self.code.surface["classes"][found[1]]["members"][found[2]]["doc"])
        return None

    def returned(self, doc):
        found = _RETURNS.search(doc)
        name = _CALLED_OTHERWISE.get(found[1], found[1]) if found else None
        return ("instance", name) if name in self.code.surface["classes"] else None

    def note(self, name, node, call=None):
        self.code.uses.add(Use(name, f"{self.file}:{node.lineno}", call))


def is_there(use: Use, surface: dict) -> bool:
    """Return whether a library with this surface has what is used."""
    owner, _, member = use.name.partition(".")
    if not member:
        return owner in surface["classes"] or owner in surface["values"]
    found = surface["classes"].get(owner)
    if found is None:
        return False
    return member == "__init__" or member in found["members"] or member in (found["enum"] or {})


def call_fits(use: Use, surface: dict) -> bool:
    """Return whether one of the signatures takes the arguments; a class whose constructor says nothing takes any."""
    owner, _, member = use.name.partition(".")
    one = surface["classes"].get(owner, {"members": {}})["members"].get(member)
    found = [] if one is None else _SIGNATURE.findall(one["doc"])
    signatures = [_parameters(text) for name, text in found if "*args" not in text]
    if use.call is None or not signatures:
        return True
    count, keywords = use.call
    for names, needed in signatures:
        given = [*names[:count], *keywords]
        if count <= len(names) and set(keywords) <= set(names[count:]) and set(needed) <= set(given):
            return True
    return False


def _parameters(text):
    """Return the names behind `self`, and those without a default."""
    depth, part, parts = 0, "", []
    for character in text + ",":
        depth += (character in "[({<") - (character in "])}>")
        if character == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += character
    own = [one for one in parts if one and not one.startswith(("self", "arg0: tensorrt"))]
    return [one.partition(":")[0].strip() for one in own], [
        one.partition(":")[0].strip() for one in own if "=" not in one
    ]
