"""Tables of a command's options for its page, from where they are declared."""

from __future__ import annotations

import re
from collections.abc import Iterator

from experiments.config.declaring import Option
from experiments.config.option_list import as_yaml, command_options, kinds_of

_SPECIAL, _ESCAPED = re.compile(r"([|*<])"), r"\\\1"


def tables(command: str, groups: list[str]) -> Iterator[str]:
    """Yield Markdown tables of a command's options: of some groups, or of all with each planner's own."""
    if not groups:
        yield _table(known := list(command_options(command)))
        for kind in sorted(kinds_of(command, "planner")):
            options = command_options(command, {"planner": kind})
            of_planner = [option for option in options if option.name.startswith("planner.")]
            if not all(option in known for option in of_planner):
                yield f"**`planner={kind}`**"
                yield _table(of_planner)
    for group in groups:
        if group == "experiment":
            yield from _items(command)
            continue
        kinds = sorted(kinds_of(command, group))
        prefix = f"{group}." if kinds else group
        for kind in kinds if kinds != ["default"] else [""]:
            if kind:
                yield f"**`{group}={kind}`**"
            options = command_options(command, {group: kind} if kind else {})
            yield _table([option for option in options if option.name.startswith(prefix)])


def _items(command: str) -> Iterator[str]:
    """Yield a table of each item's own options."""
    common = list(command_options(command))
    for kind in sorted(kinds_of(command, "experiment")):
        options = command_options(command, {"experiment": kind})
        of_item = [option for option in options if option not in common and option.name != "experiment"]
        if of_item:
            yield f"**`experiment={kind}`**"
            yield _table(of_item)


def _table(options: list[Option]) -> str:
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for name, default, meaning in options:
        lines.append(f"| `{name}` | `{as_yaml(default)}` | {_SPECIAL.sub(_ESCAPED, meaning)} |")
    return "\n".join(lines)
