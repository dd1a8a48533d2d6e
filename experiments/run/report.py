"""The parts of a report that are of a run: its measurements, and the table beside usual schedules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments.report.html_report import Fact, Section, write_report
from experiments.search.report import file_facts
from placements import Placement
from runtime.execution.measurement import Measurement
from runtime.profiling.utilisation import UtilisationTable


def text_sections(title: str, lines: Sequence[str]) -> list[Section]:
    """Return a section with lines of text; none where there are no lines."""
    return [Section(title, text="\n".join(lines))] if lines else []


def write_resumed_page(
    placement: Placement, measurement: Measurement, path: Path, utilisation: UtilisationTable | None = None
) -> Path:
    """Write the page of a run that went on, whose schedule and plans are not known any more."""
    first = Fact("First iteration", str(measurement.first_iteration), "of the run that went on")
    return write_report(
        path,
        f"{placement.name} on {placement.num_devices} devices, {measurement.num_micro_batches} micro-batches",
        [run_section(measurement, utilisation), Section("Files", file_facts(path.parent))],
        summary=(first, equality(measurement)),
    )


def equality(measurement: Measurement) -> Fact:
    """Return whether the run was equal to the unpipelined model, as far as it was compared."""
    comparison, why = measurement.comparison, f"verify={measurement.verify}: {measurement.verify_reason}"
    fact = partial(Fact, "Equal to the unpipelined model")
    if comparison is None:
        return fact("not compared", why)
    which = {"first": "the first iteration", "all": "all iterations"}[measurement.verify]
    note = f"losses, gradients and parameters of {which} within {comparison.tolerance:.2g} ({why})"
    return fact("yes" if comparison.is_equal else "no", note, good=comparison.is_equal)


def run_section(measurement: Measurement, utilisation: UtilisationTable | None) -> Section:
    """Return losses, times, memory and errors of a run, and the last iteration if it was recorded."""
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
