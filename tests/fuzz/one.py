"""`python -m tests.fuzz.one TARGET CORPUS [libFuzzer's options]`: fuzzes one target; needs atheris on the path."""

import sys

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["edge"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    run = TARGETS[sys.argv[1]].run
    atheris.Setup([sys.argv[0], *sys.argv[2:]], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
