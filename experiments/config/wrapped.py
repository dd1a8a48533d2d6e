"""Lines of the log as a terminal shows them: no wider than it is, and broken at words only."""

from __future__ import annotations

import logging
import shutil
import textwrap


class WrappedFormatter(logging.Formatter):
    """Formats messages for the screen, for Hydra's configs; where it is no terminal a line stays a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a message, its long lines continued below with an indent; a path is never broken."""
        columns = shutil.get_terminal_size((0, 0)).columns
        lines = super().format(record).split("\n")
        return "\n".join(_wrapped(line, columns) if 0 < columns < len(line) else line for line in lines)


def _wrapped(line: str, columns: int) -> str:
    return textwrap.fill(
        line, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
