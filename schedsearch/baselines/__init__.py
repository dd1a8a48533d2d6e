"""Hand-made schedules, as functions of a placement and a number of micro-batches.

They know no search. In the order in which to read:

- `structure`: the stages that a placement is made of, and how a rule over them becomes a schedule.
- `chains`: GPipe, 1F1B, eager 1F1B, early recomputation, ZB-H1, ZB-H2, 1F1B+; TeraPipe, Seq1F1B, SlimPipe.
- `interleaved`: interleaved 1F1B and breadth-first.
- `replicated`: PipeDream, without a flush.
- `crossing`: Chimera, GEMS, DualPipe, DualPipeV, ZB-V and Hanayo.
- `controllable_memory`: V-Half, V-Min and 1F1B-V.
- `chosen_modes`: any of these where blocks have modes, and pairs of blocks that share streams.
"""

from collections.abc import Callable

from placements import Placement
from schedsearch.baselines.chains import (
    eager_one_f_one_b,
    early_recompute_one_f_one_b,
    gpipe,
    one_f_one_b,
    one_f_one_b_plus,
    seq_one_f_one_b,
    seq_one_f_one_b_zb,
    slimpipe,
    terapipe,
    with_early_recomputation,
    zb_h1,
    zb_h2,
)
from schedsearch.baselines.controllable_memory import one_f_one_b_v, v_half, v_min
from schedsearch.baselines.crossing import (
    chimera,
    chimera_doubling,
    dual_pipe,
    dual_pipe_v,
    gems,
    hanayo,
    zb_v,
)
from schedsearch.baselines.interleaved import breadth_first, interleaved_one_f_one_b
from schedsearch.baselines.replicated import num_admitted, pipedream, pipedream_repetend
from schedsearch.baselines.structure import NEEDS_OF, UnsuitablePlacementError
from schedsearch.schedule import Schedule
from schedsearch.validate import InvalidScheduleError, validate

__all__ = [
    "HAND_MADE",
    "NEEDS",
    "SLICED",
    "UnsuitablePlacementError",
    "applicable",
    "breadth_first",
    "chimera",
    "chimera_doubling",
    "dual_pipe",
    "dual_pipe_v",
    "eager_one_f_one_b",
    "early_recompute_one_f_one_b",
    "gems",
    "gpipe",
    "hanayo",
    "interleaved_one_f_one_b",
    "num_admitted",
    "one_f_one_b",
    "one_f_one_b_plus",
    "one_f_one_b_v",
    "pipedream",
    "pipedream_repetend",
    "seq_one_f_one_b",
    "seq_one_f_one_b_zb",
    "slimpipe",
    "terapipe",
    "v_half",
    "v_min",
    "with_early_recomputation",
    "zb_h1",
    "zb_h2",
    "zb_v",
]

_MADE = (
    gpipe,
    one_f_one_b,
    eager_one_f_one_b,
    early_recompute_one_f_one_b,
    one_f_one_b_plus,
    interleaved_one_f_one_b,
    breadth_first,
    chimera,
    chimera_doubling,
    gems,
    dual_pipe,
    zb_h1,
    zb_h2,
    zb_v,
    v_half,
    v_min,
    one_f_one_b_v,
    dual_pipe_v,
    hanayo,
    pipedream,
    terapipe,
    seq_one_f_one_b,
    seq_one_f_one_b_zb,
    slimpipe,
)

HAND_MADE: dict[str, Callable[[Placement, int], Schedule]] = {make.__name__: make for make in _MADE}
"""The hand-made schedules by the name that the command line uses."""

NEEDS: dict[str, tuple[str, bool]] = {
    name: (form.shape, split)
    for name, (form, split) in ((name, NEEDS_OF[name]) for name in HAND_MADE)
    if form.of_chains and not form.in_slices
}
"""The shape of a chain of stages that a hand-made schedule needs, and whether its backward is split."""

SLICED: dict[str, tuple[str, bool]] = {
    name: (form.shape, split) for name, (form, split) in NEEDS_OF.items() if form.in_slices
}
"""Likewise, of schedules of slices of a sequence; SlimPipe's may be a V-shape too."""


def applicable(placement: Placement, num_micro_batches: int) -> dict[str, Schedule]:
    """Return every hand-made schedule that is defined for the placement and fits its memory.

    Returns:
        Valid schedules by name, in the order of `HAND_MADE`, without PipeDream where that is 1F1B;
        empty where none fits.

    >>> from placements.shapes import v_shape
    >>> found = applicable(v_shape(4, 1, 2).with_memory(4), num_micro_batches=8)
    >>> {name: schedule.makespan for name, schedule in found.items()}
    {'one_f_one_b': 33}
    """
    found: dict[str, Schedule] = {}
    for name, make in HAND_MADE.items():
        try:
            schedule = validate(make(placement, num_micro_batches))
        except (UnsuitablePlacementError, InvalidScheduleError):
            continue
        if schedule != found.get("one_f_one_b"):
            found[name] = schedule
    return found
