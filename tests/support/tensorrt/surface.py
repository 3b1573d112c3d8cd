"""A program: prints the surface of the real bindings on its path: classes, members, enums, what is said of each.

A class is {"members": {name: the signatures in its docstring}, "enum": {name: value} or null, "bases": [...]}.
"""

import dataclasses
import importlib
import inspect
import json
import sys

from edge.engine.tensorrt.binding import abilities_of
from tests.support.tensorrt import MODULE


def documented(value):
    return inspect.getdoc(value) or ""


def members_of(kind):
    found = {}
    for name in dir(kind):
        if name.startswith("__") and name != "__init__":
            continue
        value = inspect.getattr_static(kind, name)
        text = documented(value.fget) if isinstance(value, property) and value.fget else documented(value)
        what = "property" if isinstance(value, property) else "method" if callable(value) else "value"
        setter = isinstance(value, property) and value.fset is not None
        found[name] = {"kind": what, "doc": text, "settable": setter}
    return found


def surface_of(module):
    classes, values = {}, {}
    for name in dir(module):
        value = getattr(module, name)
        if name.startswith("_") or inspect.ismodule(value):
            continue
        if not inspect.isclass(value):
            values[name] = documented(value) if callable(value) else type(value).__name__
            continue
        enum = getattr(value, "__members__", None)
        classes[name] = {
            "members": members_of(value),
            "enum": None
            if enum is None
            else {key: int(one.value if hasattr(one, "value") else one) for key, one in enum.items()},
            "bases": [base.__name__ for base in value.__bases__ if base.__module__ == value.__module__],
            "is_abstract": "No constructor defined" in documented(getattr(value, "__init__", None)),
        }
    abilities = dataclasses.asdict(abilities_of(module))
    return {"version": module.__version__, "abilities": abilities, "classes": classes, "values": values}


def main():
    names = json.load(sys.stdin)
    module = importlib.import_module(names or MODULE)
    print(json.dumps(surface_of(module)))


if __name__ == "__main__":
    main()
