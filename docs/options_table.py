"""Tables of a command's options for its page, from the configs, whose comments say what each option means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

CONFIG = Path(__file__).parents[1] / "experiments" / "conf"

COMMON = ("search", "frontier", "run", "profile")
"""The commands whose options are those of ``config.yaml``."""

_LINE = re.compile(r"( *)(\w+): *(.*?)(?: +# (.*))?")

_SPECIAL, _ESCAPED = re.compile(r"([|*<])"), r"\\\1"


class Option(NamedTuple):
    """The name of an option as on the command line, its default as YAML, and what it does."""

    name: str
    default: str
    meaning: str


def options_of(command: str, choices: Mapping[str, str]) -> Iterator[Option]:
    """Yield the options of a command, those of the chosen placement too."""
    yield from _options_in(CONFIG / f"{'config' if command in COMMON else command}.yaml", "")
    for group, choice in choices.items():
        yield from _options_in(CONFIG / group / f"{choice}.yaml", f"{group}.")


def _options_in(path: Path, prefix: str) -> Iterator[Option]:
    group = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if found := _LINE.fullmatch(line):
            indent, name, default, meaning = found.groups()
            group = group if indent else name
            if group not in ("defaults", "hydra") and default and not default.startswith("#"):
                yield Option(prefix + (f"{group}.{name}" if indent else name), default, meaning or "")


def tables(command: str, groups: list[str]) -> Iterator[str]:
    """Yield the tables of some groups of a command's options in Markdown, or one table of all."""
    if not groups:
        yield _table(list(options_of(command, {})))
    for group in groups:
        for kind in sorted(path.stem for path in (CONFIG / group).glob("*.yaml")) or [""]:
            options = options_of(command, {group: kind} if kind else {})
            if kind:
                yield f"**`{group}={kind}`**"
            yield _table([option for option in options if option.name.split(".")[0] == group])


def _table(options: list[Option]) -> str:
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for name, default, meaning in options:
        lines.append(f"| `{name}` | `{default}` | {_SPECIAL.sub(_ESCAPED, meaning)} |")
    return "\n".join(lines)
