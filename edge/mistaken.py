"""Recognises common wrong file types by their first bytes, with advice.

Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Mistaken", "is_text", "mistaken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistaken:
    """A recognised kind of file, and advice.

    Attributes:
        what: such as "a web page".
        todo: a sentence for the hint.
        is_picture: an image file of a common kind.
        is_model: an ONNX model, whole or not.
    """

    what: str
    todo: str
    is_picture: bool = False
    is_model: bool = False


_EXPORT = "export it with the tool that trained it: yolo export model=best.pt format=onnx"
_NAME_IT = "name the file that is meant"
_UNPACK = "unpack it, and give the file in it"
_FROM_ONNX = "give the .onnx that it was made of: each device builds its own engine"
_JSON_AT = slice(4, 5)  # behind its length, before the engine, where Ultralytics puts what it knows of a model

_CHECKPOINT = Mistaken(what="a PyTorch checkpoint (.pt)", todo=_EXPORT)
_ENGINE = Mistaken(what="a TensorRT engine", todo=_FROM_ONNX)
_ONNX = Mistaken(what="an ONNX model", todo=_NAME_IT, is_model=True)
_BEHIND_IR_VERSION = (b"\x12", b"\x3a", b"\x42")  # protobuf's tags of the producer, the graph and the opsets
_UTF16 = Mistaken(what="text in UTF-16", todo="save it as UTF-8")
_PAGE = Mistaken(what="a web page", todo="download the file itself, not the page that shows it")
_LFS = Mistaken(what="a Git LFS pointer, which stands for the file", todo="fetch the file: git lfs pull")

# Where in the file, in small letters, and what it is then. Sources: the formats' own pages, and file(1)'s list.
_SIGNS: tuple[tuple[int, bytes, Mistaken], ...] = (
    (0, b"version https://git-lfs", _LFS),
    (0, b"<!doctype html", _PAGE),
    (0, b"<html", _PAGE),
    (0, b"\x80\x02", _CHECKPOINT),
    (0, b"edgetrt1\n", _ENGINE),
    (1, b"trt\0", _ENGINE),  # ptrt, ftrt, vtrt: by the release and by the library
    (0, b"\xff\xfe", _UTF16),
    (0, b"\xfe\xff", _UTF16),
    (0, b"pk\x03\x04", Mistaken(what="a zip archive", todo=_UNPACK)),
    (0, b"\x1f\x8b", Mistaken(what="a gzip archive", todo=_UNPACK)),
    (0, b"bzh", Mistaken(what="a bzip2 archive", todo=_UNPACK)),
    (0, b"\xfd7zxz\0", Mistaken(what="an xz archive", todo=_UNPACK)),
    (0, b"\x28\xb5\x2f\xfd", Mistaken(what="a Zstandard archive", todo=_UNPACK)),
    (257, b"ustar", Mistaken(what="a tar archive", todo=_UNPACK)),
    (0, b"\x89hdf\r\n", Mistaken(what="an HDF5 file (Keras)", todo="export the model to ONNX")),
    (4, b"tfl3", Mistaken(what="a TensorFlow Lite model", todo="export the model it was made of to ONNX")),
    (0, b"\x89png\r\n", Mistaken(what="a PNG picture", todo=_NAME_IT, is_picture=True)),
    (0, b"\xff\xd8\xff", Mistaken(what="a JPEG picture", todo=_NAME_IT, is_picture=True)),
    (4, b"ftyphe", Mistaken(what="a HEIC picture", todo="convert it to JPEG")),
    (4, b"ftypmif1", Mistaken(what="a HEIC picture", todo="convert it to JPEG")),
    (4, b"ftypavif", Mistaken(what="an AVIF picture", todo="convert it to JPEG")),
    (4, b"ftyp", Mistaken(what="an MP4 clip", todo=_NAME_IT)),
    (0, b"\x1a\x45\xdf\xa3", Mistaken(what="a Matroska clip", todo=_NAME_IT)),
    (0, b"%pdf-", Mistaken(what="a PDF document", todo=_NAME_IT)),
    (0, b"\x7felf", Mistaken(what="a program", todo=_NAME_IT)),
)


def mistaken(data: bytes) -> Mistaken | None:
    """Return what `data`, the beginning of a file or all of it, is surely; None where nothing tells.

    Text carries no sign of its own: None is what the right file gives, and much else.
    """
    if data[:1] == b"\x08" and data[2:3] in _BEHIND_IR_VERSION:
        return _ONNX
    start = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"pk\x03\x04") and b"/data.pkl" in data[:4096]:  # how PyTorch has written them since 1.6
        return _CHECKPOINT
    if start[_JSON_AT] == b"{" and b"ultralytics" in start:
        return _ENGINE
    return next((found for at, sign, found in _SIGNS if start[at : at + len(sign)] == sign), None)


def is_text(data: bytes) -> bool:
    """Return whether `data`, all of a file, is text."""
    try:
        return all(one.isprintable() or one.isspace() for one in data.decode()[:512])
    except UnicodeDecodeError:
        return False
