"""The table of boards in docs/proofs/README.md, from the proofs beside it: python -m tools.proofs_page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edge.roofline.proof import MACHINE, decode_proof

__all__ = ["FOLDER", "page_of"]

FOLDER = Path(__file__).parents[1] / "docs/proofs"
_HEAD = "## Sent in\n"


def page_of(folder: Path, page: str) -> str:
    """Return `page` with a row for each proof that lies in `folder`, and none else, behind its last heading."""
    before, _, _ = page.partition(_HEAD)
    rows = [*_rows(folder)]
    told = "" if rows else " So far there is none."
    lines = [
        _HEAD,
        f"Proofs that people send lie beside this page, as `BOARD-JETPACK.json`; `make docs` writes their rows.{told}",
        "",
        "| Board | JetPack | Proof | Result | INT8 form to take |",
        "|---|---|---|---|---|",
        *rows,
    ]
    return before + "\n".join(lines) + "\n"


def _rows(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.json")):
        proof = decode_proof(path.read_bytes(), path.name)
        values = {row.name: row.values for row in reversed([*proof.rows()])}
        board = values.get(MACHINE, {}).get("key") or path.stem
        jetpack = values.get("device", {}).get("jetpack") or "not told"
        form = values.get("form", {}).get("form") or "none"
        cells = (board, jetpack, f"[{path.stem}]({path.name})", proof.verdict.value, form)
        yield "| " + " | ".join(" ".join(str(cell).replace("|", "/").split()) for cell in cells) + " |"


if __name__ == "__main__":
    file = FOLDER / "README.md"
    file.write_text(page_of(FOLDER, file.read_text(encoding="utf-8")), encoding="utf-8")
