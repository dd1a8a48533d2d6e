"""What Tessel's search tells while it goes on, and returns."""

from __future__ import annotations

from dataclasses import dataclass

from schedsearch.modulo.result import Status
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule


@dataclass(frozen=True)
class TesselProgress:
    """How far a search is.

    Attributes:
        phase: ``repetend`` or ``completion``.
        in_flight: Micro-batches of the repetends tried at present (Tessel's N_R).
        best: Least period found, in ticks; None before the first.
        bound: Ticks that no period beats.
        candidates: Assignments of micro-batches tried so far.
        solver_calls: Questions put to the solver so far.
        elapsed_s: Seconds since the search began.
    """

    phase: str
    in_flight: int
    best: int | None
    bound: int
    candidates: int
    solver_calls: int
    elapsed_s: float


@dataclass(frozen=True)
class TesselSweep:
    """What was known after the repetends of up to so many micro-batches (Tessel, Fig. 11).

    Attributes:
        in_flight: Micro-batches (Tessel's N_R).
        period: Least period found, in ticks; None for none.
        bubble_rate: Idle share of the steady state at this period; None for none.
        candidates: Assignments tried with exactly so many micro-batches.
        complete: Whether all of them were tried and decided.
        elapsed_s: Seconds since the search began.
    """

    in_flight: int
    period: int | None
    bubble_rate: float | None
    candidates: int
    complete: bool
    elapsed_s: float


@dataclass(frozen=True)
class TesselResult:
    """A schedule, and how it was come by.

    Attributes:
        status: OPTIMAL when the period meets `period_bound`; FEASIBLE does not mean that there is a better.
        repetend: The best repetend; None when there is no schedule.
        schedule: Warmup, repetends and cooldown, validated; None when there is none.
        in_flight: Micro-batches that the repetend was built from (Tessel's N_R); 0 for none. Devices can
            begin a repetend at different times (Tessel, Fig. 6b), and `Repetend.in_flight` be more.
        most_in_flight: The greatest number that was to be tried.
        period_bound: The busiest device's work in ticks, the paper's lower bound.
        sweep_complete: Whether the sweep ended by itself: every candidate was decided or the bound met.
        completion_optimal: Whether warmup and cooldown are each proved to be as short as can be.
        sweeps: One for each number of micro-batches in the repetend that was begun.
        candidates: Assignments tried.
        solver_calls: Questions put to the solver.
        seconds: Wall-clock time.
        cpu_seconds: Processor time of this process.
        interrupted: Whether it was interrupted from the keyboard.
        reason: Why there is no schedule; empty when there is one.
    """

    status: Status
    repetend: Repetend | None
    schedule: Schedule | None
    in_flight: int
    most_in_flight: int
    period_bound: int
    sweep_complete: bool
    completion_optimal: bool
    sweeps: tuple[TesselSweep, ...]
    candidates: int
    solver_calls: int
    seconds: float
    cpu_seconds: float
    interrupted: bool
    reason: str
