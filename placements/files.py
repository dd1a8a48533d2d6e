"""Files that are whole or absent, written under a temporary name, then renamed; and rows as CSV text."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path


def write_bytes(path: str | Path, data: bytes, *, durable: bool = False) -> Path:
    """Write a file so that an interrupted run never leaves half of it; return its path.

    Args:
        path: Path of the file; its folder is made if it is not there.
        data: All of it.
        durable: Return only when it is on the disk under its name, so that a power cut does not take it
            back.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink()
        raise
    if durable:
        flush_folder(path.parent)
    return path


def flush_folder(folder: Path) -> None:
    """Return when the names in a folder are on the disk as they are now: written, replaced or removed."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: str | Path, text: str) -> Path:
    """Write text as UTF-8 in the same way; return its path."""
    return write_bytes(path, text.encode())


def write_json(path: str | Path, data: object) -> Path:
    """Write plain data as JSON; return its path."""
    return write_text(path, to_json(data) + "\n")


def in_columns(table: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines of text: its first column begins on the left, the others end on the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in table
    ]


def csv_text(header: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Return comma-separated text; None leaves a cell empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def read_json(path: str | Path, wanted: str, error: type[ValueError]) -> object:
    """Return the plain data of a JSON file.

    Args:
        path: The file.
        wanted: What to give instead of a file that cannot be read, such as "a schedule.json".
        error: What is raised, with one line that begins with the path.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"), object_pairs_hook=without_doubles)
    except OSError as cause:
        raise error(f"{path}: cannot be read ({cause.strerror}); give {wanted}") from None
    except (ValueError, RecursionError) as cause:
        raise error(f"{path}: is not JSON ({cause}); give {wanted}") from None


def without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the fields of a JSON object, refusing one that is there twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} is given twice")
    return fields


def to_json(data: object, indent: int = 0, width: int = 110) -> str:
    """Return JSON in which what fits on a line stays on one, so that people can read and diff it."""
    flat = json.dumps(data, allow_nan=False)
    if not isinstance(data, (dict, list, tuple)) or len(flat) + indent <= width:
        return flat
    inner = " " * (indent + 2)
    if isinstance(data, dict):
        rows = [f"{inner}{json.dumps(str(key))}: {to_json(value, indent + 2)}" for key, value in data.items()]
        return "{\n" + ",\n".join(rows) + "\n" + " " * indent + "}"
    if not any(isinstance(item, (dict, list, tuple)) for item in data):
        return flat
    return "[\n" + ",\n".join(inner + to_json(item, indent + 2) for item in data) + "\n" + " " * indent + "]"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
