"""A torch module cut into blocks at named submodules, in the order in which it runs them.

Values that a later block needs are handed from block to block, so the blocks are a chain: a skip connection
over a cut, or an input that is read again, travels beside the hidden values. Parameters that two blocks use
are the same object in both.

A graph of `torch.export` notes a module's operators for an example. Sizes are then numbers in it, and so are
the types of the floats that the module makes: cut it in the type that is run.
"""

from __future__ import annotations

import copy
import functools
import inspect
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from types import NoneType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from runtime.models.core.options import ModelError

INPUT_NAMES, TARGET_NAMES = "input_names", "target_names"
"""Attributes of a block: the names of its inputs and targets of a micro-batch, in order."""

_NAMES = "names_in_model"
"""Attribute of a block: the names that its parameters have in the model that was cut."""


_ONE_AT_A_TIME = threading.Lock()
"""torch.export keeps its state in variables that all threads share."""


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
        targets: Tensors that the last block takes after the outputs of the block before, rather than the
            first: ``("labels",)`` of a module that computes its loss.

    Returns:
        One more block than names. The first takes the model's inputs, each other one the outputs of the block
        before it, one tensor or several; the last returns the model's outputs.

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
        children = list(model.named_children())
        names = [name for name, _ in children]
        _check_names(at, names)
        ends = pairwise([0, *map(names.index, at), len(names)])
        return _with_names([nn.Sequential(OrderedDict(children[i:end])) for i, end in ends], model)
    graph = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    if example is not None and not isinstance(graph, fx.GraphModule):
        graph = _captured(graph, example)
    if not isinstance(graph, fx.GraphModule):
        try:
            graph = fx.symbolic_trace(graph)
        except Exception as error:  # whatever the module does with a stand-in for a tensor
            reason = " ".join(str(error).split())[:200]
            raise ModelError(
                f"cut: torch.fx cannot trace {type(model).__name__} ({type(error).__name__}: {reason}); "
                "give an example of its arguments by name, or cut a graph of torch.export"
            ) from error
    return _with_names(_cut_graph(graph, at, targets), model)


def names_in_model(name: str, block: nn.Module) -> Mapping[str, tuple[str, ...]]:
    """Return for each name in a block's state dict its names in the whole model's; of `cut` as before it."""
    names: Mapping[str, tuple[str, ...]] | None = getattr(block, _NAMES, None)
    return {key: (f"{name}.{key}",) for key in block.state_dict()} if names is None else names


def _with_names(
    blocks: Sequence[nn.Module], model: nn.Module | torch.export.ExportedProgram
) -> list[nn.Module]:
    """Let blocks remember all names of their tensors in the model's state dict."""
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
    given = {str(node.target): node for node in block_of if node.op == "placeholder"}
    for name in targets:
        if name not in given:
            raise ModelError(f"cut: the model takes no {name!r}; use targets among {', '.join(given)}")
    late = {given[name] for name in targets}
    last = [node for node in given.values() if node in late]
    first = [node for node in given.values() if node not in late]
    for node in block_of:
        if node in late or late.intersection(node.all_input_nodes):
            late.add(node)  # checks of targets may stand before anything is computed
            block_of[node] = len(at)
    handed = [first]
    for block in range(len(at)):
        later = [node for node in block_of if block_of[node] > block]
        needed = {used for node in (*later, end) for used in node.all_input_nodes if not _is_device(used)}
        handed.append([node for node in block_of if block_of[node] <= block and node in needed])
        if not handed[-1]:
            raise ModelError(f"cut: nothing is handed over at {at[block]}; leave it out")
    blocks: list[nn.Module] = []
    for block, taken in enumerate(handed):
        is_last = block == len(at)
        nodes = [node for node, other in block_of.items() if other == block and node.op != "placeholder"]
        returned = end.args[0] if is_last else tuple(handed[block + 1])
        if not is_last and len(returned) == 1:
            (returned,) = returned
        blocks.append(_block(model, [*taken, *(last if is_last else ())], nodes, returned))
    setattr(blocks[0], INPUT_NAMES, tuple(str(node.target) for node in first))
    setattr(blocks[-1], TARGET_NAMES, tuple(str(node.target) for node in last))
    return blocks


def _block_of_nodes(model: fx.GraphModule, at: Sequence[str]) -> dict[fx.Node, int]:
    """Return the block of every node that computes something, in the graph's order."""
    modules_of = {node: _submodules_of(node) for node in model.graph.nodes}
    _check_names(at, [name for names in modules_of.values() for name in names])
    block_of: dict[fx.Node, int] = {}
    block = 0
    for node, names in modules_of.items():
        while block < len(at) and at[block] in names:
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
    model: fx.GraphModule, taken: Sequence[fx.Node], nodes: Sequence[fx.Node], returned: Any
) -> nn.Module:
    """Return nodes as a module of their own, with the parameters and submodules of a model.

    Args:
        model: The model.
        taken: The arguments.
        nodes: Nodes that compute.
        returned: Nodes that are returned; None among them are left out.
    """
    graph = fx.Graph()
    copies = {node: graph.placeholder(node.name) for node in taken}

    def copy_of(node: fx.Node) -> fx.Node:
        if node not in copies and _is_device(node):
            copies[node] = graph.call_function(getattr, (copies[taken[0]], "device"))
        if node not in copies:
            assert node.op == "get_attr", f"{node} is computed in no block"
            copies[node] = graph.node_copy(node)
        return copies[node]

    for node in nodes:
        copies[node] = graph.node_copy(node, copy_of)
    if isinstance(returned, (list, tuple)):
        returned = tuple(output for output in returned if output is not None)
    graph.output(fx.map_arg(returned, copy_of))
    return _on_any_device(fx.GraphModule(model, graph))


def _captured(model: nn.Module, example: Mapping[str, Any]) -> fx.GraphModule:
    """Return the graph of a module whose placeholders are the tensors of an example, and nothing else.

    Args:
        model: Any module.
        example: Its arguments by name; tensors are put where the module's parameters are.

    Raises:
        ModelError: It cannot be captured, or returns something else than tensors.
    """
    device = next((value.device for value in model.parameters()), torch.device("cpu"))
    tensors = {name: value for name, value in example.items() if isinstance(value, Tensor)}
    constants = {name: value for name, value in example.items() if name not in tensors}
    # For torch.export, arguments that are one tensor stay one: each gets a tensor of its own.
    given = {name: torch.zeros_like(value, device=device) for name, value in tensors.items()}
    given |= {name: value.clone() for name, value in tensors.items() if value.device == device}
    forward = model.forward

    @functools.wraps(forward)
    def plain(*arguments: Any, **named: Any) -> tuple[Tensor, ...]:
        return tuple(_tensors(forward(*arguments, **named, **constants)))

    try:
        with _ONE_AT_A_TIME, patch.object(model, "forward", plain):
            graph = torch.export.export(model, (), given, strict=False).module()
    except ModelError:
        raise
    except Exception as error:  # whatever the module does with a stand-in for a tensor
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ModelError(
            f"cut: torch.export cannot capture {type(model).__name__} ({reason}); give all tensors that it "
            "needs in the example, and turn off what depends on values or keeps a cache"
        ) from error
    assert isinstance(graph, fx.GraphModule), "torch.export makes graph modules"
    return graph


def _tensors(value: Any) -> list[Tensor]:
    """Return a module's tensors, in order; None is left out.

    Raises:
        ModelError: It returns something else.
    """
    tensors: list[Tensor] = []
    for leaf in tree_leaves(value, is_leaf=is_dataclass):
        if is_dataclass(leaf):
            tensors += _tensors([getattr(leaf, field.name) for field in fields(leaf)])
        elif isinstance(leaf, Tensor):
            tensors.append(leaf)
        elif leaf is not None:
            raise ModelError(
                f"cut: the model returns a {type(leaf).__name__} beside tensors; turn that off in the "
                "example, as use_cache=False does"
            )
    return tensors


def _is_device(node: fx.Node) -> bool:
    """Tell whether a node is the device of another one's tensor."""
    return node.op == "call_function" and node.target is getattr and node.args[1] == "device"


def _autocast_type(device: torch.device) -> str:
    return device.type if torch.amp.is_autocast_available(device.type) else "cpu"


def _on_any_device(model: fx.GraphModule, more: bool = False) -> fx.GraphModule:
    """Let a graph, and those within it, make tensors on the device of its first input.

    Checks of the device and the types with which it was captured are left out.

    Args:
        model: Is changed; the graphs within it are replaced.
        more: Whether a further input, whose device alone counts, is added.
    """
    graph = model.graph
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    with graph.inserting_after(inputs[-1]) if inputs else graph.inserting_before():
        inputs += [graph.placeholder("like")] if more else []
    with graph.inserting_after(inputs[-1]):
        device = graph.call_function(getattr, (inputs[0], "device"))
    with graph.inserting_after(device):
        kind = graph.call_function(_autocast_type, (device,))
    for node in list(graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            graph.erase_node(node)
            continue
        if isinstance(node.kwargs.get("device"), (str, torch.device)):
            node.kwargs = {**node.kwargs, "device": device}
        is_moved = node.op == "call_method" and node.target == "to" and isinstance(node.args[1], str)
        node.args = tuple(
            device if isinstance(argument, torch.device) or (is_moved and index == 1) else argument
            for index, argument in enumerate(node.args)
        )
        if node.target is torch.ops.higher_order.wrap_with_autocast:
            node.args = (kind, *node.args[1:])
        for used in node.all_input_nodes:  # regions without gradients, with autocast, branches
            inner = getattr(model, str(used.target), None) if used.op == "get_attr" else None
            if isinstance(inner, fx.GraphModule):
                is_wrapped = str(node.target).startswith("wrap_with_")
                again = fx.GraphModule(inner, copy.deepcopy(inner.graph))
                setattr(model, str(used.target), _on_any_device(again, is_wrapped))
                node.args = (*node.args, *([inputs[0]] if is_wrapped else []))
    for call in (kind, device):
        if not call.users:
            graph.erase_node(call)
    model.recompile()
    return model
