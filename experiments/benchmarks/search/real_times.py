"""Measured times, split backward and many devices: what the search must reach on the instance library.

Bars are the bubble rates that the authors of zero-bubble published (each device by its own clock; source in
`instances/zero_bubble.yaml`), for 32 devices our event simulation of the same rule, and the hand-made
schedules that fit. Seconds are wall-clock, of two cores, with all that a search begins with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial

from experiments.benchmarks.instances.instance_file import Instance, read_instances
from experiments.benchmarks.results import BenchmarkCase, CaseResult
from experiments.benchmarks.search.measuring import case_result, search_timed
from schedsearch.baselines import applicable, zb_h1
from schedsearch.device_span import device_spans, with_least_device_span
from schedsearch.modulo.result import SearchResult, Status
from schedsearch.schedule import Schedule
from schedsearch.solver.effort import Effort
from schedsearch.starts.event_simulation import Rule, list_schedule
from schedsearch.starts.first_repetends import hand_made
from schedsearch.starts.steady_state import steady_state

ZB_2P = {
    "v_8x24_gpt_1b_2p": 0.0433,
    "v_8x32_gpt_1b_2p": 0.0039,
    "v_8x64_gpt_1b_2p": 0.0026,
    "v_8x24_gpt_6b_2p": 0.0029,
    "v_8x32_gpt_6b_2p": 0.0022,
    "v_8x64_gpt_6b_2p": 0.0010,
    "v_16x48_gpt_14b_2p": 0.0066,
    "v_16x64_gpt_14b_2p": 0.0054,
    "v_16x128_gpt_14b_2p": 0.0028,
}
"""Published bubble rates of ZB-2p, to four digits: work is this share less than the longest device span."""

_SECONDS = {8: (5, 60, 2), 16: (10, 120, 5), 32: (30, 240, 15)}
"""By devices: the limits on the makespan at memory p, the device span at 2p, and the period."""


_NEAR = 0.03
"""A period this little above its bound counts as proved."""


def real_times() -> Iterator[BenchmarkCase]:
    """Yield the cases in the order of the table that they come from."""
    for instance in read_instances():
        for name, must, measure in _cases(instance):
            yield BenchmarkCase(f"{instance.name} {name}", must, measure)


def _cases(instance: Instance) -> Iterator[tuple[str, str, Callable[[], CaseResult]]]:
    """Yield what is measured on an instance, what it must reach, and how."""
    devices = instance.placement.num_devices
    if instance.group == "zero_bubble":
        at_p_s, at_2p_s, period_s = _SECONDS[devices]
        yield "period", f"OPTIMAL, zero bubble, {period_s} s", partial(_zero_bubble, instance, period_s)
        if instance.name.endswith("_2p"):
            must = f"device span at most that of ZB-2p, {at_2p_s} s"
            yield "device span", must, partial(_device_span, instance, at_2p_s)
        else:
            must = f"makespan of ZB-1p, proved, {at_p_s} s"
            yield "makespan", must, partial(_makespan, instance, at_p_s)
    elif instance.group in ("waves", "loops", "bidirectional") and "three_quarters" not in instance.name:
        must = "no figure above those made by hand, 120 s"
        if instance.name.endswith("_min"):
            must = f"no figure above those by hand; period shorter or within {_NEAR:.0%} of its bound; 120 s"
        yield "by hand", must, partial(_by_hand, instance, 120.0)
    elif "three_quarters" in instance.name and "loop" in instance.name:
        must = "period at most 2 % above that of interleaved 1F1B, or proved, 120 s"
        yield "period", must, partial(_near_the_load, instance, 120.0, 0.02)
    elif (devices, instance.num_micro_batches) == (64, 512):
        must = f"period within {_NEAR:.0%} of its bound, 120 s"
        yield "period", must, partial(_near_the_load, instance, 120.0, _NEAR)


def _zero_bubble(instance: Instance, time_limit_s: float) -> CaseResult:
    result, took_s = _searched(instance, ("period",), time_limit_s)
    bubble = result.repetend.bubble_rate if result.repetend else 1.0
    wrong = {"not OPTIMAL": result.status is not Status.OPTIMAL, f"bubble {bubble:.2%}": bubble > 0}
    return _row(result, took_s, wrong | _late(result, time_limit_s))


def _makespan(instance: Instance, time_limit_s: float) -> CaseResult:
    result, took_s = _searched(instance, ("period", "makespan"), time_limit_s)
    least = zb_h1(instance.placement, instance.num_micro_batches).makespan
    assert result.schedule is not None
    wrong = {
        f"above ZB-1p's {least}": result.schedule.makespan > least,
        "not proved": result.schedule.makespan > result.makespan_bound,
    }
    return _row(result, took_s, wrong | _late(result, time_limit_s), f"ZB-1p {least}")


def _device_span(instance: Instance, time_limit_s: float) -> CaseResult:
    result, took_s = _searched(instance, ("device_span",), time_limit_s)
    assert result.schedule is not None
    work = instance.placement.load(0) * instance.num_micro_batches
    rate = 1 - work / _span(result.schedule)
    bar = ZB_2P.get(instance.name)
    if bar is None:
        simulated = list_schedule(instance.placement, instance.num_micro_batches, Rule(Fraction(3), less=1))
        assert simulated is not None
        bar = round(1 - work / _span(with_least_device_span(simulated)), 4)
    bound = 1 - work / result.device_span_bound
    note = f"bubble by device span {rate:.4f}, ZB-2p {bar:.4f}, bound {bound:.4f}"
    wrong = {f"above ZB-2p's {bar:.4f}": round(rate, 4) > bar}
    return _row(result, took_s, wrong | _late(result, time_limit_s), note)


def _by_hand(instance: Instance, time_limit_s: float) -> CaseResult:
    """Hold period, makespan and device span against the best made by hand, each searched in half the time."""
    placement, number = instance.placement, instance.num_micro_batches
    result, took_s = _searched(instance, ("period", "makespan"), time_limit_s / 2)
    spans, more_s = _searched(instance, ("device_span",), time_limit_s / 2)
    assert result.schedule is not None and result.repetend is not None and spans.schedule is not None
    made = list(applicable(placement, number).values())
    endless = [schedule for _, schedule in hand_made(placement, 6 * placement.num_devices, Effort())]
    steady = [found for each in endless if (found := steady_state(each, placement.num_devices))]
    period = min((found.period_per_micro_batch for found in steady), default=math.inf)
    makespan = min(each.makespan for each in made)
    span = min(_span(with_least_device_span(each)) for each in made)
    figures = {
        "period": (result.repetend.period_per_micro_batch, period, result.period_bound),
        "makespan": (result.schedule.makespan, makespan, result.makespan_bound),
        "device span": (_span(spans.schedule), span, spans.device_span_bound),
    }
    wrong = {f"{name} above": ours > theirs for name, (ours, theirs, _) in figures.items()}
    if instance.name.endswith("_min"):
        ours, theirs, bound = figures["period"]
        wrong[f"period as by hand, {ours / bound - 1:.1%} above its bound"] = (
            ours >= theirs and ours > bound * (1 + _NEAR)
        )
    note = ", ".join(
        f"{name} {ours / theirs - 1:+.2%} (bound {bound / ours - 1:+.2%})"
        for name, (ours, theirs, bound) in figures.items()
    )
    return _row(result, took_s + more_s, wrong, f"against by hand: {note}")


def _near_the_load(instance: Instance, time_limit_s: float, gap: float) -> CaseResult:
    """Ask for the period alone, as no figure of the makespan is asked for."""
    result, took_s = _searched(instance, ("period",), time_limit_s)
    wrong = {f"gap {result.gap:.1%}": result.gap > gap} | _late(result, time_limit_s, 1.05)
    return _row(result, took_s, wrong, f"gap {result.gap:.2%}")


def _searched(instance: Instance, objectives: tuple[str, ...], limit_s: float) -> tuple[SearchResult, float]:
    number = instance.num_micro_batches
    return search_timed(instance.placement, number, objectives=objectives, time_limit_s=limit_s)


def _span(schedule: Schedule) -> int:
    return int(device_spans(schedule).max())


def _late(result: SearchResult, limit_s: float, allowed: float = 1.0) -> dict[str, bool]:
    return {f"{result.seconds:.1f} s are more than {limit_s:g} s": result.seconds > limit_s * allowed}


def _row(result: SearchResult, took_s: float, wrong: dict[str, bool], note: str = "") -> CaseResult:
    seconds = f"{result.seconds:.1f} s"
    return case_result(result, took_s, wrong, f"{seconds}; {note}" if note else seconds)
