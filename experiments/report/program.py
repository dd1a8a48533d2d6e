"""The scripts of a page and their data, made small enough to stand in the page itself.

It knows where the scripts are and in which order they belong together, and nothing of what they do.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from dataclasses import dataclass
from importlib import resources

FILES = (
    "data.js",
    "schedule.js",
    "colours.js",
    "timeline.js",
    "readout.js",
    "selection.js",
    "plans.js",
    "picture.js",
    "progress.js",
    "main.js",
)
"""Each uses only those above it."""

_LEVEL = 6


@dataclass(frozen=True)
class PageProgram:
    """Scripts of a page.

    Attributes:
        code: All scripts but the one that loads them.
        data: What they show.
    """

    code: str
    data: bytes

    @classmethod
    def of(cls, library: str, data: bytes) -> PageProgram:
        """Return our scripts behind a library."""
        ours = "\n".join(_script(name) for name in FILES)
        return cls(f'{library}\n(() => {{\n"use strict";\n{ours}}})();\n', data)

    @property
    def loader(self) -> str:
        """The script that loads the others; it alone is in the page as it is."""
        return _script("load.js")

    @property
    def policy(self) -> str:
        """Scripts that the page may run, known by their hashes, whatever text gets into the page."""
        hashes = " ".join(f"'sha256-{_hash(script)}'" for script in (self.loader, self.code))
        return f"script-src {hashes}"

    @property
    def markup(self) -> str:
        """The scripts and the data, compressed, as the page's last elements."""
        return "\n".join(
            [
                f'<script type="text/plain" id="page-code">{_compressed(self.code.encode())}</script>',
                f'<script type="text/plain" id="page-data">{_compressed(self.data)}</script>',
                f"<script>{self.loader}</script>",
            ]
        )


def _script(name: str) -> str:
    return (resources.files("experiments.report") / "browser" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def _compressed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, _LEVEL, mtime=0)).decode("ascii")
