"""The task of `experiments.reproduce`: items of papers made again, with the paper's values beside ours."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from experiments.config.command import Interrupted
from experiments.config.option_list import kinds_of
from experiments.config.options import OptionError, read_record, require
from experiments.config.run_record import given_names, output_directory
from experiments.reproduce.catalogue import ITEMS, origin_of
from experiments.reproduce.item import Item
from experiments.reproduce.item_files import described, write_item
from experiments.reproduce.options import ALL, ReproduceAllOptions, ReproduceOptions
from experiments.reproduce.recorded import record
from experiments.reproduce.results_page import PAGE, results_page
from experiments.reproduce.run_item import MadeItem, run_item
from placements.forms.texts import write_text
from schedsearch.core.progress import StepBar

log = logging.getLogger(__name__)

_COMMON = tuple(ReproduceOptions.__dataclass_fields__)


def task(config: DictConfig) -> Mapping[str, float]:
    """Make an item, or all of them.

    Raises:
        OptionError: No item is chosen, or an option is wrong.
        ValueError: An input is wrong.
        Interrupted: From the keyboard; what was made is kept, and the same command goes on there.
    """
    name = HydraConfig.get().runtime.choices.get("experiment")
    if name is None:
        known = ", ".join(sorted(kinds_of("reproduce", "experiment")))
        raise OptionError(f"experiment: has no value; give one of {known}")
    others = [str(name) for name in config if name not in _COMMON]
    common = read_record(config, ReproduceOptions, others)
    wanted = "possible without a checkout, whose page of results it writes"
    require(not common.record or PAGE.parent.exists(), "record", common.record, wanted, "leave it out")
    if name == ALL:
        return _make_all(common, read_record(config, ReproduceAllOptions, _COMMON).data)
    item = ITEMS[name]
    options = _sized(item, common.size)
    given = read_record(config, item.options, _COMMON)
    names = set(given_names()) & set(item.options.__dataclass_fields__)
    options = replace(options, **{name: getattr(given, name) for name in names})
    try:
        item.cases(options)
    except ValueError as error:
        lacks_data = item.data and item.needs_data and options.data is None
        raise type(error)(f"{error}; {origin_of(item)}") if lacks_data else error from None
    return _figures([_make(item, options, common, output_directory())])


def _sized(item: Item, size: str) -> Any:
    return item.small if size == "small" else item.options()


def _make_all(common: ReproduceOptions, data: str | None) -> Mapping[str, float]:
    """Make every item in a folder of its own; one whose input is missing or wrong is left out and named."""
    left_out, every = list[str](), list[MadeItem]()
    num_wrong = 0
    for number, item in enumerate(ITEMS.values(), 1):
        options = _sized(item, common.size)
        path = None if data is None else Path(data) / item.data
        if item.data and path and path.exists():
            options = replace(options, data=str(path))
        elif item.data and item.needs_data:
            needed = f"{path}, which is not there" if path else f"{item.data}; give the folder that it is in"
            left_out.append(f"{item.name}: needs {needed}, as in data=FOLDER; {origin_of(item)}")
            continue
        log.info("\n%d of %d: %s", number, len(ITEMS), item.name)
        try:
            every.append(_make(item, options, common, output_directory() / item.name))
        except ValueError as error:
            left_out.append(f"{item.name}: {error}")
            num_wrong += 1
    log.info("\n%d of %d items are made", len(every), len(ITEMS))
    for line in left_out:
        log.warning("left out: %s", line)
    counts = {"items": len(every), "items_left_out": len(left_out), "items_wrong": num_wrong}
    return counts | (_figures(every) if every else {})


def _make(item: Item, options: Any, common: ReproduceOptions, folder: Path) -> MadeItem:
    """Make an item in a folder, write its files, print its text, and keep it with ``record=true``."""
    try:
        with StepBar(item.name) as bar:
            made = run_item(item, options, folder, bar, common.num_processes)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; the cases of {item.name} that were made are in {folder}, "
            f"and the same command goes on there with hydra.run.dir={output_directory()}"
        ) from None
    paths = write_item(made, common.size, folder)
    log.info("%s\n%s in %s", described(made), ", ".join(path.name for path in paths), folder)
    if common.record:
        log.info("kept in %s", record(item.name, common.size, folder))
        write_text(PAGE, results_page(ITEMS.values()))
    return made


def _figures(every: list[MadeItem]) -> dict[str, float]:
    trends = [trend for made in every for trend in made.trends]
    counts = [each for made in every for each in made.item.as_claimed(made.rows).values()]
    return {
        "rows": sum(len(made.rows) for made in every),
        "rows_compared": sum(whole for _, whole in counts),
        "rows_as_claimed": sum(good for good, _ in counts),
        "trends": len(trends),
        "trends_that_hold": sum(trend.holds for trend in trends),
        "cpu_s": round(sum(made.cpu_s for made in every), 2),
    }
