"""Every figure of a report, with its unit: worked out by hand from a case in which no two units are alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from quarter_ms import (
    CHOSEN,
    COSTS,
    ENVPIPE,
    FOUND,
    FRONTIER,
    LATE,
    MAXIMUM,
    PERSEUS,
    PLACEMENT,
    PROFILE,
    RESULT,
    SCHEDULE,
    TUNED,
)

from experiments.compare import report as comparison_report
from experiments.frontier import frontier_files as frontier_report
from experiments.report import drawings
from experiments.report.html_report import Fact, Section
from experiments.report.page_data import PageData, PagePlans
from experiments.run import measured_run as run_report
from experiments.search import report as search_report
from experiments.search.options import SearchOptions
from placements.stages.stage_chain import StageChain
from runtime.execution.measurement import Measurement, ReferenceComparison
from runtime.profiling.utilisation import DeviceShares, UtilisationTable
from schedsearch.comparison.rows import ComparedRow
from schedsearch.comparison.rows import Comparison as ComparedSchedules
from schedsearch.core.answer import EndedBy, Status, StrategyWork
from schedsearch.core.objective import Objective

Told = list[tuple[str, str, str]]


class Written:
    """The page that a report was about to write, as facts; of equal labels the first is good or not."""

    def __init__(self) -> None:
        self.summary: Told = []
        self.introduction = ""
        self.sections: dict[str, Told] = {}
        self.good: dict[str, bool | None] = {}
        self.program: Any = None

    def write(self, path: Path, title: str, sections: Sequence[Section], **more: Any) -> Path:
        self.good = {}
        self.summary = list(self._told(more.get("summary", ())))
        self.introduction = more.get("introduction", "")
        self.sections = {section.title: list(self._told(section.facts)) for section in sections}
        self.section = {section.title: section for section in sections}
        self.program = more.get("program")
        return path

    def _told(self, facts: Iterable[Fact]) -> Iterator[tuple[str, str, str]]:
        for fact in facts:
            self.good.setdefault(fact.label, fact.good)
            yield fact.label, fact.value, fact.note


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    page = Written()
    monkeypatch.setattr(run_report, "write_report", page.write)
    monkeypatch.setattr(frontier_report, "write_text", lambda path, text: path)
    for module in (search_report, comparison_report):
        monkeypatch.setattr(module, "html_report", partial(page.write, Path()))
    monkeypatch.setattr(drawings, "page_program", lambda *given: given)
    return page


def holds(facts: Told, *expected: tuple[str, ...]) -> None:
    """Require facts in this order: a label, its value, and parts of its note."""
    left = iter(facts)
    for label, value, *parts in expected:
        for has in left:
            if has[0] == label and has[1] == value and all(part in has[2] for part in parts):
                break
        else:
            raise AssertionError(f"{label}: {value} ({parts}) is not among {facts}")


def test_a_report_of_a_frontier_tells_ms_joules_and_shares(written: Written, tmp_path: Path) -> None:
    """All at maximum until 28 ms: 9000 mJ and 3.5 ms of three GPUs at 50 W, 9525 mJ; the plan: 7600."""
    frontier_report.write_page(FOUND, TUNED, tmp_path / "report.html")
    saved = ("28 ms", "14.3% later", "15.56% without waiting")
    holds(
        written.summary,
        ("Makespan", "24.5 ms"),
        ("Bubble", "42.9% of makespan times devices"),
        ("Energy saved", f"{1 - 7600 / 9525:.2%}", *saved),
    )
    holds(
        written.sections["Schedule"],
        ("Makespan", "24.5 ms"),
        ("Peak memory", "3,072, 2,048 of 4,096, 2,560 MiB"),
    )
    holds(
        written.sections["Energy"],
        ("Deadline", "28 ms"),
        ("Frontier", "2 plans", "by hand"),
        ("Slower plans", "1"),
        ("Chosen plan", "28 ms, 7.6 J"),
        ("All clocks at maximum", "24.5 ms, 9 J"),
        ("Saved", "20.21%", *saved),
        ("Above the lower bound", f"{7600 / 7500 - 1:.3%}"),
        ("Least energy", "28 ms, 7.6 J"),
        ("All clocks at maximum", "24.5 ms, 9 J", "0.00% saved"),
        ("EnvPipe", "30.5 ms, 8.8 J", f"{1 - 8800 / 9900:.2%} saved until 30.5 ms", "all of its 1 plans"),
        (
            "Perseus",
            "27.5 ms, 7.9 J",
            f"{1 - 7975 / 9525:.2%} saved (12.22% without",
            "1.28% above the lower bound",
        ),
        ("Blocking power", "50 W"),
        ("GPUs", "3"),
    )
    assert COSTS.in_sentences in written.introduction
    data, others = written.program
    assert data.plans == PagePlans(PROFILE, FRONTIER, CHOSEN)
    assert others == {"EnvPipe": (ENVPIPE,), "Perseus": PERSEUS}


def test_a_report_tells_the_range_of_a_blocking_power_and_a_placeholder(
    written: Written, tmp_path: Path
) -> None:
    waits = replace(PROFILE, blocking_power_w=((700, 30.0), (1100, 65.0)))
    guessed = replace(COSTS, placeholder=True)
    solution, tuned = replace(FOUND, costs=guessed), replace(TUNED, profile=waits, costs=guessed)
    frontier_report.write_page(solution, tuned, tmp_path / "report.html")
    holds(written.sections["Energy"], ("Blocking power", "30 to 65 W by clock"))
    assert written.summary[-1][0] == "Energy saved (placeholder costs)"


def test_a_report_of_a_search_tells_ms_per_micro_batch(written: Written, tmp_path: Path) -> None:
    work = StrategyWork("queries", Objective.PERIOD, 0.126, 2, 0.25)
    result = replace(RESULT, strategies=(work,), ended_by=EndedBy.WORK_LIMIT)
    options = SearchOptions(num_micro_batches=2, work_limit=5.0)
    solution = replace(FOUND, result=result, by_hand={"gpipe": SCHEDULE}, options=options)
    search_report.schedule_page(solution, ())
    facts = (
        (
            "Repetend",
            "10 ms per micro-batch",
            f"not proved (bound 8.5 ms), steady bubble {1 - 112 / 160:.1%}",
        ),
        ("Makespan", "24.5 ms", "not proved (bound 23.5 ms)"),
        ("Bubble", "42.9% of makespan times devices"),
    )
    holds(written.summary, *facts)
    holds(
        written.sections["Search"],
        ("Placement", "quarters", "2 devices, 4 blocks"),
        ("Number", "2 micro-batches"),
        ("Memory limit", "4,096, 2,560 MiB"),
        ("Objectives", "period, makespan"),
        ("Limit", "5 units of work", "work limit"),
        ("Proved", "not proved", "7 queries of the solver in 1.50 s", "repetends of 1 to 3 micro-batches"),
        ("Shortest schedule", "24.5 ms", "lower bound 23.5 ms"),
        ("Best by hand", "gpipe, 24.5 ms", "3,072 MiB"),
        ("Chosen schedule", "searched, 24.5 ms"),
    )
    assert written.section["Search"].rows[1] == ("queries", "period", "0.13", "2", "25.0%")
    holds(written.sections["Schedule"], *facts)
    assert written.good["Repetend"] is False
    figures = solution.figures
    assert figures["makespan_ms"] == figures["device_span_ms"] == 24.5
    assert figures["makespan_bound_ms"] == 23.5 and figures["device_span_bound_ms"] == 22.5
    assert figures["repetend_period_ms"] == 10.0 and figures["period_bound_ms"] == 8.5
    assert figures["search_seconds"] == 1.5 and figures["bubble_rate"] == pytest.approx(42 / 98)


def test_what_is_proved_is_good(written: Written, tmp_path: Path) -> None:
    proved = replace(RESULT, status=Status.OPTIMAL, period_bound=32.0, makespan_bound=98)
    search_report.schedule_page(replace(FOUND, result=proved), ())
    holds(
        written.summary,
        ("Repetend", "10 ms per micro-batch", "proved (bound 8 ms)"),
        ("Makespan", "24.5 ms", "proved (bound 24.5 ms)"),
    )
    holds(written.sections["Search"], ("Proved", proved.proved, "of any number of micro-batches"))
    assert written.good["Makespan"] is True and written.good["Repetend"] is True


MEASUREMENT = Measurement(
    "gloo",
    (31.25, 30.5),
    ((4.0, 5.0), (2.0, 3.5)),
    ReferenceComparison(((4.0, 5.0), (2.0, 3.5)), 2e-13, 3e-13, 4e-13, False),
    {},
    "asked for, not set",
    ("a CPU", "a GPU", "a CPU"),
    num_micro_batches=2,
    first_iteration=6,
    verify="first",
    verify_reason="asked for",
    peak_rss_mib=(700.0, 900.0),
    rss_after_import_mib=(450.0, 500.0),
)

UTILISATION = UtilisationTable(
    24.5, 25.0, 30.5, (DeviceShares(0.4, 0.5, 0.25, 0.125, 1), DeviceShares(None, 0.5, 0.75, 0.0625, 1))
)


def test_a_report_of_a_run_tells_losses_times_memory_and_shares(written: Written, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    summary, run = run_report.equality(MEASUREMENT), run_report.run_section(MEASUREMENT, UTILISATION)
    frontier_report.write_page(FOUND, TUNED, path, summary=[summary], after=[run])
    of_the_run = (
        ("Backend", "gloo", "a CPU, a GPU"),
        ("Loss", "4.5000, 2.7500"),
        ("Iteration", "31.2, 30.5 ms"),
        ("Memory", "250, 400 MiB"),
        ("Largest loss error", "2.0e-13"),
        ("Largest gradient error", "3.0e-13"),
        ("Largest parameter error", "4.0e-13"),
        ("Bitwise equal", "no"),
        ("Clocks", "asked for, not set"),
        ("Last iteration", "30.5 ms", "planned: 24.5 ms"),
        ("Without transfer time", "25 ms"),
        ("Device 0", "computes 25.0%, waits 12.5%", "planned: 40.0%"),
        ("Device 1", "computes 75.0%, waits 6.2%"),
    )
    holds(written.sections["Run"], *of_the_run)
    equal = ("Equal to the unpipelined model", "yes", "the first iteration within 1e-12", "asked for")
    holds(written.summary, ("Energy saved", "20.21%"), equal)
    assert written.good["Equal to the unpipelined model"] is True and written.good["Bitwise equal"] is False
    run_report.write_resumed_page(PLACEMENT, MEASUREMENT, path, UTILISATION)
    holds(written.sections["Run"], *of_the_run)
    holds(written.summary, ("First iteration", "6"), equal)


@pytest.mark.parametrize("wrong", ["max_loss_error", "max_gradient_error", "max_parameter_error"])
def test_one_large_error_is_not_equal(written: Written, tmp_path: Path, wrong: str) -> None:
    comparison = MEASUREMENT.comparison
    measurement = replace(MEASUREMENT, comparison=comparison._replace(**{wrong: 2e-12}))
    run_report.write_resumed_page(PLACEMENT, measurement, tmp_path / "report.html")
    holds(written.summary, ("Equal to the unpipelined model", "no"))


def test_a_report_of_a_comparison_tells_each_column_with_its_unit(written: Written, tmp_path: Path) -> None:
    rows = (
        ComparedRow(
            "one_f_one_b",
            "v_shape",
            "not proved",
            makespan_ms=1250.5,
            makespan_bound_ms=1100.25,
            bubble_rate=0.25,
            period_ms=99.5,
            device_span_ms=1200.75,
            peak_memory_mib=6144.0,
            energy_j=321.5,
        ),
        ComparedRow("gpipe", "v_shape", "does not fit", note="needs 2 GiB more"),
        ComparedRow("searched", "m_shape", "makespan proved", 1000.4, search_seconds=2.25, bubble_rate=0.125),
    )
    stages = StageChain.__new__(StageChain)
    object.__setattr__(stages, "name", "a model")
    comparison_report.comparison_page(ComparedSchedules(4, rows), stages, COSTS)  # type: ignore[arg-type]
    heads, first, second, last = written.section["Schedules"].rows
    assert (
        " ".join(heads)
        == "schedule makespan bound bubble period peak memory energy device span search proved"
    )
    assert " ".join(first[:5]) == "one_f_one_b 1,250.5 ms 1,100.25 ms 25.0% 99.5 ms"
    assert first[5:] == ["6,144 MiB", "321.5 J", "1,200.75 ms", "", "not proved"]
    assert (second[0], second[-1], last[1], last[-2]) == ("gpipe", "does not fit", "1,000.4 ms", "2.25 s")
    assert written.section["Schedules"].text == "gpipe: needs 2 GiB more"
    assert "searched takes 1,000.4 ms on m_shape (makespan proved)" in written.introduction
    won = f"{1 - 1000.4 / 1250.5:.1%} less than one_f_one_b, the best by hand, which takes 1,250.5 ms and "
    assert f"{won}6,144 MiB on v_shape." in written.introduction


def test_the_curves_of_a_page_are_in_joules() -> None:
    """Whatever the order in which plans are given, a curve is by time."""
    plot = drawings._frontier(PagePlans(PROFILE, FRONTIER, CHOSEN), {"Perseus": PERSEUS[::-1]})
    curves = {
        item.label.value: [
            (glyph.data_source.data["x"], glyph.data_source.data["y"]) for glyph in item.renderers
        ]
        for item in plot.legend[0].items
    }
    assert curves["lower bound of any plan"] == [([24.5, 28.0, 40.0], [8.0, 7.5, 8.2])]
    assert curves["frontier"] == [([24.5, 28.0], [8.1, 7.6])] * 2
    assert curves["pays only next to a straggler"] == [([40.0], [8.6])]
    assert curves["Perseus"] == [([26.5, 27.5], [8.3, 7.9])] * 2
    assert curves["all clocks at maximum"] == [([24.5], [9.0])]
    assert curves["chosen plan"] == [([28.0], [7.6])]


def test_the_plans_of_a_page_are_compared_until_the_end_of_the_slower() -> None:
    """At 40 ms: 9000 mJ and 15.5 ms of three GPUs at 50 W."""
    tree = PageData({"one": SCHEDULE}, "MiB", PagePlans(PROFILE, FRONTIER, CHOSEN)).tree()
    plans = tree["plans"]
    assert plans["time_ms"] == [24.5, 28.0, 40.0, 24.5] and plans["energy_mj"][3] == MAXIMUM.energy_mj
    assert plans["until_ms"] == [24.5, 28.0, 40.0, 24.5]
    assert plans["saving"] == pytest.approx([0.1, 1 - 7600 / 9525, 1 - LATE.energy_mj / 11325, 0.0])
    assert plans["is_alone"] == [True, True, False, False]
    assert (plans["chosen"], plans["num_plans"], plans["blocking_power_w"]) == (1, 3, 50.0)
    assert plans["power_w"][:2].tolist() == pytest.approx([610 / 3, 750 / 2])
    of_schedule = tree["schedules"][0]
    assert of_schedule["capacity"] == [4096.0, 2560.0] and of_schedule["peak"] == [3072.0, 2048.0]
    assert max(of_schedule["end_ms"]) == 24.5 and sorted(set(of_schedule["delay_ms"])) == [0.0, 1.0, 1.5]
