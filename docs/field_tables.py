"""Tables of fields in the pages, from the declarations of the records that are read.

``python docs/field_tables.py`` writes each table anew that stands under a comment with the record's name.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from placements.meaning import table

PAGES = sorted(Path(__file__).parent.rglob("*.md"))

_TABLE = re.compile(r"^<!-- fields of (\S+) -->\n\n(?:\|.*\n)*\n*", re.MULTILINE)


def with_tables(text: str) -> str:
    """Return a page whose tables are those of the records that its comments name."""
    return _TABLE.sub(_made, text)


def _made(found: re.Match[str]) -> str:
    module, name = found[1].rsplit(".", 1)
    return f"<!-- fields of {found[1]} -->\n\n{table(getattr(import_module(module), name))}\n\n"


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
