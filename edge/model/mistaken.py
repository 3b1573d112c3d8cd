"""What people have in hand when it is no ONNX file: told by its first bytes, with what to do."""

from __future__ import annotations

__all__ = ["mistaken"]

_ZIP = b"PK\x03\x04"
_EXPORT = "export it with the tool that trained it: yolo export model=best.pt format=onnx"
_BEGINNINGS = (
    (b"version https://git-lfs", "a Git LFS pointer, which stands for the file", "fetch the file: git lfs pull"),
    (b"<!doctype html", "a web page", "download the file itself, not the page that shows it"),
    (b"<html", "a web page", "download the file itself, not the page that shows it"),
    (b"\x80\x02", "a PyTorch checkpoint (.pt)", _EXPORT),
    (_ZIP, "a zip archive", "unpack it, and give the .onnx in it"),
)


def mistaken(data: bytes) -> tuple[str, str] | None:
    """Return what `data` is, and what to do; None where it may be an ONNX model."""
    start = data[:64].lstrip().lower()
    if start.startswith(_ZIP.lower()) and b"/data.pkl" in data[:4096]:  # how PyTorch has written them since 1.6
        return "a PyTorch checkpoint (.pt)", _EXPORT
    return next(((what, todo) for begins, what, todo in _BEGINNINGS if start.startswith(begins.lower())), None)
