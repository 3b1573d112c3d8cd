"""Holds the picture of the house true: floors, owners of third-party imports, sizes, no leftovers."""

import ast
import configparser
import functools
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from edge.log_events import EVENTS, phrase_of
from tools.log_events_page import PAGE, page_of

ROOT = Path(__file__).parents[1]
RECORDS = sorted((ROOT / "docs" / "adr").glob("*.md"))
RECORD_NUMBERS = [int(path.name[:4]) for path in RECORDS]
MAX_RECORD_WORDS = 300
FILES = sorted((ROOT / "edge").rglob("*.py"))

FLOORS = [
    {"types", "protocols", "codec", "deadline", "digest", "document", "errors", "log_events", "version"}
    | {"mistaken", "reading", "settings", "stdout", "untrusted", "reports", "tls", "writing"},
    {"vision", "config", "model", "wire"},
    {"roofline", "track"},
    {"calibrate", "evaluate", "engine", "http", "media", "publish", "bundle", "device", "registry", "transport"},
    {"quantize", "client", "delivery"},
    {"capacity"},
    {"deploy", "runtime", "demo"},
    {"cli"},
]
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
MAY_MEET_ITS_FLOOR = {"demo"}  # the demo shows the whole product, so it may use the runtime that it shows

OWNERS = {
    "amqtt": "demo/broker.py",
    "av": "media/ffmpeg/binding.py",
    "click": "cli/",
    "cv2": "media/images.py",
    "dask": "quantize/cluster.py",
    "distributed": "quantize/cluster.py",
    "google": "model/binding.py",  # protobuf's decode error comes out of onnx.load
    "gi": "media/gstreamer/binding.py",
    "msgspec": "",
    "numpy": "",
    "onnx": "model/binding.py",
    "openvino": "engine/openvino/binding.py",
    "tensorrt": "engine/tensorrt/binding.py",
    "paho": "publish/mqtt/client.py",
    "prometheus_client": "http/prometheus.py",
    "pycuda": "engine/cuda/binding.py",
    "rich": "cli/",
    "tomli": "config/targets.py",
    "yaml": "config/yaml_file.py",
}
WHEN_USED = {
    "amqtt",
    "av",
    "cv2",
    "dask",
    "distributed",
    "gi",
    "onnx",
    "openvino",
    "paho",
    "prometheus_client",
    "tensorrt",
}  # never while a module is loaded

# A kind of engine is named in its own folder only: whoever else needs one asks `edge.engine.kinds`. The word also means
# something that is no engine of ours; these files were looked at.
KINDS = sorted({path.parent.name for path in (ROOT / "edge/engine").glob("*/facts.py")} | {"tensorrt"})
MAY_NAME_A_KIND = {
    "bundle/manifest.py": "bounds of the device's TensorRT in a manifest",
    "runtime/agent/accept.py": "the same",
    "cli/commands/bundle.py": "the same, as an option",
    "deploy/packing/bundle.py": "the same",
    "device/facts.py": "the device's TensorRT, which is held against those bounds",
    "reports.py": "the same, as it is reported",
    "calibrate/cache.py": "the format of TensorRT's calibration cache",
    "calibrate/convert.py": "the same",
    "calibrate/table.py": "the same: which TensorRT wrote the cache that a table was made of",
    "cli/commands/table.py": "the same, as an option",
    "quantize/tables.py": "the same",
    "quantize/library.py": "the format of TensorRT's calibration cache",
    "quantize/forms.py": "the same",
    "cli/commands/calibrate.py": "an example of a command line",
    "log_events.py": "how lines of its library begin",
}

# The measure of the house is its sum. A number sinks with its room, and rises only with a new capability that the
# commit names.
# fmt: off
LINES_OF_ROOMS = {
    "bundle": 1832,
    "calibrate": 2470,
    "capacity": 992,
    "cli": 6608,
    "client": 527,
    "config": 1435,
    "delivery": 1041,
    "demo": 610,
    "deploy": 7539,
    "device": 3038,
    "engine": 6804,
    "evaluate": 1868,
    "ground": 2244,
    "http": 442,
    "media": 4773,
    "model": 4600,
    "publish": 6426,
    "quantize": 3020,
    "registry": 1062,
    "roofline": 949,
    "runtime": 11954,
    "track": 971,
    "transport": 461,
    "vision": 507,
    "wire": 723,
}
# fmt: on
MAX_FILE_LINES = 450
MAX_FUNCTION_LINES = 60
USUAL_FILE_LINES = 400
USUAL_FUNCTION_LINES = 10


def _name(path: Path) -> str:
    return path.relative_to(ROOT / "edge").as_posix()


def _room(path: Path) -> str:
    return path.relative_to(ROOT / "edge").parts[0].removesuffix(".py")


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(_text(path))


@functools.cache
def _imports(path: Path) -> list[tuple[str, bool]]:
    """Return each imported module, and whether it is imported while the file is loaded."""
    return list(_found_imports(_tree(path)))


def _found_imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    inside = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)) or _is_type_checking(outer)
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) not in inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module, id(node) not in inside


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_every_room_has_a_floor():
    rooms = {_room(path) for path in FILES if _room(path) != "__init__"}
    assert rooms <= set(FLOOR_OF), f"no floor for {sorted(rooms - set(FLOOR_OF))}"


@pytest.mark.promised(reason="the picture of the house is true")
def test_imports_only_go_down():
    assert [told for path in FILES for told in _imports_up(path)] == []


def _imports_up(path: Path) -> Iterator[str]:
    mine = _room(path)
    for module, _ in _imports(path):
        parts = module.split(".")
        if parts[0] != "edge" or len(parts) == 1 or mine == "__init__" or parts[1] in (mine, "pipelines"):
            continue
        other = parts[1]
        goes_down = FLOOR_OF[other] < FLOOR_OF[mine]
        is_same_ground = FLOOR_OF[other] == FLOOR_OF[mine] == 0
        may_meet = mine in MAY_MEET_ITS_FLOOR and FLOOR_OF[other] == FLOOR_OF[mine]
        if not (goes_down or is_same_ground or may_meet):
            yield f"{_name(path)} (floor {FLOOR_OF[mine]}) imports edge.{other}"


def test_no_files_import_each_other_in_a_circle():
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES}
    needs = {name: {one for one, _ in _imports(path)} & modules.keys() for name, path in modules.items()}

    assert len(list(TopologicalSorter(needs).static_order())) == len(modules)  # CycleError names them


def test_third_party_modules_are_imported_by_their_owner_only():
    assert [told for path in FILES for told in _strange_imports(path)] == []


def _strange_imports(path: Path) -> Iterator[str]:
    for module, is_at_load in _imports(path):
        top = module.split(".")[0]
        if top in sys.stdlib_module_names or top in ("edge", "tomllib"):  # which Python 3.10 has not
            continue
        if top not in OWNERS:
            yield f"{_name(path)} imports {top}, which has no owner; give it one in tests/test_house.py"
        elif not _name(path).startswith(OWNERS[top]):
            yield f"{_name(path)} imports {top}, which belongs to {OWNERS[top]}"
        elif is_at_load and top in WHEN_USED:
            yield f"{_name(path)} imports {top} when loaded; import it when used"


def _names_of_kinds(path: Path) -> Iterator[str]:
    """Yield identifiers and strings that hold the name of a kind; what is written for people alone may."""
    tree = _tree(path)
    bodies = [node.body for node in ast.walk(tree) if hasattr(node, "body") and isinstance(node.body, list)]
    prose = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node) if id(node) not in prose else ():
            for text in value if isinstance(value, list) else [value]:
                is_text = isinstance(node, ast.Constant)  # the product's own spelling is for people: OpenVINO, TensorRT
                found = text if is_text else str(text).replace("_", "").lower()
                if isinstance(text, str) and any(kind in found for kind in KINDS):
                    yield f"{node.lineno if hasattr(node, 'lineno') else '?'}: {text}"


def test_nothing_outside_the_room_of_engines_names_a_kind():
    outside = [path for path in FILES if not _name(path).startswith("engine/")]
    named = {_name(path): found for path in outside if (found := list(_names_of_kinds(path)))}
    assert {name: found for name, found in named.items() if name not in MAY_NAME_A_KIND} == {}
    assert set(MAY_NAME_A_KIND) - set(named) == set(), "these name no kind any more"


def test_a_kind_of_engine_does_not_name_another_and_loads_nothing_to_be_asked():
    for name in (path.parent.name for path in (ROOT / "edge/engine").glob("*/facts.py")):
        folder = ROOT / "edge/engine" / name
        others = [other for other in KINDS if other != name]
        strange = [
            module
            for path in folder.rglob("*.py")
            for module, _ in _imports(path)
            if any(f"edge.engine.{other}" in module for other in others)
        ]
        at_load = [
            module
            for file in ("__init__.py", "facts.py")
            for module, is_at_load in _imports(folder / file)
            if is_at_load and module.split(".")[0] not in {*sys.stdlib_module_names, "edge"}
        ]
        assert (strange, at_load) == ([], []), name


def test_every_room_is_installed():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert setup["options"]["packages"] == "find:"  # which finds each folder that has an __init__.py
    assert [str(path.parent) for path in FILES if not (path.parent / "__init__.py").is_file()] == []
    patterns = {
        f"{package}/{one}" for package, text in data_of(setup).items() for one in text.replace(",", " ").split()
    }
    beside = [path for path in beside_the_code() if not any(fnmatch(path, one) for one in patterns)]
    assert beside == [], "no package_data in setup.cfg for these"


def data_of(setup: configparser.ConfigParser) -> dict[str, str]:
    return {package.replace(".", "/"): text for package, text in setup["options.package_data"].items()}


def beside_the_code() -> Iterator[str]:
    for place, folders, names in os.walk(ROOT / "edge", followlinks=True):
        folders[:] = [one for one in folders if one != "__pycache__"]
        paths = (Path(place, name).relative_to(ROOT).as_posix() for name in names)
        yield from (path for path in paths if not path.endswith(".py"))


def _functions(path: Path) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    """Yield each function with the line that it ends with."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node, node.end_lineno or node.lineno


def test_files_and_functions_have_one_subject():
    lines = {_name(path): _text(path).count("\n") for path in FILES}
    assert {name: count for name, count in lines.items() if count > MAX_FILE_LINES} == {}
    long = [
        f"{_name(path)}:{node.lineno} {node.name} has {end - node.lineno + 1} lines"
        for path in FILES
        for node, end in _functions(path)
        if end - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert long == []


def test_no_room_grows_unnoticed():
    lines: Counter[str] = Counter()
    for path in FILES:
        parts = path.relative_to(ROOT / "edge").parts
        lines[parts[0] if len(parts) > 1 else "ground"] += _text(path).count("\n")
    changed = {room: count - LINES_OF_ROOMS.get(room, 0) for room, count in lines.items()}
    assert {room: more for room, more in changed.items() if more > 0} == {}, "make them smaller, or name what is new"
    assert {room: less for room, less in changed.items() if less < -100} == {}, "lower the numbers of these rooms"


def test_most_files_and_functions_are_small():
    lines = [_text(path).count("\n") for path in FILES]
    assert sum(count <= USUAL_FILE_LINES for count in lines) >= 0.95 * len(lines)
    lengths = [end - node.body[0].lineno + 1 for path in FILES for node, end in _functions(path)]
    assert sum(length <= USUAL_FUNCTION_LINES for length in lengths) >= 0.6 * len(lengths)


def test_every_module_says_what_lives_in_it():
    assert [_name(path) for path in FILES if not ast.get_docstring(_tree(path))] == []


def _logged(path: Path) -> Iterator[str]:
    """Yield the text of each line that is logged, as it stands in the code; not what is for debugging."""
    for node in ast.walk(_tree(path)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and ast.unparse(node.func.value) == "_log"
        ):
            text = node.args[1 if node.func.attr == "log" else 0]
            if node.func.attr != "debug":
                assert isinstance(text, ast.Constant), (
                    f"{_name(path)}:{node.lineno}: a line to log is a text of its own"
                )
                yield text.value


def test_every_line_that_is_logged_is_in_the_catalogue_with_what_to_do():
    logged = {phrase_of(text) for path in FILES if _room(path) != "demo" for text in _logged(path)}
    assert sorted(logged - set(EVENTS)) == [], "name these in edge/log_events.py, then: make docs"
    assert sorted(set(EVENTS) - logged) == [], "these are not logged any more"
    ids = [event.id for event in EVENTS.values()]
    assert len(ids) == len(set(ids))
    assert page_of(PAGE.read_text(encoding="utf-8")) == PAGE.read_text(encoding="utf-8"), "make docs"


def test_no_answer_rests_on_an_assertion():
    """`python -O` leaves assertions out, and what came from elsewhere would count as right."""
    assert [
        _name(path) for path in FILES if "except AssertionError" in _text(path) or "(AssertionError" in _text(path)
    ] == []


def test_a_todo_names_its_issue():
    todos = [
        f"{_name(path)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(_text(path).splitlines(), start=1)
        if re.search(r"\b(TODO|FIXME|XXX)\b", line) and not re.search(r"#\d+", line)
    ]
    assert todos == []


def test_each_decision_has_its_own_number():
    """A number that is gone stays free: its subject was merged into a lower one."""
    heads = [re.match(r"# (\d+)\. ", path.read_text(encoding="utf-8")) for path in RECORDS]
    assert [head and int(head[1]) for head in heads] == RECORD_NUMBERS
    assert len(set(RECORD_NUMBERS)) == len(RECORDS)


def test_a_decision_is_short_and_has_its_reason_and_consequence():
    texts = {path.name: path.read_text(encoding="utf-8") for path in RECORDS}
    words = {name: len(text.split()) for name, text in texts.items()}
    assert {name: count for name, count in words.items() if count > MAX_RECORD_WORDS} == {}
    parts = {name: re.findall(r"^## (.*)$", text, re.MULTILINE) for name, text in texts.items()}
    assert {name: found for name, found in parts.items() if found != ["Context", "Decision", "Consequence"]} == {}


def test_every_decision_that_is_named_is_there():
    """Links are held by tests/unit/test_pages.py; this holds numbers in code, tests and pages."""
    named = re.compile(r"\b(?:ADR |adr/)(\d+)")
    folders = [ROOT / name for name in ("edge", "tests", "tools", "docs")]
    files = [path for folder in folders for kind in ("py", "md") for path in folder.rglob(f"*.{kind}")]
    found = {
        f"{path.relative_to(ROOT)}: {one[0]}"
        for path in (*files, *ROOT.glob("*.md"))
        for one in named.finditer(_text(path))
        if int(one[1]) not in RECORD_NUMBERS
    }
    assert found == set()


def test_what_a_file_keeps_quick_is_there():
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text if "slow_but(" in text else "")
        kept = {
            word.value.partition("[")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "slow_but"
            for word in node.args
            if isinstance(word, ast.Constant)
        }
        tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert kept <= tests, f"{path.relative_to(ROOT)}: slow_but names {sorted(kept - tests)}"
