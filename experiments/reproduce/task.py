"""The task of `experiments.reproduce`: items of papers made again, with the paper's values beside ours."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from experiments.config.command import Interrupted
from experiments.config.option_list import kinds_of
from experiments.config.options import OptionError, read_record, require, require_known, require_least
from experiments.config.run_record import given_names, output_directory
from experiments.reproduce.catalogue import ITEMS
from experiments.reproduce.item import Item
from experiments.reproduce.item_files import described, write_item, write_rows
from experiments.reproduce.options import ALL, ReproduceAllOptions, ReproduceOptions
from experiments.reproduce.origins import origins_of
from experiments.reproduce.recorded import record
from experiments.reproduce.results_page import PAGE, results_page
from experiments.reproduce.run_item import MadeItem, run_item
from placements.forms.texts import write_text
from schedsearch.core.progress import StepBar

log = logging.getLogger(__name__)

SIZES = ("full", "small")

_COMMON = tuple(ReproduceOptions.__dataclass_fields__)


def task(config: DictConfig) -> Mapping[str, float]:
    """Make an item, or all of them.

    Raises:
        OptionError: No item is chosen, or an option is wrong.
        ValueError: An input is wrong.
        Interrupted: From the keyboard; what was made is kept, and the same command goes on there.
    """
    name = HydraConfig.get().runtime.choices.get("experiment")
    known = ", ".join(sorted(kinds_of("reproduce", "experiment")))
    if name is None:
        raise OptionError(f"experiment: has no value; give one of {known}")
    common = _common_options(config)
    require_known("size", common.size, SIZES)
    require_least("num_processes", common.num_processes, 1)
    wanted = "possible without a checkout, whose page of results it writes"
    require(not common.record or PAGE.parent.exists(), "record", common.record, wanted, "leave it out")
    if name == ALL:
        return _make_all(common, read_record(config, ReproduceAllOptions, _COMMON))
    require(name in ITEMS, "experiment", name, "known", f"the options are {known}")
    item = ITEMS[name]
    options = _options(item, config, common.size)
    try:
        item.cases(options)
    except ValueError as error:
        missing = [name for name in item.inputs if getattr(options, name) is None]
        raise type(error)(f"{error}; {origins_of(item)}") if missing else error from None
    made = _make(item, options, common, output_directory())
    return _figures(made)


def _common_options(config: DictConfig) -> ReproduceOptions:
    others = [str(name) for name in config if name not in _COMMON]
    return read_record(config, ReproduceOptions, others)


def _options(item: Item, config: DictConfig, size: str) -> Any:
    """Return an item's options; with ``size=small`` those that are not given are the small version's."""
    options = read_record(config, item.options, _COMMON)
    if size == "full":
        return options
    names = set(given_names()) & set(item.options.__dataclass_fields__)
    return replace(item.small, **{name: getattr(options, name) for name in names})


def _make_all(common: ReproduceOptions, options: ReproduceAllOptions) -> Mapping[str, float]:
    """Make every item in a folder of its own; one whose input is missing or wrong is left out and named."""
    left_out, failed = list[str](), 0
    every = list[MadeItem]()
    for number, item in enumerate(ITEMS.values(), 1):
        missing, own = _with_inputs(item, item.small if common.size == "small" else item.options(), options)
        if missing:
            left_out.append(f"{item.name}: {missing}")
            continue
        log.info("\n%d of %d: %s", number, len(ITEMS), item.name)
        try:
            every.append(_make(item, own, common, output_directory() / item.name))
        except ValueError as error:
            left_out.append(f"{item.name}: {error}")
            failed += 1
    log.info("\n%d of %d items are made", len(every), len(ITEMS))
    for line in left_out:
        log.warning("left out: %s", line)
    found = [_figures(made) for made in every]
    totals = {name: sum(each[name] for each in found) for name in found[0]} if found else {}
    return {"items": len(every), "items_left_out": len(left_out), "items_wrong": failed} | totals


def _with_inputs(item: Item, own: Any, options: ReproduceAllOptions) -> tuple[str, Any]:
    """Return what an item lacks, empty if nothing, and its options with the paths of its inputs."""
    for name, place in item.inputs.items():
        if options.data is None:
            wanted = "give the folder that it is in, as in data=FOLDER"
            return f"needs {place}; {wanted}; {origins_of(item)}", own
        path = Path(options.data) / place
        if not path.exists():
            return f"needs {path}, which is not there; {origins_of(item)}", own
        own = replace(own, **{name: str(path)})
    if options.data is not None:
        for name, place in item.optional_inputs.items():
            if (path := Path(options.data) / place).exists():
                own = replace(own, **{name: str(path)})
    return "", own


def _make(item: Item, options: Any, common: ReproduceOptions, folder: Path) -> MadeItem:
    """Make an item in a folder, write its files, say what was found, and keep it if that is asked for."""
    try:
        with StepBar(item.name) as bar:
            made = run_item(
                item,
                options,
                folder,
                bar,
                after_case=partial(_write_rows, folder),
                num_processes=common.num_processes,
            )
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; the cases of {item.name} that were made are in {folder}, "
            f"and the same command goes on there with hydra.run.dir={output_directory()}"
        ) from None
    paths = write_item(made, common.size, folder)
    log.info("%s\n%s in %s", described(made), ", ".join(path.name for path in paths), folder)
    if common.record:
        kept = record(item.name, common.size, folder)
        log.info("kept in %s", kept)
        write_text(PAGE, results_page(ITEMS.values()))
    return made


def _write_rows(folder: Path, so_far: MadeItem) -> None:
    write_rows(so_far, folder)


def _figures(made: MadeItem) -> dict[str, float]:
    trends = made.trends
    return {
        "rows": len(made.rows),
        "rows_compared": len(made.compared),
        "rows_as_claimed": len(made.compared) - len(made.not_as_claimed),
        "trends": len(trends),
        "trends_that_hold": sum(trend.holds for trend in trends),
        "cpu_s": round(made.cpu_s, 2),
    }
