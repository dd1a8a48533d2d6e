"""The report of a run: its schedule, its frontier, and the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.frontier.report import save_with_plans, summary_facts
from experiments.frontier.results import EnergyResult
from experiments.report.html_report import Fact, Picture, Section, write_report
from experiments.run.beside import BesideRow, beside_table, in_words
from experiments.search.report import file_facts
from experiments.search.results import SearchStepResult
from placements import Placement
from runtime.execution.measurement import Measurement, ReferenceComparison
from runtime.profiling.utilisation import UtilisationTable

DESCRIPTIONS = {
    "timeline": "Each device's blocks over time, coloured by clock.",
    "power": "Each device's blocks over time, coloured by power, waiting included.",
    "power_all_maximum": "The same with all clocks at their maximum.",
    "memory": "The memory each device holds over time.",
    "frontier": "Iteration time against energy of every plan, and of the baselines.",
}
"""What each picture shows."""


def save_report(
    found: SearchStepResult,
    tuned: EnergyResult | None,
    measurement: Measurement,
    directory: Path,
    utilisation: UtilisationTable | None = None,
    beside: Sequence[BesideRow] = (),
    requests: Sequence[str] = (),
) -> Path:
    """Write ``report.html``, with the last iteration if it was recorded; return its path."""
    run = Section("Run", (*_run_facts(measurement), *_utilisation_facts(utilisation)))
    served = [Section("Requests", text="\n".join(requests))] if requests else []
    summary = (*summary_facts(found, tuned), _equality(measurement))
    proved = found.searched.proved if found.searched else "made by hand"
    brought = in_words(beside, proved) if beside_table(beside) else ""
    return save_with_plans(
        found, tuned, directory, summary, _beside_sections(beside), [*served, run], brought
    )


def _beside_sections(rows: Sequence[BesideRow]) -> list[Section]:
    """Return the table of schedules by hand beside the found one; none where there is none by hand."""
    table = "\n".join(beside_table(rows))
    return [Section("Beside usual schedules", text=table)] if table else []


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
            Section("Files", file_facts(directory)),
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


def _comparison_facts(comparison: ReferenceComparison | None) -> tuple[Fact, ...]:
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
