"""Files of traces, unpacked while they are read."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from schedsearch.traces.table import TraceError

_GZIP = b"\x1f\x8b"


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, packed by gzip or not.

    Raises:
        TraceError: The file cannot be read or unpacked, also while it is read; the line begins with its path.
    """
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == _GZIP
            file.seek(0)
            yield gzip.GzipFile(fileobj=file) if is_packed else file  # type: ignore[misc]
    except (EOFError, zlib.error, gzip.BadGzipFile) as cause:
        raise TraceError(
            f"{path}: cannot be unpacked ({cause}); give the whole file, packed by gzip"
        ) from None
    except OSError as cause:
        raise TraceError(f"{path}: cannot be read ({cause.strerror}); give a file of a trace") from None


def text_of(path: Path, num_bytes: int = -1) -> str:
    """Return the text of a file, or of its first bytes, unpacked."""
    with unpacked(path) as file:
        return file.read(num_bytes).decode(errors="replace")
