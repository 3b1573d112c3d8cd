"""Type stubs of a TensorRT, written from what its bindings say of themselves, for mypy."""

import keyword
import re
from pathlib import Path

_SIGNATURE = re.compile(r"^(?:\d+\. )?(\w+)\((.*?)\) -> (.+)$", re.MULTILINE)
_PROPERTY = re.compile(r"^\(.*?\) -> (.+)$", re.MULTILINE)
_PLAIN = {"int": "int", "str": "str", "float": "float", "bool": "bool", "None": "None"}
_OTHERWISE = {"IParserError": "ParserError", "IEngineInspector": "EngineInspector"}
_DATA_TYPES = ("float32", "float16", "int8", "int32", "int64", "bfloat16")
_HEAD = """import enum
from collections.abc import Iterator
from typing import Any, overload

__version__: str
"""
_DIMS = """
class Dims:
    def __iter__(self) -> Iterator[int]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> int: ...
"""


def write_stubs(surface: dict, folder: Path) -> None:
    """Write `tensorrt/__init__.pyi` into `folder` for mypy's path."""
    classes = surface["classes"]
    lines = [_HEAD, _DIMS]
    for name, one in _bases_first(classes):
        lines += _enum(name, one["enum"]) if one["enum"] else _class(name, one, classes)
    # `import tensorrt` as a value, which a class can name and a module cannot.
    values = [name for name in surface["values"] if name in _DATA_TYPES]
    lines += ["_DataType = DataType\n\nclass Library:", "    __name__: str\n    __version__: str"]
    lines += [*(f"    {name}: type[{name}]" for name in classes), *(f"    {name}: _DataType" for name in values)]
    (folder / "tensorrt").mkdir()
    (folder / "tensorrt/__init__.pyi").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _bases_first(classes):
    done = {"Dims"}
    while left := [name for name in classes if name not in done]:
        ready = [name for name in left if all(base in done or base not in classes for base in classes[name]["bases"])]
        yield from ((name, classes[name]) for name in ready)
        done |= set(ready)


def _enum(name, members):
    return [f"\nclass {name}(enum.IntEnum):", *(f"    {key} = {value}" for key, value in members.items() if _fit(key))]


def _class(name, one, classes):
    bases = [base for base in one["bases"] if base in classes]
    lines = [f"\nclass {name}({', '.join(bases)}):" if bases else f"\nclass {name}:"]
    for member, what in one["members"].items():
        if _fit(member):
            lines += _member(member, what, classes)
    if name == "IHostMemory":  # what no docstring says: it is a buffer
        lines.append("    def __buffer__(self, flags: int, /) -> memoryview: ...")
    return lines if len(lines) > 1 else [*lines, "    pass"]


def _member(name, what, classes):
    if what["kind"] == "property":
        found = _PROPERTY.search(what["doc"])
        kind = _type(found[1], classes) if found else "Any"
        lines = ["    @property", f"    def {name}(self) -> {kind}: ..."]
        taken = "Any" if kind == "Dims" else kind  # pybind11 makes one of any sequence of numbers
        return lines + (
            [f"    @{name}.setter", f"    def {name}(self, value: {taken}) -> None: ..."] if what["settable"] else []
        )
    if what["kind"] != "method":
        return [f"    {name}: Any"]
    found = [one for one in _SIGNATURE.findall(what["doc"]) if "*args" not in one[1]]
    if not found:
        return [f"    def {name}(self, *args: Any, **more: Any) -> {'None' if name == '__init__' else 'Any'}: ..."]
    lines = []
    for _, parameters, result in found:
        lines += ["    @overload"] if len(found) > 1 else []
        returns = "None" if name == "__init__" else _type(result, classes)
        lines.append(f"    def {name}(self{_parameters(parameters, classes)}) -> {returns}: ...")
    return lines


def _parameters(text, classes):
    made, has_default = "", False
    for number, one in enumerate(_split(text)):
        name, _, rest = one.partition(":")
        kind, _, default = rest.partition("=")
        if number == 0:
            continue  # self
        if not _fit(name.strip()):
            return ", *args: Any, **more: Any"  # a default of NVIDIA's that is no Python
        has_default = has_default or bool(default)
        kind = _type(kind.strip(), classes)
        kind = "Any" if kind == "Dims" or default else kind
        made += f", {name.strip()}: {kind}" + (" = ..." if has_default else "")
    return made


def _split(text):
    depth, part = 0, ""
    for character in text + ",":
        depth += (character in "[({<") - (character in "])}>")
        if character == "," and depth == 0:
            if part.strip():
                yield part.strip()
            part = ""
        else:
            part += character


def _type(text, classes):
    text = text.strip()
    if text in _PLAIN:
        return _PLAIN[text]
    found = re.fullmatch(r"[Ll]ist\[(.*)\]", text)
    if found:
        return f"list[{_type(found[1], classes)}]"
    name = re.split(r"\.|::", text)[-1]
    name = _OTHERWISE.get(name, name)
    return name if name in classes and re.fullmatch(r"[\w.:]+", text) else "Any"


def _fit(name):
    return name.isidentifier() and not keyword.iskeyword(name)
