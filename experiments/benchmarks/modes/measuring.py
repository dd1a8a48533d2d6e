"""Measurements of a search on placements with modes or streams, and the best schedule by hand beside it."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from experiments.benchmarks.modes.placements import DUAL_PIPE
from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.timing import timed
from placements import Kind, Placement
from placements.models.memory_levers import Offload, Recompute, with_levers
from placements.shapes import v_shape, wave_shape
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError, one_f_one_b, v_min
from schedsearch.baselines.chosen_modes import overlapped, steady_rate, with_chosen_modes
from schedsearch.bounds.memory_need import CapacityError
from schedsearch.metrics import peak_memory
from schedsearch.modulo.result import Status
from schedsearch.modulo.search import search
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible
from schedsearch.validate import InvalidScheduleError, validate


def proved(placement: Placement, period: Fraction, max_size: int, cpu_s: float) -> CaseResult:
    """Measure that a period per micro-batch is found and proved, in so many CPU seconds."""
    number = 4 * placement.num_devices
    found, seconds = timed(
        lambda: search(
            placement,
            number,
            max_micro_batches_per_repetend=max_size,
            objectives=["period"],
            work_limit=2 * cpu_s,
        )
    )
    reached = None if found.repetend is None else found.repetend.period_per_micro_batch
    return CaseResult(
        cpu_s=seconds,
        missed=true_of(
            {
                f"{found.status}": found.status is not Status.OPTIMAL,
                f"period {reached}": reached != float(period),
                f"{seconds:.1f} s": seconds > cpu_s,
            }
        ),
        status=found.status.value,
        period=reached,
        period_bound=found.period_bound,
        note=f"{found.repetend.micro_batches} micro-batches per repetend" if found.repetend else "",
    )


def beside_hand_made(placement: Placement, work: float, max_ms: float | None = None) -> CaseResult:
    """Measure that a search is never slower than the best schedule made by hand, with equal memory.

    Args:
        placement: With modes or streams.
        work: Units of work of the search, of about a second each.
        max_ms: Longest period per micro-batch; None for no such limit.
    """
    number = 6 * placement.num_devices
    found, seconds = timed(lambda: search(placement, number, objectives=["period"], work_limit=work))
    rates = {name: steady_rate(schedule) for name, schedule in _by_hand(placement, number)}
    best = min(rates, key=lambda name: rates[name], default="")
    if found.repetend is None:
        return CaseResult(cpu_s=seconds, missed=("no schedule",), status=found.status.value)
    rate = Fraction(found.repetend.period, found.repetend.micro_batches)
    others = sorted(rates, key=lambda name: rates[name])[:2]
    by_hand = " or ".join(
        f"{placement.ms(rates[name]):.4g} ms by hand ({name}: {float(rates[name] / rate) - 1:+.1%})"
        for name in others
    )
    return CaseResult(
        cpu_s=seconds,
        missed=true_of(
            {
                "slower than by hand": bool(best) and rate > rates[best],
                f"{placement.ms(rate):.2f} ms": max_ms is not None and placement.ms(rate) > max_ms,
            }
        ),
        status=found.status.value,
        period=float(rate),
        period_bound=found.period_bound,
        note=f"{placement.ms(rate):.4g} ms; {by_hand or 'nothing by hand fits'}",
    )


def beside_v_min(num_devices: int, times: tuple[int, int, int], work: float) -> CaseResult:
    """Measure that modes make the period shorter than V-Min's in its memory, or that none can be.

    Args:
        num_devices: Devices of a wave of two chunks, each of which holds 10 units or recomputes.
        times: Ticks of a forward and of both halves of its backward.
        work: Units of work of the search.
    """
    forward, gradient, weight = times
    wave = wave_shape(
        num_devices,
        forward_time=forward,
        split_backward=True,
        input_time=gradient,
        weight_time=weight,
        stage_memory=10,
    )
    number = 6 * num_devices
    by_hand = v_min(wave, number)
    placement = with_levers(
        wave.with_memory(int(peak_memory(by_hand).max())),
        {f"F{chunk}": [Recompute(1, forward)] for chunk in range(2 * num_devices)},
    )
    found, seconds = timed(lambda: search(placement, number, objectives=["period"], work_limit=work))
    theirs = steady_rate(by_hand)
    if found.repetend is None:
        return CaseResult(cpu_s=seconds, missed=("no schedule",), status=found.status.value)
    ours = Fraction(found.repetend.period, found.repetend.micro_batches)
    none_is = found.period_bound >= theirs
    return CaseResult(
        cpu_s=seconds,
        missed=true_of({"not shorter, and not proved": ours >= theirs and not none_is}),
        status=found.status.value,
        period=float(ours),
        period_bound=found.period_bound,
        note=f"V-Min {float(theirs):.4g}, memory {placement.memory[0] if placement.memory else 0}",
    )


def min_memory_without_bubbles(
    num_devices: int, copy_ticks: int, work: float, max_share: float
) -> CaseResult:
    """Measure the least memory at which stages with offload have no idle time in the steady state.

    Args:
        num_devices: Devices of a V-shape whose stages hold 10 units for a micro-batch.
        copy_ticks: Ticks of a copy to the host and of one back; forward and backward take 6 together.
        work: Units of work of the search with each memory.
        max_share: Share of the memory of 1F1B that must be enough.
    """
    stages = v_shape(num_devices, forward_time=2, backward_time=4, stage_memory=10)
    copies = {
        f"F{stage}": [Offload(10, copy_ticks), Offload(5, -(-copy_ticks // 2), "half")]
        for stage in range(num_devices)
    }
    placement = with_levers(stages, offload=copies, host_memory=10**6)

    def needs_no_more(units: int) -> bool:
        try:
            found = search(
                placement.with_memory(units), 4 * num_devices, objectives=["period"], work_limit=work
            )
        except CapacityError:
            return False
        return found.repetend is not None and found.repetend.period_per_micro_batch <= stages.load(0)

    def least() -> int:
        low, high = 1, 10 * num_devices
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if needs_no_more(middle) else (middle + 1, high)
        return high

    units, seconds = timed(least)
    share = units / (10 * num_devices)
    return CaseResult(
        cpu_s=seconds,
        missed=true_of({f"{share:.0%} of the memory of 1F1B": share > max_share}),
        period=float(stages.load(0)),
        note=f"{units} units, {share:.0%} of the {10 * num_devices} of 1F1B",
    )


def _by_hand(placement: Placement, number: int) -> Iterator[tuple[str, Schedule]]:
    """Yield schedules made by hand that fit the placement's memory, with their names."""
    if placement.decisions:
        makers = {name: make for name, make in HAND_MADE.items() if name != "gpipe"}  # it has no steady state
        if any(block.kind is Kind.W for block in placement.blocks):
            makers["one_f_one_b of both halves"] = _halves_in_a_row
        yield from with_chosen_modes(placement, number, makers)
        return
    for schedule in overlapped(placement, number):
        yield "1F1B of overlapped pairs", schedule
    yield from (("DualPipe's order", each) for each in dual_pipe_order(placement, number))


def _halves_in_a_row(placement: Placement, number: int) -> Schedule:
    """Return 1F1B of a chain with split backward: each device runs both halves one after the other.

    Raises:
        UnsuitablePlacementError: It is no chain of one stage on each device.
    """
    stages = placement.num_devices
    if {block.name for block in placement.blocks} != {f"{kind}{s}" for kind in "FIW" for s in range(stages)}:
        raise UnsuitablePlacementError("1F1B of both halves needs a V-shape with split backward", "give one")
    whole = one_f_one_b(v_shape(stages), number)
    orders = [
        [(kind + name[1:], n) for name, n in order for kind in ("F" if name[0] == "F" else "IW")]
        for order in whole.lane_orders
    ]
    return as_soon_as_possible(placement, number, orders)


def dual_pipe_order(placement: Placement, number: int) -> Iterator[Schedule]:
    """Yield the schedule whose pairs run in the order of DualPipe's trace, layer by layer, if it fits."""
    stages = placement.num_devices
    layers = len(placement.on(0)) // len(DUAL_PIPE)
    orders: list[list[Instance]] = [[] for _ in placement.lanes]
    for stage in range(stages):
        ahead = min(2 * (stages - stage) - 1, number)
        for step in range(number + ahead):
            for k in range(layers):
                for phase in DUAL_PIPE:
                    is_forward = phase.endswith("(F)")
                    n = step if is_forward else step - ahead
                    name = f"{phase} {stage}.{k if is_forward else layers - 1 - k}"
                    if 0 <= n < number:
                        for lane in placement.lanes_of(placement.by_name[name]):
                            orders[lane].append((name, n))
    try:
        yield validate(as_soon_as_possible(placement, number, orders))
    except InvalidScheduleError:
        return
