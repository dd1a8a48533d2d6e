"""Records of a device: times from its marks, and the bytes of the tensors that it holds."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from small_runs import blocks_of
from torch import Tensor

from placements.shapes import v_shape, wave_shape
from runtime.models import Blocks, Model
from runtime.profiling.recorder import ActivationMemory

NUM_BYTES = 4 * 4 * 8
"""Of what is handed over."""


def graph_storages(output: Tensor) -> dict[int, int]:
    """Return the sizes of the storages that a tensor's graph saved or leads to, found by walking it.

    A whole number in the graph, such as a divisor, looks like a tensor there but is none.
    """
    sizes, nodes, seen = {}, [output.grad_fn], set()
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
                sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return sizes


def walked_bytes(blocks: Blocks, model: Model, others: Iterable[Tensor]) -> int:
    """Return the bytes held by all graphs, found by walking them, without the parameters."""
    sizes: dict[int, int] = {}
    for held in blocks.saved():
        for tensor in held.tensors:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            sizes |= graph_storages(tensor)
    for tensor in others:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    for weight in model.parameters.values():
        sizes.pop(weight.untyped_storage().data_ptr(), None)
    return sum(sizes.values())


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
    held, walked = memory.bytes([]), walked_bytes(blocks, model, [])
    assert alone < held <= walked <= held + 1024, "some tensors too small to be freed by themselves"
    blocks.run(halves["W"][0], 0, [])
    assert memory.bytes([]) == alone
    blocks.run(halves["I"][1], 0, [gradient])
    blocks.run(halves["W"][1], 0, [])
    assert memory.bytes([]) == 0
