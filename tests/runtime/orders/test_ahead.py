"""The order of the next batch, searched by a process beside: taken over, or else the run's own order runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_runs import SMALL_GPT, comparison_of, launched

from placements import Placement
from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.codegen.job import read_job
from runtime.codegen.script import read_script
from runtime.execution.results import Progress
from runtime.execution.run_options import RunOptions
from runtime.models import Blocks, Model, ModelOptions
from runtime.orders.ahead import OrderAhead
from runtime.orders.offered import OfferError, fitting
from runtime.orders.searching import BatchOrders, KnownLengths
from runtime.program.calls import ScriptError
from runtime.program.deadlock import check
from runtime.program.lower import by_lane, lower, orders_of
from schedsearch import MicroBatchRow, unequal_batch
from schedsearch.baselines import gpipe
from schedsearch.schedule import as_soon_as_possible
from schedsearch.unequal.micro_batches import UnequalBatch
from schedsearch.unequal.starts import executed, hand_made_orders

LENGTHS = [[6, 1, 2, 4], [6, 5, 1, 3], [2, 2, 6, 1]]
"""Of three iterations."""

STAGES = v_shape(2, 10, 20)
MODEL = ModelOptions.from_dict(SMALL_GPT | {"sequence_lengths": [*LENGTHS[0], *LENGTHS[1], *LENGTHS[2]]})


def batch_of(placement: Placement, lengths: list[int]) -> UnequalBatch:
    rows = [
        MicroBatchRow(n, block.name, float(block.time * length))
        for n, length in enumerate(lengths)
        for block in placement.blocks
    ]
    return unequal_batch(placement, rows)


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """The scripts of 1F1B with the micro-batches as they come."""
    batch = batch_of(STAGES, LENGTHS[0])
    schedule = executed(batch, dict(hand_made_orders(batch))["one_f_one_b"], range(4))
    assert schedule is not None
    programs = lower(schedule, is_batch=True)
    blocks = Blocks(STAGES, Model(MODEL, STAGES, {}), 4)
    programs = check(programs.with_specs(blocks.spec_between))
    generate(programs, {}, MODEL.to_dict(), tmp_path / "scripts")
    return tmp_path / "scripts"


def test_each_iteration_runs_the_order_of_its_own_batch(scripts: Path) -> None:
    told = list[Progress]()
    found = launched(scripts, 2, 4, progress=told.append, launcher="fork", order_ahead_work=0.3)
    assert comparison_of(found).bitwise_equal
    assert comparison_of(found).max_gradient_error == 0
    assert [each.note for each in told] == [
        *(f"iteration {n}: another program runs" for n in (1, 2, 3)),
        "",
    ]


def tokens_of(iteration: int) -> list[int]:
    return LENGTHS[iteration % len(LENGTHS)]


def test_the_order_that_is_searched_is_shorter_than_the_runs_own(scripts: Path) -> None:
    script = read_script(scripts / "device_0.py")
    with OrderAhead(script, tokens_of, work=0.5) as ahead:
        assert ahead(0) is None
        programs = ahead(1)
    assert programs is not None
    fitting(programs, script)
    batch = batch_of(STAGES, LENGTHS[1])
    own = dict(hand_made_orders(batch))["one_f_one_b"]
    before = executed(batch, own, range(4))
    orders = by_lane(batch.placement, orders_of(programs))
    now = as_soon_as_possible(batch.placement, 4, orders, batch.chosen)
    assert before is not None and now.makespan < before.makespan


def test_after_a_killed_process_the_runs_own_order_runs(scripts: Path) -> None:
    with OrderAhead(read_script(scripts / "device_0.py"), tokens_of, work=0.3) as ahead:
        assert ahead(0) is None
        assert ahead(1) is not None
        ahead.process.kill()
        with pytest.raises(OfferError, match="the process that did ended with -9"):
            while True:  # it may have answered before
                ahead(2)
        assert ahead(3) is None, "it is told once"


def test_an_order_that_is_late_is_not_waited_for(scripts: Path) -> None:
    with OrderAhead(read_script(scripts / "device_0.py"), tokens_of, time_ms=60_000) as ahead:
        assert ahead(0) is None
        with pytest.raises(OfferError, match="is not there yet"):
            ahead(1)


def test_times_of_other_lengths_are_on_a_line_and_memory_is_enough() -> None:
    rows = [MicroBatchRow(n, "F0", float(time)) for n, time in enumerate((10, 40, 100))]
    batch = unequal_batch(STAGES, rows)
    known = KnownLengths(batch.placement, [chosen[0] for chosen in batch.chosen], [1, 4, 8])
    found = known.batch([1, 2, 6, 10])
    times = [found.placement.as_run(chosen).by_name["F0"].time for chosen in found.chosen]
    assert times == [10, 20, 70, 130]


def test_searches_begin_with_the_order_before(scripts: Path) -> None:
    orders = BatchOrders(read_job(scripts / "job.json"), LENGTHS[0], None, 0)
    first = orders.programs(LENGTHS[1], work=0.5, time_s=None)
    batch = batch_of(STAGES, LENGTHS[1])
    again = orders._begin_with(batch, LENGTHS[1])
    assert again is not None
    assert [list(each) for each in again.lane_orders] == by_lane(batch.placement, orders_of(first))


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="order_ahead_ms: is not for a run with order_ahead_work"):
        RunOptions(order_ahead_ms=5, order_ahead_work=1).check()
    generate(check(lower(gpipe(STAGES, 4))), {}, SMALL_GPT, tmp_path)
    with pytest.raises(ScriptError, match="order_ahead: is for micro-batches that differ in time"):
        OrderAhead(read_script(tmp_path / "device_0.py"), tokens_of, work=1)
