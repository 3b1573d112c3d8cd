"""The pages of this project as a reader meets them: headings, links, and the commands that they print."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]

# What a command line of ours begins with; an indented block that begins otherwise is a file or an example of text.
_PROGRAMS = {
    *("edge-deploy", "edge-runtime", "make", "docker", "ssh", "ssh-keygen", "sudo", "sed", "mkdir", "cp", "pip"),
    *("python", "journalctl", "mosquitto_sub", "source", "yolo", "git"),
}
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")
_PAGE_NOT_RUN = re.compile(r"^<!-- nothing on this page is run: (.+?) -->$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """One line as it is typed, whatever it is continued on; `why_not` is why no test runs it, None where one does."""

    page: str
    line: int
    typed: str
    why_not: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.typed}"


@dataclass(frozen=True)
class Page:
    """A Markdown file; `name` is its path in the checkout."""

    name: str
    text: str

    @cached_property
    def prose(self) -> str:
        """The text without code: what headings and links are read from; the lines stay where they are."""
        return "\n".join(line if kind == "prose" else "" for kind, line in _lines(self.text))

    @cached_property
    def headings(self) -> list[str]:
        return re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)

    @cached_property
    def anchors(self) -> set[str]:
        """What GitHub names the headings, and so what a link to one ends with."""
        found: dict[str, int] = {}
        for heading in self.headings:
            words = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", heading).lower()).replace(" ", "-")
            found[words] = found.get(words, -1) + 1
            found.setdefault(f"{words}-{found[words]}" if found[words] else words, 0)
        return set(found)

    @cached_property
    def links(self) -> list[str]:
        """Where links and pictures lead, without those to other sites."""
        found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", self.prose))
        return [link for link in found if not re.match(r"[a-z]+:", link)]

    @cached_property
    def spans(self) -> list[str]:
        """What is set as code within sentences."""
        return [re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", self.prose)]

    @cached_property
    def commands(self) -> list[Command]:
        """All commands of its blocks, in their order."""
        for_all = _PAGE_NOT_RUN.search(self.text)
        return [
            Command(self.name, number, typed, for_all[1] if for_all else why_not)
            for block, why_not in _blocks(self.text)
            for number, typed in _typed(block)
        ]


def read_page(name: str) -> Page:
    return Page(name, (ROOT / name).read_text(encoding="utf-8"))


def pages() -> list[Page]:
    """Return every page that is for readers; the history (CHANGELOG) is as it was."""
    found = [
        path for folder in (".", "docs", "docs/proofs", "calib_cache") for path in sorted((ROOT / folder).glob("*.md"))
    ]
    found += sorted((ROOT / "edge").rglob("*.md")) + sorted((ROOT / "tools").rglob("*.md"))
    return [read_page(path.relative_to(ROOT).as_posix()) for path in found if path.name != "CHANGELOG.md"]


def our_calls(typed: str) -> list[list[str]]:
    """Return the calls of our two programs in a line of a shell, each as program and arguments."""
    words = shlex.shlex(typed, posix=True, punctuation_chars="|&;()<>")
    words.whitespace_split = True
    simple: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set("|&;()<>"):
            simple.append([])
        else:
            simple[-1].append(word)
    return [call for one in simple if (call := _ours(one))]


def _ours(words: list[str]) -> list[str]:
    """Return a simple command from the name of our program on, () where it begins with another one."""
    if words[:2] == ["docker", "exec"]:
        words = words[3:]
    while words and (words[0] == "sudo" or re.match(r"[A-Z_]+=", words[0])):
        words = words[1:]
    name = words[0].rpartition("/")[2] if words else ""
    return [name, *words[1:]] if name in ("edge-deploy", "edge-runtime") else []


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line with what it is: prose, the info of a fence, a line in a fence, or an indented one."""
    fence, before, is_indented = None, "", False
    for line in text.splitlines():
        mark = re.match(r"\s*```(\w*)", line)
        if fence is not None:
            yield ("end", line) if mark else (fence, line)
            fence = None if mark else fence
        elif mark:
            fence = f"fence {mark[1]}".strip()
            yield "begin", line
        else:
            is_indented = line.startswith("    ") and (is_indented or not before.strip())
            yield "indented" if is_indented else "prose", line
        before = line


def _blocks(text: str) -> Iterator[tuple[list[tuple[int, str, str]], str | None]]:
    """Yield each block of code, as (line, kind, text), with the reason that stands before it why it is not run."""
    block: list[tuple[int, str, str]] = []
    why_not = None
    for number, (kind, line) in enumerate([*_lines(text), ("prose", "end")], start=1):
        if kind == "prose" and block and line.strip():
            yield block, why_not
            block = []
        if kind == "prose" and line.strip():
            said = _NOT_RUN.fullmatch(line.strip())
            why_not = said[1] if said else None
        elif kind.startswith(("fence", "indented")):
            block.append((number, kind, line))


def _typed(block: list[tuple[int, str, str]]) -> Iterator[tuple[int, str]]:
    """Yield the commands of a block with their lines."""
    held: tuple[int, str] | None = None
    is_typed = False
    for number, kind, line in block:
        text = line.strip()
        if kind == "fence console":
            is_typed, text = text.startswith("$ ") or held is not None, text.removeprefix("$ ")
        elif kind in ("fence sh", "indented") and held is None:
            is_typed = is_typed or text.split(" ")[0].rpartition("/")[2] in _PROGRAMS
        if not is_typed or kind not in ("fence console", "fence sh", "indented") or not text:
            continue
        start, so_far = held or (number, "")
        if text.endswith("\\"):
            held = (start, f"{so_far}{text[:-1].rstrip()} ")
            continue
        held = None
        yield start, so_far + text
