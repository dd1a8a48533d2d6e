"""GPTs as M-shapes on four pipeline stages, with block times computed for V100, A100 and H200.

The embedding is sharded over all devices, as a gather and an all-reduce (``E``, ``EB``); with a head, the
output layer runs on all devices between the last stage's forward and backward. Times are milliseconds from a
cost model (24bsh^2 + 4bs^2h floating-point operations per layer, sequences of 2048, 42 % of a V100's peak,
50 % of an A100's, 45 % of an H200's, ring all-reduces, a backward of two forwards and one more where
activations are recomputed), computed and not measured. They are scaled so that a forward takes 40 ticks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from placements import Block, Kind, Placement
from placements.shapes import m_shape

FORWARD_TICKS = 40
"""Ticks of a stage's forward."""

Pair = tuple[float, float]
"""Milliseconds of a forward and of its backward."""


@dataclass(frozen=True)
class RealModel:
    """A model on a GPU: the milliseconds of its blocks.

    The name has the model, the GPU and whether activations are recomputed. There is no head in fine-tuning.
    """

    name: str
    embedding: Pair
    stage: Pair
    head: Pair | None = None

    @property
    def has_head(self) -> bool:
        """Whether there is an output layer on all devices."""
        return self.head is not None

    def placement(self) -> Placement:
        """Return the M-shape on four devices."""
        backward, gather, reduce = (self._ticks(ms) for ms in (self.stage[1], *self.embedding))
        placement = m_shape(4, FORWARD_TICKS, backward, gather, reduce)
        if self.head is None:
            return placement
        last = placement.num_devices - 1
        everywhere = tuple(range(placement.num_devices))
        head = Block("H", Kind.F, everywhere, self._ticks(self.head[0]), 0, (f"F{last}",))
        head_back = Block("HB", Kind.B, everywhere, self._ticks(self.head[1]), 0, ("H",))
        blocks = [
            replace(block, after=("HB",)) if block.name == f"B{last}" else block for block in placement.blocks
        ]
        return replace(placement, name="m_shape_with_head", blocks=(*blocks, head, head_back))

    def _ticks(self, ms: float) -> int:
        return max(1, round(FORWARD_TICKS * ms / self.stage[0]))


_TIMES: dict[str, tuple[Pair, float, dict[str, float], Pair]] = {
    "GPT-11B V100": ((0.26, 10.5), 136, {"recomputed": 408, "kept": 272}, (61, 115)),
    "GPT-24B V100": ((0.44, 7.9), 190, {"recomputed": 567, "kept": 377}, (44, 85)),
    "GPT-47B V100": ((5.9, 5.3), 206, {"recomputed": 608, "kept": 402}, (29, 62)),
    "GPT-77B V100": ((6.0, 3.9), 182, {"recomputed": 527, "kept": 345}, (22, 48)),
    "GPT-11B A100": ((0.14, 4.8), 45.8, {"recomputed": 137, "kept": 92}, (22, 42)),
    "GPT-11B H200": ((0.08, 2.0), 16.1, {"recomputed": 48.2, "kept": 32.1}, (7.8, 14.4)),
}
"""Milliseconds by model and GPU: embedding, a stage's forward, its backward with activations recomputed and
kept, and head; 4, 8, 16 and 32 GPUs of V100, in four groups, 4 of the others.
"""

WORKLOADS = tuple(
    RealModel(
        f"{name} {how}{' head' if with_head else ''}",
        embedding,
        (forward, backward),
        head if with_head else None,
    )
    for name, (embedding, forward, backwards, head) in _TIMES.items()
    for how, backward in backwards.items()
    for with_head in (False, True)
)
"""Six models and GPUs, activations recomputed or kept, with and without a head: 24."""

_BY_NAME = {workload.name: workload for workload in WORKLOADS}

GIVEN: tuple[tuple[RealModel, dict[int, float]], ...] = (
    (_BY_NAME["GPT-11B V100 recomputed"], {4: 19.6, 5: 0}),
    (_BY_NAME["GPT-77B V100 recomputed"], {4: 20.2, 5: 0}),
    (_BY_NAME["GPT-11B A100 kept"], {4: 24.2, 5: 0}),
    (_BY_NAME["GPT-11B V100 recomputed head"], {4: 27.0, 5: 15.6, 6: 0}),
    (_BY_NAME["GPT-77B V100 kept head"], {6: 0}),
)
"""Least idle share of the steady state in percent by memory, one micro-batch per repetend.

Known is also 20.4 % at 4 and 5 for a GPT-77B with a head, kept, on an A100, but not its times; those of a
V100 stand in for them, with zero bubble at 6.
"""
