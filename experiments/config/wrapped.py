"""Lines of the log as a terminal shows them: no wider than it is, and broken at words only."""

from __future__ import annotations

import logging
import shutil
import sys
import textwrap


class WrappedFormatter(logging.Formatter):
    """Formats messages for the screen, for Hydra's configs; where it is no terminal a line stays a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a message, its long lines continued below with an indent; a path is never broken."""
        text = super().format(record)
        if not sys.stdout.isatty():
            return text
        columns = shutil.get_terminal_size().columns
        return "\n".join(
            _wrapped(line, columns) if columns < len(line) else line for line in text.split("\n")
        )


def _wrapped(line: str, columns: int) -> str:
    return textwrap.fill(
        line, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
