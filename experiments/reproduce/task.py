"""The task of `experiments.reproduce`: items of papers made again, with the paper's values beside ours."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from experiments.config.option_list import kinds_of
from experiments.config.options import OptionError, read_record, require
from experiments.config.run_record import given_names, output_directory
from experiments.report.result import Result
from experiments.reproduce.catalogue import ITEMS
from experiments.reproduce.item import Item
from experiments.reproduce.item_result import item_result, manifest
from experiments.reproduce.options import ALL, ReproduceAllOptions, ReproduceOptions
from experiments.reproduce.recorded import record
from experiments.reproduce.results_page import PAGE, results_page
from experiments.reproduce.run_item import run_item
from placements.forms.texts import write_text
from schedsearch.core.progress import StepBar

log = logging.getLogger(__name__)

_COMMON = tuple(ReproduceOptions.__dataclass_fields__)


def task(config: DictConfig) -> Result:
    """Make an item, or all of them.

    Raises:
        OptionError: No item is chosen, or an option is wrong.
        ValueError: An input is wrong.
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
        return _all_made(common, read_record(config, ReproduceAllOptions, _COMMON).data)
    item = ITEMS[name]
    given = read_record(config, item.options, _COMMON)
    names = set(given_names()) & set(item.options.__dataclass_fields__)
    options = replace(_sized(item, common.size), **{name: getattr(given, name) for name in names})
    try:
        item.cases(options)
    except ValueError as error:
        lacks_data = item.data and item.needs_data and options.data is None
        raise type(error)(f"{error}; {item.origin}") if lacks_data else error from None
    return _made(item, options, common, output_directory())


def _sized(item: Item, size: str) -> Any:
    return item.small if size == "small" else item.options()


def _made(item: Item, options: Any, common: ReproduceOptions, folder: Path) -> Result:
    """Make an item in a folder, and keep it with ``record=true``."""
    with StepBar(item.name) as bar:
        made = run_item(item, options, folder, bar)
    if common.record and made.is_whole:
        record(item.name, common.size, manifest(made, common.size), made.rows)
        write_text(PAGE, results_page(ITEMS.values()))
        log.info("kept in experiments/reproduce/results and %s", PAGE.name)
    return item_result(made, common.size)


def _all_made(common: ReproduceOptions, data: str | None) -> Result:
    """Make every item in a folder of its own; one whose input is missing or wrong is left out and named."""
    left_out, made, num_wrong = list[str](), list[Mapping[str, Any]](), 0
    for number, item in enumerate(ITEMS.values(), 1):
        options, folder = _sized(item, common.size), output_directory() / item.name
        path = None if data is None else Path(data) / item.data
        if item.data and path and path.exists():
            options = replace(options, data=str(path))
        elif item.data and item.needs_data:
            needed = f"{path}, which is not there" if path else f"{item.data}; give the folder that it is in"
            left_out.append(f"{item.name}: needs {needed}, as in data=FOLDER; {item.origin}")
            continue
        log.info("\n%d of %d: %s", number, len(ITEMS), item.name)
        try:
            result = _made(item, options, common, folder)
        except ValueError as error:
            left_out.append(f"{item.name}: {error}")
            num_wrong += 1
            continue
        result.write(folder)
        result.show(folder)
        if result.interrupted:
            return Result(interrupted=result.interrupted)
        made.append(result.figures)
    counts = {"items": len(made), "items_left_out": len(left_out), "items_wrong": num_wrong}
    sums = {name: round(sum(figures[name] for figures in made), 2) for name in (made[0] if made else ())}
    count = f"\n{len(made)} of {len(ITEMS)} items are made"
    return Result(figures=counts | sums, sentences=[count, *(f"left out: {line}" for line in left_out)])
