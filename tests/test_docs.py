"""README and docs: short, whole, and true of the commands. Their Python blocks are doctests of their own."""

from __future__ import annotations

import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from places import ROOT, SHARED_DATA

from experiments.config.commands import commands as declared
from experiments.config.commands import tell_hydra
from experiments.config.composing import name_files
from experiments.config.option_list import CONFIG, kinds_of
from experiments.search.kinds.kinds import PLACEMENTS
from placements.placement_file import placement_from_dict, read_placement

sys.path.append(str(ROOT / "docs"))
import is_it_right
from field_tables import with_tables
from options_table import tables

DOCS = ROOT / "docs"
PAGES = sorted(set(DOCS.rglob("*.md")) - set(DOCS.glob("gallery/made/*.md")))
TEXTS = [*PAGES, *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG"))]
MOST_LINES = 200

FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
TOCTREE = re.compile(r"^```\{toctree\}\n((?:.*\n)*?)^```$", re.MULTILINE)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", TEXTS, ids=name_of)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if re.match(r"\w+:|made/", link):  # what is made when the site is built
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


def commands(page: Path) -> list[list[str]]:
    """Return what the shell blocks and the tables of a page call, as words from the command or module on."""
    text = page.read_text(encoding="utf-8")
    blocks = [body for kind, body in FENCE.findall(text) if kind == "sh"]
    cells = re.findall(r"`((?:python|torchrun|schedsearch) [^`]*)`", FENCE.sub("", text))
    lines = "\n".join([*blocks, *cells]).replace("\\\n", " ").splitlines()
    called = r"(?:-m (?=experiments\.|runtime\.)|(?:^|/| -m |\bexec )schedsearch (?=[a-z]))(.*)"
    found = re.findall(called, "\n".join(lines), re.MULTILINE)
    # A line within the quotes of another one ends with a quote of its own.
    whole = [line.rsplit("'", 1)[0] if line.count("'") % 2 else line for line in found]
    return [shlex.split(line, comments=True) for line in whole]


CALLING = [page for page in TEXTS if page.stem != "CHANGELOG"]  # which tells of commands that are gone too
COMMANDS = {" ".join(words): words for page in CALLING for words in commands(page)}
OF_HYDRA = {path.stem for path in (DOCS / "commands").glob("*.md")} - {"index"}


def first_job(command: str, overrides: list[str]) -> list[str]:
    """Return the overrides of a command, of a sweep those of its first job."""
    overrides = name_files(command, overrides)
    parsed = OverridesParser.create().parse_overrides([each for each in overrides if each != "-m"])
    if "-m" in overrides:
        return list(BasicSweeper.split_arguments(parsed, max_batch_size=None)[0][0])
    return overrides


def composed(command: str, overrides: list[str]) -> DictConfig:
    tell_hydra(command)
    with initialize_config_dir(str(CONFIG), version_base="1.3"):
        return compose(command, overrides, return_hydra_config=True)


def options_by_choices() -> dict[tuple[str, ...], list[str]]:
    """Return the options of all pages by the command and what else decides which options there are."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, *overrides in COMMANDS.values():
        command = name.removeprefix("experiments.")
        if command in OF_HYDRA:
            given = first_job(command, overrides)
            choices = sorted(each for each in given if "." not in each.partition("=")[0])
            found.setdefault((command, *choices), []).extend(each for each in given if each not in choices)
    return found


OPTIONS = options_by_choices()


@pytest.mark.parametrize("choices", OPTIONS, ids=" ".join)
def test_commands_have_the_options(choices: tuple[str, ...]) -> None:
    command, *chosen = choices
    composed(command, [*chosen, *OPTIONS[choices]])


def test_commands_exist() -> None:
    names = {words[0]: words[0].removeprefix("experiments.") for words in COMMANDS.values()}
    assert set(names.values()) >= OF_HYDRA
    for name, command in names.items():
        is_module = "." in name and find_spec(name) is not None
        assert is_module or command in (*declared(), "collect"), f"there is no {command}"


@pytest.mark.parametrize("command", sorted(OF_HYDRA))
def test_the_tables_of_a_page_have_options_of_its_command(command: str) -> None:
    text = (DOCS / "commands" / f"{command}.md").read_text(encoding="utf-8")
    ((of, *groups),) = (match.split() for match in re.findall(r"^```\{options\} (.*)$", text, re.MULTILINE))
    assert of == command
    found = re.findall(r"^\| `(.*?)` \| `(.*?)` \|", "\n".join(tables(command, groups)), re.MULTILINE)
    config = composed(command, [])
    assert found
    for name, default in found:
        of_item = command == "reproduce" and name not in config  # see test_option_list
        if kinds_of(command, name):
            assert default in kinds_of(command, name)
        elif not name.startswith("placement.") and default != "???" and not of_item:
            assert OmegaConf.select(config, name) == OmegaConf.create(f"value: {default}").value, name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tables_of_fields_are_as_the_fields_are_declared(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert with_tables(text) == text, "write the tables anew with python docs/field_tables.py"


def test_the_page_of_measured_runs_is_as_they_are_predicted() -> None:
    folder = SHARED_DATA / "measured_runs"
    if not folder.is_dir():
        pytest.skip("needs ../shared/data/measured_runs")
    text = is_it_right.PAGE.read_text(encoding="utf-8")
    remedy = "write the tables anew with python docs/is_it_right.py FOLDER"
    assert is_it_right.with_tables(text, folder) == text, remedy


def test_every_placement_has_a_table() -> None:
    text = "\n".join(tables("search", ["placement"]))
    for kind, options in PLACEMENTS.items():
        assert f"**`placement={kind}`**\n| option" in text
        for option in options:
            assert f"| `placement.{option.name}` |" in text


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
