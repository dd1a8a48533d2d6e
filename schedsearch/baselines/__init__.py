"""Hand-made schedules, as functions of a placement and a number of micro-batches.

They know no search. In the order in which to read:

- `structure`: the stages that a placement is made of.
- `pipelines`: GPipe and 1F1B.
- `asynchronous`: PipeDream, without a flush.
- `early_recompute`: 1F1B that computes forwards again before their gradients arrive.
- `interleaved`: interleaved 1F1B and breadth-first.
- `embedding`: 1F1B+.
- `bidirectional`: Chimera and GEMS.
- `zero_bubble`: ZB-H1, ZB-H2 and ZB-V.
- `dual_pipe`: DualPipe and DualPipeV.
- `controllable_memory`: V-Half, V-Min and 1F1B-V.
- `hanayo`: Hanayo.
- `slices`: TeraPipe, Seq1F1B and SlimPipe.
- `chosen_modes`: any of these where blocks have modes, and pairs of blocks that share streams.
"""

from collections.abc import Callable

from placements import Placement
from schedsearch.baselines.asynchronous import num_admitted, pipedream, pipedream_repetend
from schedsearch.baselines.bidirectional import chimera, chimera_doubling, gems
from schedsearch.baselines.controllable_memory import one_f_one_b_v, v_half, v_min
from schedsearch.baselines.dual_pipe import dual_pipe, dual_pipe_v
from schedsearch.baselines.early_recompute import early_recompute_one_f_one_b, with_early_recomputation
from schedsearch.baselines.embedding import one_f_one_b_plus
from schedsearch.baselines.hanayo import hanayo
from schedsearch.baselines.interleaved import breadth_first, interleaved_one_f_one_b
from schedsearch.baselines.pipelines import eager_one_f_one_b, gpipe, one_f_one_b
from schedsearch.baselines.slices import seq_one_f_one_b, seq_one_f_one_b_zb, slimpipe, terapipe
from schedsearch.baselines.structure import UnsuitablePlacementError
from schedsearch.baselines.zero_bubble import zb_h1, zb_h2, zb_v
from schedsearch.schedule import Schedule, with_optimizer
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

_Maker = Callable[[Placement, int], Schedule]


def _with_updates(make: _Maker) -> _Maker:
    """Return a maker that also takes placements with optimizer blocks, and puts these at the end."""
    return lambda placement, number: with_optimizer(placement, make(placement.per_micro_batch, number))


_NEEDS: dict[_Maker, tuple[str, bool] | None] = {
    gpipe: ("v_shape", False),
    one_f_one_b: ("v_shape", False),
    eager_one_f_one_b: ("v_shape", False),
    early_recompute_one_f_one_b: None,
    one_f_one_b_plus: None,
    interleaved_one_f_one_b: ("loop_shape", False),
    breadth_first: ("loop_shape", False),
    chimera: ("x_shape", False),
    chimera_doubling: ("x_shape", False),
    gems: ("x_shape", False),
    dual_pipe: ("x_shape", True),
    zb_h1: ("v_shape", True),
    zb_h2: ("v_shape", True),
    zb_v: ("wave_shape", True),
    v_half: ("wave_shape", True),
    v_min: ("wave_shape", True),
    one_f_one_b_v: ("wave_shape", False),
    dual_pipe_v: ("wave_shape", True),
    hanayo: ("wave_shape", False),
    pipedream: ("v_shape", False),
}
"""Shape that each needs, and whether its backward is split; None for stages on all devices or
recomputation in blocks of their own."""

_SLICED: dict[_Maker, tuple[str, bool]] = {
    terapipe: ("v_shape", False),
    seq_one_f_one_b: ("v_shape", False),
    seq_one_f_one_b_zb: ("v_shape", True),
    slimpipe: ("loop_shape", False),
}
"""Likewise of those that need it in slices; SlimPipe's may be a V-shape too."""

HAND_MADE: dict[str, _Maker] = {make.__name__: _with_updates(make) for make in (*_NEEDS, *_SLICED)}
"""The hand-made schedules by the name that the command line uses."""

NEEDS: dict[str, tuple[str, bool]] = {make.__name__: needs for make, needs in _NEEDS.items() if needs}
"""The shape of a chain of stages that a hand-made schedule needs, and whether its backward is split."""

SLICED: dict[str, tuple[str, bool]] = {make.__name__: needs for make, needs in _SLICED.items()}
"""Likewise, of schedules of slices of a sequence."""


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
