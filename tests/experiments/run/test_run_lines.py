"""Output of a run beside its plan: the table of baselines, its own lines, and simulated GPUs' figures."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from quarter_ms import COSTS, FOUND, MIXED, PLACEMENT, PROFILE, SCHEDULE, TUNED

from experiments.run import beside
from experiments.run.beside import BesideRow, beside_lines, beside_table, in_words
from experiments.run.measured_run import describe
from experiments.run.scripts import simulate_scripts
from experiments.search.options import SearchCommandOptions
from runtime.codegen.codegen import generate
from runtime.execution.measurement import Measurement, ReferenceComparison
from runtime.plans.planned import PlannedIteration
from runtime.program.lower import lower
from schedsearch.schedule import Schedule


def ticking(tick_ms: float, unit_mib: float | None, name: str = "other") -> Schedule:
    """Return the same schedule in other units."""
    placement = replace(PLACEMENT, name=name, tick_ms=tick_ms, memory_unit_mib=unit_mib)
    return Schedule(placement, 2, SCHEDULE.blocks)


def test_the_table_of_others_is_in_ms_gib_and_joules() -> None:
    """98 ticks of 0.5 and 0.25 ms; a peak of 6 units of 1000 and 512 MiB."""
    rows = [
        BesideRow("1F1B", ticking(0.5, 1000.0), "", 49.0, 12675.4, 9950.0),
        BesideRow("chimera", note="needs an even number"),
        BesideRow("searched", SCHEDULE, "", 49.0, 11111.0, 8800.6),
    ]
    head, first, second, third, why, *until = [
        " ".join(line.split()) for line in beside_lines(*beside_table(rows))
    ]
    assert head == "iteration bubble peak memory energy*"
    assert first == "1F1B 49 ms 42.9% 5.9 GiB 9,950 J"
    assert second == "chimera - - - -"
    assert third == "searched 24.5 ms 42.9% 3.0 GiB 8,801 J"
    assert why == "chimera: needs an even number"
    assert " ".join(until) == (
        "* at the clocks of least energy, then waiting until 49 ms; 1F1B with all clocks at maximum: 12,675 J"
    )
    assert beside_table([BesideRow("units", ticking(0.5, None)), rows[2]])[0][1][3] == "6 units"


def test_words_compare_with_1f1b_and_with_the_best_by_hand() -> None:
    """24.5 ms are half of 49 and a quarter more than 19.6; the energy is the best by hand's."""
    rows = [
        BesideRow("1F1B, really", ticking(0.5, 1.0), "", 49.0, 12000.0, 9000.0),
        BesideRow("middle", ticking(0.3, 1.0, "w_shape")),
        BesideRow("wave", ticking(0.2, 1024.0, "w_shape"), "", 49.0, 9004.0, 9001.0, is_best_by_hand=True),
        BesideRow("searched", SCHEDULE, "", 49.0, 11000.0, 9000.0),
        BesideRow("run (a rule)", ticking(0.75, 1.0), "", 73.5, 11000.0, 8000.0, is_run=True),
    ]
    text = in_words(rows, "period proved")
    assert "25.0% more than wave, best by hand (6.0 GiB, w_shape) and 50.0% less than 1F1B, really" in text
    assert "at 49 ms, it needs as much energy as wave with all clocks at maximum" in text
    assert "Another order, of 73.5 ms, is run" in text


def test_energies_of_the_table_are_until_the_end_of_the_slowest() -> None:
    """Until 49 ms three GPUs wait at 50 W: 24.5 ms after the highest clocks, 9 ms after the slowest plan."""
    rows = [BesideRow("1F1B", ticking(0.5, 1.0)), BesideRow("searched", SCHEDULE)]
    other, searched = beside._with_energies(cast(SearchCommandOptions, None), rows, FOUND, TUNED)
    assert other.max_clocks_j is None, "nobody told what its blocks cost"
    assert (searched.until_ms, searched.max_clocks_j, searched.best_clocks_j) == (49.0, 12.675, 9.95)


MEASUREMENT = Measurement(
    "gloo",
    (31.25, 30.5, 30.0),
    ((4.0, 5.0), (9.0, 9.0), (2.0, 3.5)),
    ReferenceComparison((), 2e-13, 3e-13, 4e-13, True),
    {},
    "asked for",
    ("a CPU",),
    verify="all",
    verify_reason="it is small",
)


def test_lines_of_a_run_tell_the_first_and_the_last_loss() -> None:
    first, *said, clocks = [" ".join(line.split()) for line in describe(MEASUREMENT).splitlines()]
    assert first == "run loss 4.5000 to 2.7500 in 3 iterations, gloo"
    assert said[:2] == ["all iterations compared with the unpipelined model", "(verify=all: it is small):"]
    assert said[2] == "largest relative gradient error 3.0e-13, bitwise equal to a replay in one process: yes"
    assert clocks == "clocks asked for"
    blocking = replace(MEASUREMENT, blocking=True, comparison=None, verify="none")
    assert "gloo, blocking" in describe(blocking) and "not compared" in describe(blocking)


def test_simulated_gpus_are_told_beside_the_plan(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A change of clock takes 1 ms, in which a block goes on at the old clock.

    The second F0 is half at 1100 MHz and half at 700: 2.5 ms, 375 + 305 mJ. The second F1 is a quarter at
    700 MHz, and the rest at 1100: 3.25 ms, 132.5 + 660 mJ. So the iteration ends at 27.75 ms.
    """
    schedule = Schedule(replace(PLACEMENT, num_gpus=()), 2, SCHEDULE.blocks)
    generate(
        lower(schedule),
        MIXED,
        {"name": "synthetic", "hidden_size": 8, "sequence_length": 6, "micro_batch_size": 2},
        tmp_path / "scripts",
    )
    with caplog.at_level(logging.INFO):
        planned = PlannedIteration.of(schedule, PROFILE, MIXED)
        simulate_scripts(planned, 1.0, tmp_path, COSTS)
    work_mj = (750 + 680 + 1270 + 1110) + (530 + 792.5 + 1340 + 1340)
    waiting_ms = (27.75 - 2 - 2.5 - 4 - 6) + (27.75 - 4 - 3.25 - 5 - 5)
    planned_mj = (750 + 610 + 1270 + 1110) + (530 + 880 + 1340 + 1340) + 50 * (27.5 - 15 + 27.5 - 17)
    data = json.loads((tmp_path / "simulated.json").read_text())
    assert (data["switch_ms"], data["time_ms"], data["planned_time_ms"]) == (1.0, 27.75, 27.5)
    assert data["energy_mj"] == pytest.approx(work_mj + 50 * waiting_ms) == 9000.0
    assert data["planned_energy_mj"] == pytest.approx(planned_mj) == 8980.0
    assert caplog.messages[-1].endswith("27.75 ms, 9 J; planned: 27.5 ms, 8.98 J")
