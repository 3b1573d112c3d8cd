"""What ssh-keygen answers, each question asked once: an enumeration has thousands of them about a few files."""

from collections.abc import Callable
from pathlib import Path

from edge.bundle.sign import RanSshKeygen, run_ssh_keygen


def remembering() -> Callable[..., RanSshKeygen]:
    """Return `run_ssh_keygen` with a memory of its own, by the words and by what is in the files that they name."""
    answers: dict[tuple[object, ...], RanSshKeygen] = {}

    def ask(*words: str, content: bytes = b"", **options: float) -> RanSshKeygen:
        files = {word: Path(word).read_bytes() for word in words if word.startswith("/")}
        has_times = any(b"valid-" in found for found in files.values())
        asked = [files.get(word, word) for word in words if has_times or not word.startswith("-Overify-time=")]
        question = (*asked, content)
        if question not in answers:
            answers[question] = run_ssh_keygen(*words, content=content, **options)
        return answers[question]

    return ask
