"""Tables of a command's options for its page, from where they are declared."""

from __future__ import annotations

import re
from collections.abc import Iterator

from experiments.config.declaring import Option
from experiments.config.option_list import as_yaml, kinds_of, options_of

_SPECIAL, _ESCAPED = re.compile(r"([|*<])"), r"\\\1"


def tables(command: str, groups: list[str]) -> Iterator[str]:
    """Yield the tables of some groups of a command's options in Markdown, or of all and other planners'."""
    if not groups:
        yield _table(known := list(options_of(command)))
        for kind in sorted(kinds_of(command, "planner")):
            own = [
                each for each in options_of(command, {"planner": kind}) if each.name.startswith("planner.")
            ]
            if not all(each in known for each in own):
                yield f"**`planner={kind}`**"
                yield _table(own)
    for group in groups:
        if group == "experiment":
            yield from _items(command)
            continue
        kinds = sorted(kinds_of(command, group))
        prefix = f"{group}." if kinds else group
        for kind in kinds if kinds != ["default"] else [""]:
            if kind:
                yield f"**`{group}={kind}`**"
            options = options_of(command, {group: kind} if kind else {})
            yield _table([option for option in options if option.name.startswith(prefix)])


def _items(command: str) -> Iterator[str]:
    """Yield a table of each item's own options."""
    common = list(options_of(command))
    for kind in sorted(kinds_of(command, "experiment")):
        own = [option for option in options_of(command, {"experiment": kind}) if option not in common]
        own = [option for option in own if option.name != "experiment"]
        if own:
            yield f"**`experiment={kind}`**"
            yield _table(own)


def _table(options: list[Option]) -> str:
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for name, default, meaning in options:
        lines.append(f"| `{name}` | `{as_yaml(default)}` | {_SPECIAL.sub(_ESCAPED, meaning)} |")
    return "\n".join(lines)
