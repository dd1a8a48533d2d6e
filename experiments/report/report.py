"""The reports of a run, a search and a frontier: what the steps returned, put into words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.report.html_report import Fact, Picture, Section, write_report
from experiments.report.page_data import PageData, Plans
from experiments.run_steps.beside import BesideRow, beside_table, in_words
from experiments.steps.energy_baselines import TITLES, baseline_facts
from experiments.steps.results import EnergyResult, SearchStepResult
from experiments.steps.schedule_selection import describe_selection
from experiments.steps.search_step import micro_batch_word, micro_batches_in_words
from placements import Placement, Profile
from runtime.execution.measurement import Comparison, Measurement
from runtime.profiling.utilisation import UtilisationTable
from schedsearch.figures.comparison import title_of
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.modulo.result import SearchResult, Status
from schedsearch.picture import picture, shortened

FILES = {
    "placement.yaml": "what runs where, with times and memory",
    "profile.csv": "what each block costs at each clock",
    "schedule.json": "the schedule, its repetend and what is proved of it",
    "schedule.csv": "the schedule in the form that torch.distributed.pipelining reads",
    "frontier.json": "every plan of the time-energy frontier, a clock for every block",
    "plan.json": "the chosen plan",
    "frontier.csv": "the time, energy, bound and saving of every plan",
    "savings.csv": "the energy that each method saves, next to stragglers of several slowdowns",
    "relaxed.csv": "the breakpoints of the continuous frontier, a lower bound for every plan",
    "frequencies.csv": "the chosen plan: each device's blocks in their order, with clock and time",
    "periodic.json": "clocks that repeat with the repetend",
    "switched.json": "a plan whose clocks change seldom",
    "periodic_switched.json": "clocks that repeat with the repetend and change seldom",
    "capped.json": "the shortest iteration under the power cap",
    "robust.json": "the plan that keeps the deadline although times vary",
    "shaped.json": "the plan under limits on the shape of power",
    "policy.json": "which plan to run in each interval of the signal",
    "baselines.csv": "the energy of EnvPipe and other baselines, counted in the same way",
    "scripts/device_0.py": "one PyTorch script per device: its blocks and transfers, in order",
    "scripts/job.json": "what the scripts share: model and placement",
    "scripts/programs.json": "the same programs as text, to check without running them",
    "runtime.json": "the options of the run, to resume it",
    "simulated.json": "time and energy of the scripts on simulated GPUs",
    "simulated_trace.json": "the same iteration, planned and simulated, for ui.perfetto.dev",
    "simulated_trace.csv": "how busy each device is in the simulated iteration",
    "trace.json": "the last iterations, planned and measured, for ui.perfetto.dev",
    "trace.csv": "how busy each device was in the last iteration",
    "measurement.json": "times, losses, and the comparison with the unpipelined model",
}
"""What a run leaves in its directory, beside the pictures and the report."""


DESCRIPTIONS = {
    "timeline": "Each device's blocks over time, coloured by clock.",
    "power": "Each device's blocks over time, coloured by power, waiting included.",
    "power_all_maximum": "The same with all clocks at their maximum.",
    "memory": "The memory each device holds over time.",
    "frontier": "Iteration time against energy of every plan, and of the baselines.",
}
"""What each picture shows."""


def save_search_report(found: SearchStepResult, directory: Path) -> Path:
    """Write ``report.html`` of a schedule that was searched or made by hand; return its path."""
    from experiments.report.drawings import page_program  # takes half a second to load

    data = PageData({title_of(found.schedule): found.schedule}, found.memory_unit, progress=found.progress)
    return write_report(
        directory / "report.html",
        _title(found),
        [*_schedule_sections(found), Section("Files", _file_facts(directory))],
        summary=_found_facts(found),
        introduction=_introduction(found),
        program=page_program(data),
    )


def save_frontier_report(found: SearchStepResult, tuned: EnergyResult, directory: Path) -> Path:
    """Write ``report.html`` of a schedule and its frontier; return its path."""
    return _save_with_plans(found, tuned, directory, [], _summary(found, tuned))


def save_report(
    found: SearchStepResult,
    tuned: EnergyResult,
    measurement: Measurement,
    directory: Path,
    utilisation: UtilisationTable | None = None,
    beside: Sequence[BesideRow] = (),
) -> Path:
    """Write ``report.html``, with the last iteration if it was recorded; return its path."""
    run = Section("Run", (*_run_facts(measurement), *_utilisation_facts(utilisation)))
    summary = (*_summary(found, tuned), _equality(measurement))
    return _save_with_plans(found, tuned, directory, [run], summary, beside)


def _save_with_plans(
    found: SearchStepResult,
    tuned: EnergyResult,
    directory: Path,
    more: list[Section],
    summary: tuple[Fact, ...],
    beside: Sequence[BesideRow] = (),
) -> Path:
    from experiments.report.drawings import page_program  # takes half a second to load

    plans = Plans(tuned.profile, tuned.frontier, tuned.plan)
    data = PageData({found.placement.name: found.schedule}, found.memory_unit, plans, found.progress)
    others = {TITLES[name]: some for name, some in tuned.baselines.items() if name != "all_maximum"}
    sections = [*_schedule_sections(found), Section("Energy", _energy_facts(found, tuned)), *more]
    return write_report(
        directory / "report.html",
        _title(found),
        [*_beside_sections(beside), *sections, Section("Files", _file_facts(directory))],
        summary=summary,
        introduction=_introduction(found, beside),
        program=page_program(data, others),
    )


def _title(found: SearchStepResult) -> str:
    number = micro_batches_in_words(found.placement, found.schedule.num_micro_batches)
    return f"{found.placement.name} on {found.placement.num_devices} devices, {number}"


def _introduction(found: SearchStepResult, beside: Sequence[BesideRow] = ()) -> str:
    """Return what was searched, what it brought, and in a second sentence where the costs come from."""
    proved = found.searched.proved if found.searched else "made by hand"
    what = in_words(beside, proved) if beside_table(beside) else f"The schedule: {proved}."
    return f"{what}\n{found.costs.in_sentences}"


def _beside_sections(rows: Sequence[BesideRow]) -> list[Section]:
    """Return the table of what people use, beside the found schedule; none where there is none by hand."""
    table = "\n".join(beside_table(rows))
    return [Section("Beside usual schedules", text=table)] if table else []


def _schedule_sections(found: SearchStepResult) -> list[Section]:
    """Return the timeline, what is known of the schedule, and its memory."""
    progress = "progress" if found.progress else ""
    return [
        Section("Timeline", panel="timeline"),
        Section("Schedule", _schedule_facts(found), text=_text_picture(found), panel=progress),
        Section("Memory", _memory_facts(found)),
    ]


def save_report_of_run(
    placement: Placement,
    measurement: Measurement,
    directory: Path,
    utilisation: UtilisationTable | None = None,
) -> Path:
    """Write ``report.html`` of a run that went on, with the pictures of its directory; return its path."""
    files = {name: directory / f"{name}.png" for name in DESCRIPTIONS}
    pictures = [
        Picture(path.read_bytes(), DESCRIPTIONS[name]) for name, path in files.items() if path.is_file()
    ]
    return write_report(
        directory / "report.html",
        f"{placement.name} on {placement.num_devices} devices, {measurement.num_micro_batches} micro-batches",
        [
            Section("Schedule and energy", (), tuple(pictures)),
            Section("Run", (*_run_facts(measurement), *_utilisation_facts(utilisation))),
            Section("Files", _file_facts(directory)),
        ],
        summary=(
            Fact("First iteration", str(measurement.first_iteration), "of the run that went on"),
            _equality(measurement),
        ),
    )


def _equality(measurement: Measurement) -> Fact:
    comparison = measurement.comparison
    if comparison is None:
        return Fact(
            "Equal to the unpipelined model",
            "not compared",
            f"verify={measurement.verify}: {measurement.verify_reason}",
        )
    which = {"first": "the first iteration", "all": "all iterations"}[measurement.verify]
    return Fact(
        "Equal to the unpipelined model",
        "yes" if comparison.is_equal else "no",
        f"losses, gradients and parameters of {which} within {comparison.tolerance:.2g} "
        f"(verify={measurement.verify}: {measurement.verify_reason})",
        good=comparison.is_equal,
    )


def _file_facts(directory: Path) -> tuple[Fact, ...]:
    return tuple(Fact(file, what, link=file) for file, what in FILES.items() if (directory / file).exists())


def _summary(found: SearchStepResult, tuned: EnergyResult) -> tuple[Fact, ...]:
    label = "Energy saved (placeholder costs)" if found.costs.placeholder else "Energy saved"
    return (*_found_facts(found), _saved(label, tuned))


def _found_facts(found: SearchStepResult) -> tuple[Fact, ...]:
    facts = [
        _makespan(found),
        Fact("Bubble rate", f"{bubble_rate(found.schedule):.1%}", "warmup and cooldown included"),
    ]
    if found.result is not None and found.result.repetend is not None:
        result, repetend = found.result, found.result.repetend
        value = _ticks(found.placement, repetend.period_per_micro_batch)
        is_least = result.status is Status.OPTIMAL
        bound = _ticks(found.placement, result.period_bound)
        note = f"{'proved' if is_least else 'not proved'}: bound {bound}"
        facts.insert(1, Fact(f"Period per {micro_batch_word(found.placement)}", value, note, good=is_least))
    return tuple(facts)


def _schedule_facts(found: SearchStepResult) -> tuple[Fact, ...]:
    placement, schedule, result = found.placement, found.schedule, found.result
    facts = [
        _makespan(found),
        Fact("Bubble rate", f"{bubble_rate(schedule):.2%}", "idle share of makespan times devices"),
    ]
    if result is None:
        return (Fact("Made by", "hand"), *facts)
    least = Fact(
        "Makespan bound", _ticks(placement, result.makespan_bound), "of any schedule, periodic or not"
    )
    proved = Fact("Proved", result.proved, f"{result.queries} queries in {result.seconds:.2f} s")
    if result.is_cut:
        proved = replace(
            proved, note=f"{proved.note}; stopped by a time limit; another run may find a better one"
        )
    if result.repetend is None:
        return (proved, *facts, least)
    repetend = result.repetend
    return (
        proved,
        Fact(
            f"Period per {micro_batch_word(placement)}",
            _ticks(placement, repetend.period_per_micro_batch),
            f"no repetend of {_sizes(result)} has less than {_ticks(placement, result.period_bound)}",
        ),
        Fact("Steady bubble rate", f"{repetend.bubble_rate:.2%}", "of the repetend alone"),
        Fact("Micro-batches in flight", str(repetend.in_flight)),
        Fact("Span", _ticks(placement, repetend.span), f"bound {_ticks(placement, result.span_bound)}"),
        *facts,
        least,
    )


def _makespan(found: SearchStepResult) -> Fact:
    value = _ticks(found.placement, found.schedule.makespan)
    if found.result is None:
        return Fact("Makespan", value)
    is_least = found.schedule.makespan <= found.result.makespan_bound
    bound = _ticks(found.placement, found.result.makespan_bound)
    return Fact(
        "Makespan", value, f"{'proved' if is_least else 'not proved'}: bound {bound}", good=is_least or None
    )


def _memory_facts(found: SearchStepResult) -> tuple[Fact, ...]:
    capacity = found.placement.memory
    return tuple(
        Fact(
            f"Device {device}",
            f"{peak} of {capacity[device]} {found.memory_unit}"
            if capacity
            else f"{peak} {found.memory_unit}",
            f"{peak / capacity[device]:.0%}" if capacity and capacity[device] else "",
        )
        for device, peak in enumerate(peak_memory(found.schedule).tolist())
    )


def _energy_facts(found: SearchStepResult, tuned: EnergyResult) -> tuple[Fact, ...]:
    frontier, plan = tuned.frontier, tuned.plan
    maximum = frontier.all_maximum
    return (
        Fact("Deadline", f"{tuned.deadline_ms:.6g} ms"),
        Fact("Frontier", f"{len(frontier.without_straggler)} plans", tuned.method),
        Fact(
            "Slower plans",
            str(len(frontier.plans) - len(frontier.without_straggler)),
            "not on the frontier: they save energy only next to a straggler",
        ),
        Fact("Chosen plan", f"{plan.time_ms:.6g} ms, {plan.energy_mj / 1e3:.6g} J"),
        Fact("All clocks at maximum", f"{maximum.time_ms:.6g} ms, {maximum.energy_mj / 1e3:.6g} J"),
        _saved("Saved", tuned),
        *(() if found.selection is None else (Fact("Order", describe_selection(found.selection)),)),
        Fact("Above the lower bound", f"{plan.gap:.3%}", "the most that better clocks could save"),
        Fact(
            "Least energy",
            f"{frontier.min_energy.time_ms:.6g} ms, {frontier.min_energy.energy_mj / 1e3:.6g} J",
        ),
        *(Fact(*fact) for fact in (*baseline_facts(found.schedule, tuned), *tuned.constrained)),
        Fact(
            "Blocking power", _blocking_power(tuned.profile), f"of one {tuned.profile.device} while it waits"
        ),
        *(
            (Fact("GPUs", str(frontier.num_gpus), "of all devices; energies count all of them"),)
            if frontier.num_gpus
            else ()
        ),
    )


def _saved(label: str, tuned: EnergyResult) -> Fact:
    saving = tuned.frontier.saving(tuned.plan, tuned.deadline_ms)
    against = tuned.baseline_in_words(tuned.plan)
    return Fact(label, f"{saving:.2%}", f"compared with {against}; {tuned.saved_joules(tuned.plan)}")


def _blocking_power(profile: Profile) -> str:
    if not profile.waits_by_clock:
        return f"{profile.min_blocking_power_w:g} W"
    clocks = {point.clock_mhz for points in profile.points.values() for point in points}
    most_w = max(profile.blocking_w(clock) for clock in clocks)
    return f"{profile.min_blocking_power_w:g} to {most_w:g} W by clock"


def _run_facts(measurement: Measurement) -> tuple[Fact, ...]:
    losses = [sum(each) / len(each) for each in measurement.losses]
    return (
        Fact("Backend", measurement.backend, ", ".join(sorted(set(measurement.device_names)))),
        Fact("Loss", ", ".join(f"{loss:.4f}" for loss in losses), "mean of the micro-batches, by iteration"),
        Fact("Iteration", ", ".join(f"{time:.1f}" for time in measurement.time_ms) + " ms"),
        *_process_memory(measurement),
        *_comparison_facts(measurement.comparison),
        Fact("Clocks", measurement.clock_backend),
    )


def _process_memory(measurement: Measurement) -> tuple[Fact, ...]:
    pairs = zip(measurement.peak_rss_mib, measurement.rss_after_import_mib, strict=True)
    own = ", ".join(f"{peak - before:.0f}" for peak, before in pairs)
    return (Fact("Memory", f"{own} MiB", "peak of each process, without what it had after its imports"),)


def _comparison_facts(comparison: Comparison | None) -> tuple[Fact, ...]:
    if comparison is None:
        return ()
    return (
        Fact(
            "Largest loss error",
            f"{comparison.max_loss_error:.1e}",
            "relative, against the unpipelined model",
        ),
        Fact("Largest gradient error", f"{comparison.max_gradient_error:.1e}", "relative"),
        Fact("Largest parameter error", f"{comparison.max_parameter_error:.1e}", "after the last step"),
        Fact(
            "Bitwise equal",
            "yes" if comparison.bitwise_equal else "no",
            "to the same model in one process, in the same order",
            good=comparison.bitwise_equal,
        ),
    )


def _utilisation_facts(utilisation: UtilisationTable | None) -> tuple[Fact, ...]:
    if utilisation is None:
        return ()
    planned = "" if utilisation.planned_ms is None else f"planned: {utilisation.planned_ms:.6g} ms"
    return (
        Fact("Last iteration", f"{utilisation.measured_ms:.6g} ms", planned),
        Fact(
            "Without transfer time",
            f"{utilisation.zero_comm_ms:.6g} ms",
            "of the same measured block times",
        ),
        *(
            Fact(
                f"Device {device}",
                f"computes {shares.measured:.1%}, waits {shares.waiting:.1%}",
                "" if shares.planned is None else f"planned: {shares.planned:.1%}",
            )
            for device, shares in enumerate(utilisation.devices)
        ),
    )


def _text_picture(found: SearchStepResult) -> str:
    return "\n".join(shortened(picture(found.schedule, max_columns=120).splitlines()))


def _ticks(placement: Placement, ticks: float) -> str:
    return f"{ticks * placement.tick_ms:.6g} ms"


def _sizes(result: SearchResult) -> str:
    """Return the numbers of micro-batches per repetend that the bound holds for, in words."""
    if result.period_bound <= result.universal_bound:
        return "any number of micro-batches"
    sizes = result.sizes
    if len(sizes) > 1:
        return f"{sizes[0]} to {sizes[-1]} micro-batches"
    return f"{sizes[0]} micro-batch{'es' if sizes[0] != 1 else ''}"
