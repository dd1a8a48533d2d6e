"""Text of files, packed by gzip or not."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from schedsearch.traces.table import TraceError


def text_of(path: Path, num_bytes: int = -1) -> str:
    """Return the text of a file, or of its first bytes; bytes that are not UTF-8 are marked in it.

    Raises:
        TraceError: The file cannot be read or unpacked; the line begins with its path.
    """
    try:
        with path.open("rb") as file:
            is_packed = file.peek(2)[:2] == b"\x1f\x8b"
            data = (gzip.GzipFile(fileobj=file) if is_packed else file).read(num_bytes)
        return data.decode(errors="replace")
    except (EOFError, zlib.error, OSError) as cause:
        reason = getattr(cause, "strerror", None) or f"it cannot be unpacked: {cause}"
        raise TraceError(f"{path}: cannot be read ({reason}); give the whole file") from None
