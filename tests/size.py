"""Lines and lines of code of the four packages and of the tests, with their rooms; a ceiling that only falls.

``python tests/size.py`` prints them, ``--check`` fails above ``tests/ceiling.csv``, and ``--lower`` writes
what is less than the ceiling there. Lines of code have no blanks, comments and docstrings.
"""

import ast
import csv
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
CEILING = Path(__file__).with_name("ceiling.csv")
PACKAGES = ("placements", "schedsearch", "runtime", "experiments", "tests")


def lines_of_code(text: str) -> int:
    """Return how many lines of a Python source are neither blank, comment nor docstring."""
    lines = {number for number, line in enumerate(text.splitlines(), 1) if line.strip()[:1] not in ("", "#")}
    blocks = [ast.parse(text)]
    while blocks:
        for node in ast.iter_child_nodes(blocks.pop()):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                lines.difference_update(range(node.lineno, node.end_lineno + 1))
            elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
                blocks.append(node)
    return len(lines)


def sizes() -> dict[str, list[int]]:
    """Return lines and lines of code of each package and, as ``package/room``, of its rooms."""
    lines, code = Counter[str](), Counter[str]()
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        text = path.read_text(encoding="utf-8")
        package, room = path.relative_to(ROOT).parts[:2]
        for name in (package, f"{package}/{room}", *(["source"] if package != "tests" else [])):
            lines[name] += text.count("\n")
            code[name] += lines_of_code(text)
    return {name: [lines[name], code[name]] for name in sorted(lines)}


def main(arguments: list[str]) -> str:
    """Return the sizes as text; or those above the ceiling; or lower the ceiling."""
    now = sizes()
    if not arguments:
        return "".join(f"{name:34} {lines:7} lines {code:7} of code\n" for name, (lines, code) in now.items())
    with CEILING.open(newline="", encoding="utf-8") as file:
        ceiling = {row["of"]: [int(row["lines"]), int(row["code"])] for row in csv.DictReader(file)}
    if arguments == ["--lower"]:
        rows = [[name, *map(min, most, now[name])] for name, most in ceiling.items()]
        with CEILING.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([["of", "lines", "code"], *rows])
        return ""
    above = [name for name, most in ceiling.items() if any(map(int.__gt__, now[name], most))]
    if above:
        rows = (f"{name}: {now[name]} lines and lines of code, more than {ceiling[name]}" for name in above)
        sys.exit("\n".join(rows))
    return ""


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]))
