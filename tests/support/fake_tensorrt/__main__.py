"""Records the surfaces that the fake keeps to, from the real bindings: `python -m tests.support.fake_tensorrt`."""

import json
import tempfile
from pathlib import Path

from tests.support.fake_tensorrt.surface import RECORD, recorded_part
from tests.support.tensorrt import VERSIONS, folder_of, module_of, run_python
from tests.support.tensorrt.stubs import stubs


def surface(version):
    with tempfile.TemporaryDirectory() as folder:
        return run_python(
            "tests.support.tensorrt.surface",
            module_of(version),
            path=[folder_of(version)],
            libraries=stubs(version, Path(folder)),
        )


def main():
    found = {version: recorded_part(surface(version)) for version in VERSIONS}
    lines = []
    for version, part in found.items():
        classes = [f"  {json.dumps(name)}: {json.dumps(one, sort_keys=True)}" for name, one in sorted(part.items())]
        lines.append(f"{json.dumps(version)}: {{\n" + ",\n".join(classes) + "\n}")
    RECORD.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
