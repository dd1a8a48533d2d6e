"""Hooks that tell when a module or a stage of torch's pipelining computes, and change nothing.

A module's backward begins when a gradient of its output is there; a hook of the tensor says so. Torch's own
backward hooks of modules would return views of the outputs, which Megatron-LM does not take. A stage of torch
says more: its weight half is a call of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from placements import Kind, Placement
from runtime.program.tensor_flow import pair_backward

OnBlock = Callable[[str], object]
"""Takes the name of a block right before it is computed."""

Undo = Callable[[], None]

_CALLS = _FORWARD, _BACKWARD, _WEIGHT = "forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk"


def watch_module(module: nn.Module, forward: str, backward: str, on_block: OnBlock) -> Undo:
    """Tell when the whole module of a stage computes its forward and backward blocks; return the undo.

    In evaluation, which has no gradients, nothing is told.
    """

    def before(module: nn.Module, inputs: object) -> None:
        if torch.is_grad_enabled():
            on_block(forward)

    def after(module: nn.Module, inputs: object, outputs: object) -> None:
        waiting = [backward]  # the first gradient of several counts

        def begin(gradient: torch.Tensor) -> None:
            if waiting:
                on_block(waiting.pop())

        for leaf in tree_leaves(outputs):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                leaf.register_hook(begin)  # type: ignore[no-untyped-call]

    handles = [module.register_forward_pre_hook(before), module.register_forward_hook(after)]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


def watch_stage(stage: Any, blocks: Mapping[Kind, str], on_block: OnBlock) -> Undo:
    """Tell when a ``PipelineStage`` of `torch.distributed.pipelining` computes; return the undo.

    Its blocks are a forward one, and a whole backward one or its two halves.
    """
    calls = {name: getattr(stage, name) for name in _CALLS}
    before = {name: call for name, call in vars(stage).items() if name in _CALLS}
    halves = [blocks[kind] for kind in (Kind.I, Kind.W) if kind in blocks] or [blocks[Kind.B]]

    def forward(*arguments: Any, **options: Any) -> Any:
        if torch.is_grad_enabled():
            on_block(blocks[Kind.F])
        return calls[_FORWARD](*arguments, **options)

    def backward(chunk: int, loss: Any = None, full_backward: bool = True, **options: Any) -> Any:
        for half in halves if full_backward else halves[:1]:
            on_block(half)
        return calls[_BACKWARD](chunk, loss, full_backward, **options)

    def weight(*arguments: Any, **options: Any) -> Any:
        if len(halves) == 2:
            on_block(halves[1])
        return calls[_WEIGHT](*arguments, **options)

    def undo() -> None:
        for name in _CALLS:
            delattr(stage, name)
        vars(stage).update(before)

    vars(stage).update(zip(_CALLS, (forward, backward, weight), strict=True))
    return undo


def torch_stages(watched: Any) -> list[Any]:
    """Return the stages of torch that an object is or has; none if it is something else."""
    stages = getattr(watched, "_stages", None) or getattr(watched, "_stage", None) or watched
    every = list(stages) if isinstance(stages, (list, tuple)) else [stages]
    return every if all(hasattr(stage, _FORWARD) for stage in every) else []


def blocks_of_stages(placement: Placement) -> list[dict[Kind, str]]:
    """Return the blocks of each stage of a chain, in the order in which data goes through."""
    kinds = {block.name: block.kind for block in placement.blocks}
    forward = [block.name for block in placement.topological_order if block.kind is Kind.F]
    blocks = {name: {Kind.F: name} for name in forward}
    for backward, partner in pair_backward(placement).items():
        blocks[partner][kinds[backward]] = backward
    return [blocks[name] for name in forward]
