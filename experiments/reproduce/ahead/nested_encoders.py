"""BigMac: the encoder of a multimodal model within the pipeline of its language model.

Each GPU of the language model's pipeline also has the whole encoder, and encodes every p-th micro-batch. By
the paper's text, encoders within the pipeline take as long as with unlimited memory, where all of them come
before and after it; and their memory does not grow with the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments.reproduce.ahead import AheadOptions, never_above, schedule_rows, searched_rows
from experiments.reproduce.item import Row, Trend, described
from placements import Block, Kind, Placement
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible

_ENCODED = 3
"""Encoded micro-batches on a GPU of the nested pipeline: of a group, the one before and the one after it."""


class EncoderCase(NamedTuple):
    """GPUs, micro-batches, and times in ms: of a stage's passes, and of the encoder's for a micro-batch."""

    num_devices: int
    num_micro_batches: int
    forward: int
    backward: int
    encoder_forward: int
    encoder_backward: int

    @property
    def num_groups(self) -> int:
        """Groups of micro-batches, of each of which a GPU encodes one."""
        return self.num_micro_batches // self.num_devices

    @property
    def unlimited_ms(self) -> int:
        """Iteration with all encoders before and behind 1F1B, which needs memory for the whole batch."""
        encoders = self.num_groups * (self.encoder_forward + self.encoder_backward)
        return encoders + (self.num_micro_batches + self.num_devices - 1) * (self.forward + self.backward)

    @property
    def placement(self) -> Placement:
        """A group of micro-batches as one of the placement, with memory for 1F1B and some encoded ones."""
        blocks, devices = [], range(self.num_devices)
        for k in devices:
            passes = [(f"E{k}", Kind.F, k, self.encoder_forward)]
            passes += [(f"F{k}.{s}", Kind.F, s, self.forward) for s in devices]
            passes += [(f"B{k}.{s}", Kind.B, s, self.backward) for s in reversed(devices)]
            passes += [(f"EB{k}", Kind.B, k, self.encoder_backward)]
            after: tuple[str, ...] = ()
            for name, kind, device, ticks in passes:
                held = 1 if kind is Kind.F else -1
                blocks.append(Block(name, kind, (device,), ticks, held, after))
                after = (name,)
        placement = Placement("nested_encoders", self.num_devices, tuple(blocks), tick_ms=1.0)
        return placement.with_memory(self.num_devices + _ENCODED)

    def nested(self) -> Schedule:
        """Return 1F1B in which all GPUs stop for encoders at the same micro-batches, each once for a group.

        Before the first forward of a group stand the encoder's backward of the group before the last, and its
        forward of the next group. So encoders delay all stages alike.
        """
        p, groups = self.num_devices, self.num_groups
        orders = []
        for device in range(p):
            order: list[Instance] = [(f"E{device}", 0)]
            for i in range(self.num_micro_batches + p - 1 - device):
                group, k = divmod(i, p)
                if k == 0 and 2 <= group < groups:
                    order.append((f"EB{device}", group - 2))
                if k == 0 and group + 1 < groups:
                    order.append((f"E{device}", group + 1))
                if group < groups:
                    order.append((f"F{k}.{device}", group))
                if (back := i - (p - 1 - device)) >= 0:
                    order.append((f"B{back % p}.{device}", back // p))
            done = {n for name, n in order if name.startswith("EB")}
            orders.append([*order, *((f"EB{device}", n) for n in range(groups) if n not in done)])
        return as_soon_as_possible(self.placement, groups, orders)


CASES = {
    f"p={p} m={m}, encoder {times}": EncoderCase(p, m, 2, 4, *times)
    for p, m in ((4, 16), (4, 32), (8, 32))
    for times in ((2, 4), (4, 8))
}
"""By name, with the ms of the encoder's forward and backward; those of a stage are 2 and 4."""


def _make(options: AheadOptions, case: EncoderCase) -> Iterator[Row]:
    nested, formula, units = case.nested(), case.unlimited_ms, case.num_devices + _ENCODED
    yield from schedule_rows("nested", nested, formula, units, "simulated; an order that the text allows")
    yield from searched_rows(case.placement, case.num_groups, formula, units, options.work_limit, nested)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    yield from never_above(rows, "with unlimited memory and encoders apart")


ITEMS = (described("bigmac", CASES, _make, _trends, small=AheadOptions(tuple(CASES)[:1], work_limit=2.5)),)
