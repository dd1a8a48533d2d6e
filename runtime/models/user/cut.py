"""A torch module cut into blocks at named submodules, in the order in which it runs them.

What a later block needs of an earlier one is handed from block to block, so the blocks are a chain: a skip
connection over a cut, or an input that is read again, travels beside the hidden values. Parameters that two
blocks use are the same object in both.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import NoneType
from typing import Any

import torch
from torch import fx, nn

from runtime.models.core.options import ModelError
from runtime.models.user.capture import captured, is_device, on_any_device, without_none

INPUT_NAMES, TARGET_NAMES = "input_names", "target_names"
"""Attributes of a block: the names of what it reads of a micro-batch, inputs and targets, in order."""

_NAMES = "names_in_model"
"""Attribute of a block: the names that its parameters have in the model that was cut."""


def cut(
    model: nn.Module | torch.export.ExportedProgram,
    at: Sequence[str],
    *,
    example: Mapping[str, Any] | Sequence[Any] | None = None,
    targets: Sequence[str] = (),
) -> list[nn.Module]:
    """Cut a model into blocks.

    Args:
        model: A `torch.nn.Sequential`, cut between its children; or a graph that `torch.export` or
            `torch.fx` captured; any other module is captured by `torch.fx.symbolic_trace`, or with an
            `example` by `torch.export.export`.
        at: Names of the submodules that begin a block, as in `named_modules`, in the order in which they run.
        example: Arguments of the module in order, or by name, as of modules of HuggingFace: the tensors of a
            micro-batch, of which only types and sizes count, and constants such as ``use_cache=False``. A
            module that returns a mapping or a dataclass then returns its tensors, in order.
        targets: Those of the tensors that the last block takes, after what the one before it returns, rather
            than the first: ``("labels",)`` of a module that computes its loss.

    Returns:
        One more block than names. The first takes the model's inputs, each other one what the block before it
        returns, one tensor or several; the last returns what the model returns.

    Raises:
        ModelError: The model cannot be captured, or does not run submodules of these names in this order.

    >>> model = nn.Sequential(OrderedDict(first=nn.Linear(4, 3), act=nn.ReLU(), last=nn.Linear(3, 2)))
    >>> [[name for name, _ in block.named_children()] for block in cut(model, at=["last"])]
    [['first', 'act'], ['last']]
    """
    if isinstance(example, (tuple, list)) and isinstance(model, nn.Module):
        example = dict(zip(inspect.signature(model.forward).parameters, example, strict=False))
    if not isinstance(example, (Mapping, NoneType)) or isinstance(at, str) or isinstance(targets, str):
        raise ModelError(
            "cut: at and targets are lists of names, and example the arguments by name or in order; not "
            f"{type(at).__name__}, {type(targets).__name__} and {type(example).__name__}"
        )
    if not isinstance(model, (nn.Module, torch.export.ExportedProgram)):
        raise ModelError(f"cut: the model is a {type(model).__name__}; give a torch module")
    if isinstance(model, nn.Sequential) and all("." not in name for name in at):
        return _with_names(_cut_sequential(model, at), model)
    original = model
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module()
    if example is not None and not isinstance(model, fx.GraphModule):
        model = captured(model, example)
    if not isinstance(model, fx.GraphModule):
        try:
            model = fx.symbolic_trace(model)
        except Exception as error:  # whatever the module does with a stand-in for a tensor
            reason = " ".join(str(error).split())[:200]
            raise ModelError(
                f"cut: torch.fx cannot trace {type(model).__name__} ({type(error).__name__}: {reason}); "
                "give an example of its arguments by name, or cut a graph of torch.export"
            ) from error
    return _with_names(_cut_graph(model, at, targets), original)


def names_in_model(block: nn.Module) -> Mapping[str, tuple[str, ...]] | None:
    """Return the names in the model that was cut of what a block has in its own; None if nothing was."""
    names: Mapping[str, tuple[str, ...]] | None = getattr(block, _NAMES, None)
    return names


def _with_names(
    blocks: Sequence[nn.Module], model: nn.Module | torch.export.ExportedProgram
) -> list[nn.Module]:
    """Remember what of the blocks is in the model's state dict, by all names that it has there."""
    state: Any = model.state_dict
    if isinstance(model, nn.Module):
        state = model.state_dict(keep_vars=True)
    same: dict[int, list[str]] = {}
    for name, value in state.items():
        same.setdefault(id(value), []).append(name)
    for block in blocks:
        names = {name: tuple(same[id(state[name])]) for name in block.state_dict() if name in state}
        setattr(block, _NAMES, names)
    return list(blocks)


def _cut_sequential(model: nn.Sequential, at: Sequence[str]) -> list[nn.Module]:
    children = list(model.named_children())
    names = [name for name, _ in children]
    _check_names(at, names)
    ends = [0, *(names.index(name) for name in at), len(names)]
    return [nn.Sequential(OrderedDict(children[first:end])) for first, end in pairwise(ends)]


def _check_names(at: Sequence[str], run: Sequence[str]) -> None:
    """Ensure that submodules are run, in this order, and none of them first: the first block would be empty.

    Raises:
        ModelError: They are not.
    """
    known = list(dict.fromkeys(run))
    for name in at:
        if name not in known:
            raise ModelError(f"cut: no submodule {name!r} is run; use some of {', '.join(known)}")
    places = [known.index(name) for name in at]
    if places != sorted(set(places)):
        raise ModelError(f"cut: {', '.join(at)} are not in the order in which they run; sort them")
    if places and places[0] == 0:
        raise ModelError(f"cut: {at[0]} runs first, so nothing is left for the first block; leave it out")


def _cut_graph(model: fx.GraphModule, at: Sequence[str], targets: Sequence[str]) -> list[nn.Module]:
    block_of = _block_of_nodes(model, at)
    (end,) = (node for node in model.graph.nodes if node.op == "output")
    given = [node for node in block_of if node.op == "placeholder"]
    last = [node for node in given if node.target in targets]
    _check_targets(targets, [str(node.target) for node in given])
    late = set(last)
    for node in block_of:
        if node in late or late.intersection(node.all_input_nodes):
            late.add(node)  # checks of targets may stand before anything is computed
            block_of[node] = len(at)
    handed: list[list[fx.Node]] = [[node for node in given if node not in last]]
    for block in range(len(at)):
        needed = {
            used
            for node in (*block_of, end)
            if block_of.get(node, len(at)) > block
            for used in node.all_input_nodes
            if used in block_of and not is_device(used)
        }
        handed.append([node for node in block_of if block_of[node] <= block and node in needed])
    blocks: list[nn.Module] = []
    for block in range(len(at) + 1):
        nodes = [node for node, other in block_of.items() if other == block and node.op != "placeholder"]
        if not handed[block]:
            raise ModelError(f"cut: nothing is handed over at {at[block - 1]}; leave it out")
        returned = handed[block + 1] if block < len(at) else None
        taken = [*handed[block], *(last if block == len(at) else ())]
        blocks.append(_block(model, taken, nodes, returned, end))
    setattr(blocks[0], INPUT_NAMES, tuple(str(node.target) for node in handed[0]))
    setattr(blocks[-1], TARGET_NAMES, tuple(str(node.target) for node in last))
    return blocks


def _check_targets(targets: Sequence[str], inputs: Sequence[str]) -> None:
    for name in targets:
        if name not in inputs:
            raise ModelError(f"cut: the model takes no {name!r}; use targets among {', '.join(inputs)}")


def _block_of_nodes(model: fx.GraphModule, at: Sequence[str]) -> dict[fx.Node, int]:
    """Return the block of every node that computes something, in the graph's order."""
    run = []
    for node in model.graph.nodes:
        run += _submodules_of(node)
    _check_names(at, run)
    block_of: dict[fx.Node, int] = {}
    block = 0
    for node in model.graph.nodes:
        while block < len(at) and at[block] in _submodules_of(node):
            block += 1
        is_guard = node.op == "call_module" and not node.users
        if node.op not in ("get_attr", "output") and not is_guard:
            block_of[node] = block
    return block_of


def _submodules_of(node: fx.Node) -> list[str]:
    """Return the names of the submodules that a node is part of, outermost first."""
    stack = node.meta.get("nn_module_stack") or {}
    names = [entry[0] if isinstance(entry, tuple) else str(key) for key, entry in stack.items()]
    if node.op == "call_module":
        names.append(str(node.target))
    return [name for name in dict.fromkeys(names) if name]


def _block(
    model: fx.GraphModule,
    taken: Sequence[fx.Node],
    nodes: Sequence[fx.Node],
    returned: Sequence[fx.Node] | None,
    end: fx.Node,
) -> nn.Module:
    """Return nodes as a module of their own.

    Args:
        model: Holds parameters and submodules.
        taken: The arguments.
        nodes: What is computed.
        returned: What is returned; None for what the model returns.
        end: The model's output node.
    """
    graph = fx.Graph()
    copies = {node: graph.placeholder(node.name) for node in taken}

    def copy_of(node: fx.Node) -> fx.Node:
        if node not in copies and is_device(node):
            copies[node] = graph.call_function(getattr, (copies[taken[0]], "device"))
        if node not in copies:
            assert node.op == "get_attr", f"{node} is computed in no block"
            copies[node] = graph.node_copy(node)
        return copies[node]

    for node in nodes:
        copies[node] = graph.node_copy(node, copy_of)
    if returned is None:
        graph.output(fx.map_arg(without_none(end.args[0]), copy_of))
    else:
        found = tuple(copy_of(node) for node in returned)
        graph.output(found[0] if len(found) == 1 else found)
    return on_any_device(fx.GraphModule(model, graph))
