"""Hand-made schedules, as functions of a placement and a number of micro-batches.

They know no search. In the order in which to read:

- `structure`: the stages that a placement is made of, and how a rule over them becomes a schedule.
- `chains`: GPipe, 1F1B, eager 1F1B, ZB-H1, ZB-H2, 1F1B+; Seq1F1B; PipeDream, without a flush.
- `interleaved`: interleaved 1F1B.
- `crossing`: Chimera, DualPipe, DualPipeV, ZB-V, STP and Hanayo.
- `controllable_memory`: V-Half, V-Min and 1F1B-V.
- `communication`: any of these where devices communicate beside computing.
- `chosen_modes`: any of these where blocks have modes.
"""

from collections.abc import Callable

from placements import Placement
from schedsearch.baselines.chains import (
    eager_one_f_one_b,
    gpipe,
    one_f_one_b,
    one_f_one_b_plus,
    pipedream,
    seq_one_f_one_b,
    zb_h1,
    zb_h2,
)
from schedsearch.baselines.controllable_memory import one_f_one_b_v, v_half, v_min
from schedsearch.baselines.crossing import chimera, dual_pipe, dual_pipe_v, hanayo, zb_v
from schedsearch.baselines.interleaved import interleaved_one_f_one_b
from schedsearch.baselines.structure import EMBEDDED, NEEDS_OF, V_SLICES, UnsuitablePlacementError
from schedsearch.schedule import Schedule
from schedsearch.validate import InvalidScheduleError, validate

__all__ = [
    "HAND_MADE",
    "NEEDS",
    "SLICED",
    "UnsuitablePlacementError",
    "applicable",
    "chimera",
    "dual_pipe",
    "dual_pipe_v",
    "eager_one_f_one_b",
    "gpipe",
    "hanayo",
    "interleaved_one_f_one_b",
    "one_f_one_b",
    "one_f_one_b_plus",
    "one_f_one_b_v",
    "pipedream",
    "seq_one_f_one_b",
    "v_half",
    "v_min",
    "zb_h1",
    "zb_h2",
    "zb_v",
]

_MADE = (
    *(gpipe, one_f_one_b, eager_one_f_one_b, one_f_one_b_plus, interleaved_one_f_one_b, chimera, dual_pipe),
    *(zb_h1, zb_h2, zb_v, v_half, v_min, one_f_one_b_v, dual_pipe_v, hanayo, pipedream, seq_one_f_one_b),
)

HAND_MADE: dict[str, Callable[[Placement, int], Schedule]] = {make.__name__: make for make in _MADE}
"""The hand-made schedules by their names on the command line."""

NEEDS: dict[str, tuple[str, bool]] = {
    name: (NEEDS_OF[name][0].shape, NEEDS_OF[name][1])
    for name in HAND_MADE
    if NEEDS_OF[name][0] not in (EMBEDDED, V_SLICES)
}
"""The shape of a chain of stages that a hand-made schedule needs, and whether its backward is split."""

SLICED: dict[str, tuple[str, bool]] = {"seq_one_f_one_b": ("v_shape", False)}
"""The shape that a schedule of sequence slices needs, and whether its backward is split."""


def applicable(placement: Placement, num_micro_batches: int) -> dict[str, Schedule]:
    """Return every hand-made schedule that is defined for the placement and fits its memory.

    Returns:
        Valid schedules by name, in the order of `HAND_MADE`, without PipeDream where that is 1F1B;
        empty where none fits.

    >>> from placements.shapes import v_shape
    >>> schedules = applicable(v_shape(4, 1, 2).with_memory(4), num_micro_batches=8)
    >>> {name: schedule.makespan for name, schedule in schedules.items()}
    {'one_f_one_b': 33}
    """
    schedules: dict[str, Schedule] = {}
    for name, make in HAND_MADE.items():
        try:
            schedule = validate(make(placement, num_micro_batches))
        except (UnsuitablePlacementError, InvalidScheduleError):
            continue
        if schedule != schedules.get("one_f_one_b"):
            schedules[name] = schedule
    return schedules
