"""What a device notes of itself: times from its marks, and the bytes of the tensors that it holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from small_runs import blocks_of
from torch import Tensor

from placements.shapes import v_shape, wave_shape
from runtime.models import Blocks, Model
from runtime.profiling.process_memory import peak_rss_mib, rss_mib
from runtime.profiling.recorder import ActivationMemory, Recorder, Times
from runtime.program.calls import BlockCall, Message, Transfer
from runtime.program.tensor_flow import RECOMPUTE
from runtime.transport.contact import machine_name

NUM_BYTES = 4 * 4 * 8
"""Of what is handed over."""


def graph_storages(output: Tensor) -> dict[int, int]:
    """Return the sizes of the storages that a tensor's graph saved or leads to, found by walking it.

    A whole number in the graph, such as a divisor, looks like a tensor there but is none.
    """
    found, nodes, seen = {}, [output.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes.extend(following for following, _ in node.next_functions)
        saved = [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]
        saved += [*getattr(node, "saved_tensors", ())]
        leaf = getattr(node, "variable", None)
        for tensor in (*saved, leaf):
            if isinstance(tensor, Tensor) and (tensor.dim() or tensor.is_floating_point()):
                found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return found


def walked_bytes(blocks: Blocks, model: Model, others: Iterable[Tensor]) -> int:
    """Return what is held, by walking every graph; parameters aside."""
    found: dict[int, int] = {}
    for held in blocks.saved():
        for tensor in held.tensors:
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            found |= graph_storages(tensor)
    for tensor in others:
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    for weight in model.parameters.values():
        found.pop(weight.untyped_storage().data_ptr(), None)
    return sum(found.values())


@pytest.mark.parametrize("frozen", [False, True])
def test_what_a_forward_block_holds_is_what_its_graph_leads_to(frozen: bool) -> None:
    placement = v_shape(2)
    blocks, model = blocks_of(placement)
    for shard, weight in model.parameters.items():
        weight.requires_grad_(not (frozen and shard.name.startswith("F1")))
    memory = ActivationMemory(placement, blocks, model)
    with memory.counting("F0", []):
        handed = blocks.run("F0", 0, [])["F1"]
    alone = memory.bytes([])
    assert alone == walked_bytes(blocks, model, []) > 5 * NUM_BYTES
    assert memory.bytes([handed]) == alone, "it is the block's output, which is held anyway"
    arrived = handed.clone()
    assert memory.bytes([arrived]) == alone + NUM_BYTES == walked_bytes(blocks, model, [arrived])
    with memory.counting("F1", [arrived]):
        blocks.run("F1", 0, [arrived])
    both = memory.bytes([])
    assert both == walked_bytes(blocks, model, []) > alone
    with memory.counting("F0", []):
        blocks.run("F0", 1, [])
    assert memory.bytes([]) == both + alone == walked_bytes(blocks, model, [])
    gradient = blocks.run("B1", 0, [])["B0"]
    assert memory.bytes([]) == 2 * alone
    assert memory.bytes([gradient]) == 2 * alone + NUM_BYTES
    blocks.run("B0", 0, [gradient])
    blocks.run("B0", 1, [gradient])
    assert memory.bytes([]) == 0


def test_micro_batches_of_one_block_hold_what_their_modes_keep() -> None:
    """The first of them is computed again, so that what autograd saves is only seen at the second."""
    placement = v_shape(1)
    blocks, model = blocks_of(placement)
    memory = ActivationMemory(placement, blocks, model)
    with memory.counting("F0", [], RECOMPUTE):
        blocks.run("F0", 0, [], RECOMPUTE)
    assert memory.bytes([]) == 0
    with memory.counting("F0", []):
        blocks.run("F0", 1, [])
    assert memory.bytes([]) == walked_bytes(blocks, model, []) > 5 * NUM_BYTES
    blocks.run("B0", 1, [])
    assert memory.bytes([]) == 0
    blocks.run("B0", 0, [])


def test_between_the_halves_of_a_backward_the_graph_is_held() -> None:
    placement = wave_shape(1, split_backward=True)
    blocks, model = blocks_of(placement)
    first, last = (block.name for block in placement.blocks if block.name.startswith("F"))
    memory = ActivationMemory(placement, blocks, model)
    with memory.counting(first, []):
        handed = blocks.run(first, 0, [])[last]
    alone = memory.bytes([])
    with memory.counting(last, [handed]):
        blocks.run(last, 0, [handed])
    assert memory.bytes([]) == walked_bytes(blocks, model, [])
    halves = {block.name[0]: [] for block in placement.blocks}
    for block in placement.topological_order:
        halves[block.name[0]].append(block.name)
    gradient = blocks.run(halves["I"][0], 0, [])[halves["I"][1]]
    found, walked = memory.bytes([]), walked_bytes(blocks, model, [])
    assert alone < found <= walked <= found + 1024, "some tensors too small to be freed by themselves"
    blocks.run(halves["W"][0], 0, [])
    assert memory.bytes([]) == alone
    blocks.run(halves["I"][1], 0, [gradient])
    blocks.run(halves["W"][1], 0, [])
    assert memory.bytes([]) == 0


@dataclass
class CountingTimes(Times):
    """A device whose work moves on by a second at each mark, whatever the script does."""

    marks: Iterator[int] = field(default_factory=lambda: iter(range(1000)))
    has_ended: bool = False

    def begin(self) -> None:
        pass

    def mark(self) -> int:
        return next(self.marks)

    def ms(self, mark: int) -> float:
        assert self.has_ended, "events of a GPU cannot be read before it has been waited for"
        return mark * 1000.0


@dataclass
class Work:
    """A transfer that ends when it is told to; like those of torch, but it cannot be hashed."""

    done: bool = False

    def wait(self) -> None:
        self.done = True

    def is_completed(self) -> bool:
        return self.done


@pytest.fixture
def recorder() -> Recorder:
    placement = v_shape(1)
    blocks, model = blocks_of(placement)
    return Recorder(0, placement, blocks, model, Times())


def test_blocks_are_timed_by_marks_which_are_read_at_the_end() -> None:
    placement, times = v_shape(1), CountingTimes()
    blocks, model = blocks_of(placement)
    recorder = Recorder(0, placement, blocks, model, times)
    recorder.begin(4)
    for micro_batch in range(2):
        run = BlockCall("F0", micro_batch, None)
        recorder.reach(run)
        recorder.start(run, [])
        recorder.stop(run, [])
    times.has_ended = True
    recorder.end()
    (found,) = recorder.records
    assert (found.iteration, found.device, found.machine) == (4, 0, machine_name())
    assert [tuple(row) for row in found.blocks] == [
        ("F0", 0, 0.0, 1000.0, 2000.0, 3000.0),
        ("F0", 1, 4000.0, 5000.0, 6000.0, 7000.0),
    ]
    assert [sample.ms for sample in found.held_bytes] == [2000.0, 3000.0, 6000.0, 7000.0]
    assert found.allocated_bytes == ()


def test_messages_end_when_they_are_seen_to(recorder: Recorder) -> None:
    received = Message(Transfer("B1", "B0", 0), 1, 0)
    sent, seen, never = (Message(Transfer("F0", "F1", micro_batch), 0, 1) for micro_batch in range(3))
    recorder.begin(0)
    for message in (received, sent, seen, never):
        recorder.post(message)
        recorder.posted(message, Work(done=message == seen))
    for message in (received, sent):
        recorder.wait(message)
        recorder.waited(message)
    run = BlockCall("F0", 0, None)
    recorder.reach(run)
    recorder.start(run, [])
    recorder.stop(run, [])
    recorder.wait(seen)
    recorder.waited(seen)
    recorder.end()
    (found,) = recorder.records
    (row,) = found.receives
    assert row[:5] == ("B1", "B0", 0, 1, 0)
    assert row.waited_ms is not None and row.ended_ms is not None
    assert 0 < row.posted_ms < row.waited_ms < row.ended_ms
    known = [(row.waited_ms is not None, row.ended_ms is not None) for row in found.sends]
    assert known == [(True, True), (False, True), (False, False)]


def test_clocks_are_noted_with_their_times(recorder: Recorder) -> None:
    recorder.request(900)
    recorder.begin(0)
    recorder.request(1410)
    recorder.request(705)
    recorder.end()
    (found,) = recorder.records
    assert [sample.value for sample in found.clock_mhz] == [1410, 705]
    assert 0 < found.clock_mhz[0].ms < found.clock_mhz[1].ms


STATM = Path("/proc/self/statm")


@pytest.mark.skipif(not STATM.exists(), reason="needs Linux")
def test_memory_is_in_mib() -> None:
    pages = int(STATM.read_text().split()[1])
    assert rss_mib() == pytest.approx(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, rel=0.02)
    assert rss_mib() <= peak_rss_mib() * 1.001
