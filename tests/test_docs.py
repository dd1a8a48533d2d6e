"""README and docs: short, whole, and true of the commands. Their Python blocks are doctests of their own."""

from __future__ import annotations

import copy
import json
import re
import shlex
import shutil
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from places import ROOT, SHARED_DATA

from experiments.config.declaring import command_of, tell_hydra
from experiments.config.option_list import CONFIG, chosen_items, kinds_of
from experiments.config.options import read_record
from experiments.config.rooms import names
from experiments.config.words import for_hydra
from experiments.reproduce.catalogue import ITEMS
from experiments.reproduce.options import ReproduceAllOptions, ReproduceOptions
from experiments.search.kinds.kinds import PLACEMENTS
from experiments.search.options import read_options
from placements.placement_file import placement_from_dict, read_placement

sys.path.append(str(ROOT / "docs"))
import front_page
import is_it_right
import layout_pages
from field_tables import with_tables
from options_table import tables

DOCS = ROOT / "docs"
PAGES = sorted(set(DOCS.rglob("*.md")) - set(DOCS.glob("gallery/made/*.md")))
TEXTS = [*PAGES, *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG"))]
MAX_WORDS = {"README": 1100, "all pages": 55_000, "tried": 1500}

FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
TOCTREE = re.compile(r"^```\{toctree\}\n((?:.*\n)*?)^```$", re.MULTILINE)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def num_words(*pages: Path) -> int:
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def test_pages_are_short() -> None:
    pages = {"README": [ROOT / "README.md"], "all pages": PAGES, "tried": [DOCS / "tried.md"]}
    assert [name for name, most in MAX_WORDS.items() if num_words(*pages[name]) > most] == []


def test_figures_of_the_readme_are_as_recorded() -> None:
    """Figures with a unit stand only in the part that is written from the record."""
    readme = front_page.README.read_text(encoding="utf-8")
    record, board = (json.loads(path.read_text("utf-8")) for path in (front_page.RECORD, front_page.BOARD))
    remedy = "write it anew with python docs/front_page.py"
    assert front_page.with_figures(readme, record, board) == readme, remedy
    before, rest = readme.split(front_page.BEGIN)
    others = re.sub(r"\([^)]*\)", "", before + rest.split(front_page.END)[1])
    assert not re.findall(r"\d[\d.,]* ?(?:ms|s|%|J|W|GiB|MiB|times)\b", others)


@pytest.mark.parametrize("name", front_page.QUESTIONS)
def test_schedules_by_hand_are_as_the_readme_has_them(name: str) -> None:
    case = json.loads(front_page.RECORD.read_text(encoding="utf-8"))["cases"][name]
    best = front_page.best_by_hand(front_page.QUESTIONS[name])
    assert (best.schedule, best.makespan_ms) == (case["by_hand"], pytest.approx(case["by_hand_ms"]))


@pytest.mark.parametrize("page", TEXTS, ids=name_of)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if re.match(r"\w+:|made/|\.\./\.\./actions/", link):  # pages of the site, or of the host
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.is_file(), f"{link}: there is no such file"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


def test_every_page_is_in_a_toctree() -> None:
    listed = {
        (page.parent / entry.strip()).with_suffix(".md").resolve()
        for page in PAGES
        for block in TOCTREE.findall(page.read_text(encoding="utf-8"))
        for entry in block.splitlines()
        if not entry.startswith(":")
    }
    assert set(PAGES) - listed == {DOCS / "index.md"}


def commands(page: Path, cells: bool = True) -> list[list[str]]:
    """Return what the shell blocks, and the code in the text, of a page call: words from the command on."""
    text = page.read_text(encoding="utf-8")
    blocks = [body for kind, body in FENCE.findall(text) if kind == "sh"]
    inline = re.findall(r"`((?:python|torchrun|schedsearch) [^`]*)`", FENCE.sub("", text)) if cells else []
    lines = "\n".join([*blocks, *inline]).replace("\\\n", " ").splitlines()
    called = r"(?:-m (?=experiments\.|runtime\.)|(?:^|/| -m |\bexec )schedsearch (?=[a-z]))(.*)"
    calls = re.findall(called, "\n".join(lines), re.MULTILINE)
    # A line within the quotes of another one ends with a quote of its own.
    whole = [line.rsplit("'", 1)[0] if line.count("'") % 2 else line for line in calls]
    return [shlex.split(line, comments=True) for line in whole]


CALLING = [page for page in TEXTS if page.stem != "CHANGELOG"]  # which tells of commands that are gone too
CALLING += [
    path for folder in ("examples", "notebooks") for path in (ROOT / folder).iterdir() if path.is_file()
]
COMMANDS = {" ".join(words): words for page in CALLING for words in commands(page)}
WHOLE = {" ".join(words) for page in CALLING for words in commands(page, cells=False)}
OF_HYDRA = {path.stem for path in (DOCS / "commands").glob("*.md")} - {"index"}


def of_hydra(line: str) -> bool:
    return COMMANDS[line][0].removeprefix("experiments.") in OF_HYDRA


@cache
def composed(command: str, choices: tuple[str, ...]) -> DictConfig:
    tell_hydra(command, chosen_items(command, choices))
    with initialize_config_dir(str(CONFIG), version_base="1.3"):
        return compose(command, [*choices])


def typed(command: str, options: list[str]) -> object:
    """Return the options of a command line as its task reads them, in a sweep of its first point."""
    parser, words = OverridesParser.create(), for_hydra(command, options)
    parsed = parser.parse_overrides([word for word in words if word != "-m"])
    if "-m" in words:
        parsed = parser.parse_overrides(list(BasicSweeper.split_arguments(parsed, None)[0][0]))
    values = {override.key_or_group: override for override in parsed}
    choices = [name for name in values if kinds_of(command, name) - {"default"}]
    config = copy.deepcopy(composed(command, tuple(str(values.pop(name).input_line) for name in choices)))
    for name, override in values.items():
        if not name.startswith("hydra"):
            OmegaConf.update(config, name, override.value(), force_add=False)
    record = command_of(command).record
    if command == "reproduce":
        item = next(iter(chosen_items(command, words)), "all")
        record = ReproduceAllOptions if item == "all" else ITEMS[item].options
        return read_record(config, record, tuple(ReproduceOptions.__dataclass_fields__))
    return read_options(config, record)


@pytest.mark.parametrize("line", [line for line in COMMANDS if of_hydra(line)])
def test_a_command_line_of_the_docs_runs_as_it_is_written(line: str) -> None:
    """All but its work: a shell's words, Hydra's syntax, the options and their types; examples are there."""
    name, *options = COMMANDS[line]
    paths = [path for path in re.findall(r"[\w./-]+", line) if re.match(r"(examples|\.\.)/", path)]
    assert all((ROOT / path).exists() and ".." not in path for path in paths)
    try:
        options_read = typed(name.removeprefix("experiments."), options)
        pattern = getattr(getattr(options_read, "profiling", None), "pattern", None)
        assert pattern is None or re.match(pattern, "forward 3")
    except ValueError as error:  # a file of the reader's own, or a part of a command line in a sentence
        missing = "No such file" in str(error) or "is not there" in str(error)
        assert missing or ("has no value" in str(error) and line not in WHOLE), error


def test_commands_exist() -> None:
    named = {words[0]: words[0].removeprefix("experiments.") for words in COMMANDS.values()}
    assert set(named.values()) >= OF_HYDRA
    for name, command in named.items():
        is_module = "." in name and find_spec(name) is not None
        assert is_module or command in (*names(), "collect"), f"there is no {command}"


@pytest.mark.parametrize("command", sorted(OF_HYDRA))
def test_the_tables_of_a_page_have_options_of_its_command(command: str) -> None:
    text = (DOCS / "commands" / f"{command}.md").read_text(encoding="utf-8")
    ((of, *groups),) = (match.split() for match in re.findall(r"^```\{options\} (.*)$", text, re.MULTILINE))
    assert of == command
    rows = re.findall(r"^\| `(.*?)` \| `(.*?)` \|", "\n".join(tables(command, groups)), re.MULTILINE)
    config = composed(command, ())
    assert rows
    for name, default in rows:
        of_item = command == "reproduce" and name not in config  # see test_option_list
        if kinds_of(command, name):
            assert default in kinds_of(command, name)
        elif not name.startswith(("placement.", "planner.")) and default != "???" and not of_item:
            assert OmegaConf.select(config, name) == OmegaConf.create(f"value: {default}").value, name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tables_of_fields_are_as_the_fields_are_declared(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert with_tables(text) == text, "write the tables anew with python docs/field_tables.py"
    for table in re.findall(r"^```\{table-of\} (.*)$", text, re.MULTILINE):
        assert "\n| `" in with_tables(f"<!-- {table} -->\n\n"), f"{table}: there is no such table"


def test_the_page_of_measured_runs_is_as_recorded() -> None:
    page = is_it_right.PAGE.read_text(encoding="utf-8")
    assert is_it_right.with_table(page) == page, "write it anew with python docs/is_it_right.py"


def test_the_recorded_board_is_as_runs_are_predicted(tmp_path: Path) -> None:
    """In two small tables; of the others the record is as old as it is."""
    folder = SHARED_DATA / "measured_runs"
    if not folder.is_dir():
        pytest.skip("needs ../shared/data/measured_runs")
    for name in ("b200_layers.csv", "b200_bf16.json", "models.json", "mlperf.csv"):
        shutil.copy(folder / name, tmp_path)
    recorded = {row["table"]: row for row in is_it_right.recorded() if row["folder"] == folder.name}
    for row in is_it_right.folder_rows(tmp_path):
        remedy = "record it anew with python docs/is_it_right.py FOLDER FOLDER:RUN"
        wanted = recorded[row["table"]] | {"folder": tmp_path.name}
        assert row == pytest.approx(wanted, abs=0.01), remedy


def test_layouts_are_as_they_are_recorded() -> None:
    data = json.loads(layout_pages.DATA.read_text(encoding="utf-8"))
    page = layout_pages.PAGE.read_text(encoding="utf-8")
    remedy = "write it anew with python docs/layout_pages.py"
    assert layout_pages.with_table(page, data) == page, remedy
    for row in (data["layouts"][0], data["layouts"][-2]):
        assert layout_pages.found_layout(row) == row, remedy


def test_every_placement_has_a_table() -> None:
    text = "\n".join(tables("search", ["placement"]))
    for kind, options in PLACEMENTS.items():
        assert f"**`placement={kind}`**\n| option" in text
        assert all(f"| `placement.{option.name}` |" in text for option in options)


def test_the_file_of_modes_on_its_page_is_that_of_the_examples() -> None:
    page = (DOCS / "concepts" / "modes_and_streams.md").read_text(encoding="utf-8")
    files = [body for kind, body in FENCE.findall(page) if kind == "yaml"]
    assert files[0] == (ROOT / "examples" / "recompute.yaml").read_text(encoding="utf-8")


def test_the_file_with_hosts_is_read() -> None:
    page = (DOCS / "files.md").read_text(encoding="utf-8")
    (file,) = [body for kind, body in FENCE.findall(page) if kind == "yaml" and "host_memory" in body]
    placement = placement_from_dict(yaml.safe_load(file))
    assert placement.has_streams and placement.decisions and placement.slowdown
    assert read_placement(ROOT / "examples" / "communication.yaml").slowdown
