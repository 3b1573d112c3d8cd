"""Fuzzes the parsers by coverage, with atheris, which is fetched into .cache for that (x86-64).

make fuzz
make fuzz ARGS="--seconds 600 messages cache"

What ends a target is kept in out/fuzz/TARGET; a test for it belongs into tests/unit. The corpus of a target, which
begins with what the product itself writes, is kept in .cache/fuzz/TARGET, so that a later run goes on.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import ROOT, TARGETS, Target

ATHERIS = "atheris==3.0.0"
CACHE, FOUND = ROOT / ".cache/fuzz", ROOT / "out/fuzz"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"no target is called {', '.join(sorted(unknown))}")
    _fetch_atheris()
    failed = [name for name in options.targets or TARGETS if not _fuzz(name, options.seconds)]
    for name in failed:
        print(f"{name}: see {FOUND / name}", file=sys.stderr)
    return 1 if failed else 0


def _fetch_atheris() -> None:
    if (CACHE / "atheris/atheris").is_dir():
        return
    print(f"fetching {ATHERIS} into {CACHE}/atheris")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*command, "--target", CACHE / "atheris", ATHERIS], check=True)


def _fuzz(name: str, seconds: int) -> bool:
    """Return whether nothing was found."""
    corpus, found = CACHE / name, FOUND / name
    corpus.mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    _write_seeds(corpus, TARGETS[name])
    command = [sys.executable, "-m", "tests.fuzz.one", name, corpus, f"-max_total_time={seconds}"]
    if TARGETS[name].words:
        command.append(f"-dict={_write_words(CACHE / f'{name}.dict', TARGETS[name])}")
    command += [
        f"-artifact_prefix={found}/",
        "-timeout=10",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    environ = {**os.environ, "PYTHONPATH": f"{CACHE / 'atheris'}:{ROOT}"}
    done = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    runs = [line.split()[-1] for line in done.stdout.splitlines() if "number_of_executed_units" in line]
    print(f"{name}: {runs[0] if runs else '?'} inputs, {'nothing found' if done.returncode == 0 else 'FAILED'}")
    if done.returncode != 0:
        told = [line for line in done.stdout.splitlines() if not line.startswith(("INFO:", "WARNING:"))]
        print("\n".join(told)[-6000:])
    return done.returncode == 0


def _write_seeds(corpus: Path, target: Target) -> None:
    for seed in target.seeds():
        (corpus / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)


def _write_words(path: Path, target: Target) -> Path:
    quoted = ("".join(f"\\x{byte:02x}" for byte in word) for word in target.words)
    path.write_text("".join(f'"{word}"\n' for word in quoted), encoding="ascii")
    return path


if __name__ == "__main__":
    sys.exit(main())
