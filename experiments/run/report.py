"""The parts of a report that are of a run: its measurements, and the table beside usual schedules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments.frontier.report import write_page
from experiments.frontier.results import EnergyResult
from experiments.report.html_report import Fact, Section, write_report
from experiments.search.report import file_facts
from experiments.search.results import SearchStepResult
from placements import Placement
from runtime.execution.measurement import Measurement
from runtime.profiling.utilisation import UtilisationTable


def write_run_page(
    found: SearchStepResult,
    tuned: EnergyResult | None,
    measurement: Measurement,
    path: Path,
    *,
    utilisation: UtilisationTable | None = None,
    beside: Sequence[str] = (),
    requests: Sequence[str] = (),
    brought: str = "",
) -> Path:
    """Write the page of a run with its schedule and plans, and the last iteration if it was recorded.

    Beside usual schedules stands a table of lines; what the search brought is the first sentence.
    """
    served = [Section("Requests", text="\n".join(requests))] if requests else []
    return write_page(
        found,
        tuned,
        path,
        summary=[_equality(measurement)],
        before=[Section("Beside usual schedules", text="\n".join(beside))] if beside else [],
        after=[*served, _run_section(measurement, utilisation)],
        brought=brought,
    )


def write_resumed_page(
    placement: Placement, measurement: Measurement, path: Path, utilisation: UtilisationTable | None = None
) -> Path:
    """Write the page of a run that went on, whose schedule and plans are not known any more."""
    first = Fact("First iteration", str(measurement.first_iteration), "of the run that went on")
    return write_report(
        path,
        f"{placement.name} on {placement.num_devices} devices, {measurement.num_micro_batches} micro-batches",
        [_run_section(measurement, utilisation), Section("Files", file_facts(path.parent))],
        summary=(first, _equality(measurement)),
    )


def _equality(measurement: Measurement) -> Fact:
    comparison, why = measurement.comparison, f"verify={measurement.verify}: {measurement.verify_reason}"
    fact = partial(Fact, "Equal to the unpipelined model")
    if comparison is None:
        return fact("not compared", why)
    which = {"first": "the first iteration", "all": "all iterations"}[measurement.verify]
    note = f"losses, gradients and parameters of {which} within {comparison.tolerance:.2g} ({why})"
    return fact("yes" if comparison.is_equal else "no", note, good=comparison.is_equal)


def _run_section(measurement: Measurement, utilisation: UtilisationTable | None) -> Section:
    losses = [sum(each) / len(each) for each in measurement.losses]
    pairs = zip(measurement.peak_rss_mib, measurement.rss_after_import_mib, strict=True)
    own_mib = ", ".join(f"{peak - before:.0f}" for peak, before in pairs)
    facts = [
        Fact("Backend", measurement.backend, ", ".join(sorted(set(measurement.device_names)))),
        Fact("Loss", ", ".join(f"{loss:.4f}" for loss in losses), "mean of the micro-batches, by iteration"),
        Fact("Iteration", ", ".join(f"{time:.1f}" for time in measurement.time_ms) + " ms"),
        Fact("Memory", f"{own_mib} MiB", "peak of each process, without what it had after its imports"),
    ]
    if (errors := measurement.comparison) is not None:
        is_bitwise, replay = errors.bitwise_equal, "to the same model in one process, in the same order"
        facts += [
            Fact(
                "Largest loss error",
                f"{errors.max_loss_error:.1e}",
                "relative, against the unpipelined model",
            ),
            Fact("Largest gradient error", f"{errors.max_gradient_error:.1e}", "relative"),
            Fact("Largest parameter error", f"{errors.max_parameter_error:.1e}", "after the last step"),
            Fact("Bitwise equal", "yes" if is_bitwise else "no", replay, good=is_bitwise),
        ]
    facts.append(Fact("Clocks", measurement.clock_backend))
    return Section("Run", (*facts, *_utilisation_facts(utilisation)))


def _utilisation_facts(table: UtilisationTable | None) -> list[Fact]:
    if table is None:
        return []
    planned = "" if table.planned_ms is None else f"planned: {table.planned_ms:.6g} ms"
    own = "of the same measured block times"
    facts = [
        Fact("Last iteration", f"{table.measured_ms:.6g} ms", planned),
        Fact("Without transfer time", f"{table.zero_comm_ms:.6g} ms", own),
    ]
    for device, shares in enumerate(table.devices):
        planned = "" if shares.planned is None else f"planned: {shares.planned:.1%}"
        share = f"computes {shares.measured:.1%}, waits {shares.waiting:.1%}"
        facts.append(Fact(f"Device {device}", share, planned))
    return facts
