"""The search as a step of every command: its schedule found, written to files and described."""

from __future__ import annotations

import logging
from pathlib import Path

from hydra.core.hydra_config import HydraConfig

from experiments.config.command import Interrupted
from experiments.config.options import OptionError, planned_by, require
from experiments.config.records import Options
from experiments.steps.placement_building import memory_unit
from experiments.steps.profile_reading import cost_source
from experiments.steps.results import SearchStepResult
from experiments.steps.schedule_finding import find_schedule
from placements import Placement, Profile
from placements.files import write_json, write_text
from placements.placement_file import placement_to_yaml
from placements.planners.galvatron_file import galvatron_to_dict
from runtime.torch_pipelining.csv import NoTorchFormError, stage_of, torch_order
from schedsearch.modulo.result import SearchResult
from schedsearch.picture import picture
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_to_dict

log = logging.getLogger(__name__)


def output_directory() -> Path:
    """Return where Hydra wants the output."""
    return Path(HydraConfig.get().runtime.output_dir)


def search_and_save(
    options: Options, placement: Placement, profile: Profile | None, directory: Path
) -> SearchStepResult:
    """Find the placement's schedule; write ``placement.yaml`` and ``schedule.json``, and what is exported.

    Of a plan, the plan as it is carried out is written too.

    Raises:
        OptionError: The placement does not have the form to export.
        Interrupted: The search was interrupted from the keyboard; both files are written all the same.
    """
    check_search_export(options, placement)
    costs = cost_source(options)
    schedule, result = find_schedule(options, placement)
    log.info("costs: %s", costs)
    write_text(directory / "placement.yaml", placement_to_yaml(placement))
    if planned := planned_by(options):
        write_json(directory / "galvatron_config.json", galvatron_to_dict(planned.plan))
    save_schedule(options, schedule, result, directory)
    log.info("%s", describe(schedule, result))
    log.info("schedule in %s", directory / "schedule.json")
    if result is not None and result.interrupted:
        raise Interrupted(f"interrupted; the best schedule found so far is in {directory / 'schedule.json'}")
    return SearchStepResult(placement, profile, schedule, result, costs, memory_unit(options))


def check_search_export(options: Options, placement: Placement) -> None:
    """Reject before the search a form that is not known, or that the placement does not have.

    Raises:
        OptionError: It is so.
    """
    export = options.search.export
    require(export in (None, "torch"), "search.export", export, "known", "use torch or null")
    if export == "torch":
        try:
            stage_of(placement)
        except NoTorchFormError as error:
            raise OptionError(f"search.export: {error}") from None


def save_schedule(options: Options, schedule: Schedule, result: SearchResult | None, directory: Path) -> None:
    """Write ``schedule.json``, and ``schedule.csv`` if torch's form is asked for too."""
    data = schedule_to_dict(schedule, result) | cost_source(options).to_dict()
    write_json(directory / "schedule.json", data)
    if options.search.export == "torch":
        write_text(directory / "schedule.csv", str(torch_order(schedule)))


def describe(schedule: Schedule, result: SearchResult | None) -> str:
    """Return the schedule as a picture and its figures as a line."""
    facts = [f"makespan {schedule.makespan}"]
    if result is not None and result.repetend is None:
        facts = [
            f"{result.status.value}: makespan {schedule.makespan} (bound {result.makespan_bound})",
            f"{result.seconds:.2f} s",
        ]
    elif result is not None and result.repetend is not None:
        repetend = result.repetend
        facts = [
            f"{result.status.value}: period {repetend.period_per_micro_batch:.10g} per micro-batch "
            f"(bound {result.period_bound:.10g}, steady bubble {repetend.bubble_rate:.1%})",
            f"span {repetend.span} (bound {result.span_bound})",
            f"makespan {schedule.makespan} (bound {result.makespan_bound})",
            f"{result.seconds:.2f} s",
        ]
    name = schedule.placement.name
    grid = picture(schedule, max_columns=120)
    return f"{name}, {schedule.num_micro_batches} micro-batches\n{grid}\n{', '.join(facts)}"
