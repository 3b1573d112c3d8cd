"""A Dockerfile read into its stages, by the rules of https://docs.docker.com/reference/dockerfile/ that ours needs."""

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Instruction:
    name: str
    value: str

    @property
    def words(self) -> list[str]:
        """The value as a shell would split it, or the entries of a JSON array."""
        return json.loads(self.value) if self.value.startswith("[") else shlex.split(self.value)


@dataclass
class Stage:
    base: str
    name: str | None
    instructions: list[Instruction] = field(default_factory=list)

    def of(self, name: str) -> list[Instruction]:
        return [one for one in self.instructions if one.name == name]

    def index(self, name: str) -> int:
        return next(i for i, one in enumerate(self.instructions) if one.name == name)


@dataclass(frozen=True)
class Dockerfile:
    arguments: dict[str, str]  # before the first stage, with their defaults
    stages: list[Stage]


def read_dockerfile(path: Path) -> Dockerfile:
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for one in _instructions(path.read_text(encoding="utf-8")):
        if one.name == "FROM":
            base, *name = one.words
            stages.append(Stage(base, name[1] if name else None))
        elif stages:
            stages[-1].instructions.append(one)
        else:
            assert one.name == "ARG", f"{one.name} before the first FROM"
            name, _, default = one.value.partition("=")
            arguments[name] = default
    return Dockerfile(arguments, stages)


def _instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    return [
        Instruction(name.upper(), value.strip())
        for name, _, value in (row.partition(" ") for row in whole.splitlines())
    ]
