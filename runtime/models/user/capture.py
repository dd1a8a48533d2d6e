"""The graph of a module that takes its tensors by name and returns a mapping or a dataclass of them.

`torch.export` notes what the module does with an example. Sizes are then numbers in the graph, and so are the
types of the floats that the module makes: capture it in the type that is run. It knows no cuts.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import _disable_current_modes

from runtime.models.core.options import ModelError

_ONE_AT_A_TIME = threading.Lock()
"""torch.export keeps what it does in variables that all threads share."""


def captured(model: nn.Module, example: Mapping[str, Any]) -> fx.GraphModule:
    """Return the graph of a module whose placeholders are the tensors of an example, and nothing else.

    Args:
        model: Any module.
        example: Its arguments by name; tensors are put where the module's parameters are.

    Raises:
        ModelError: It cannot be captured, or returns something else than tensors.
    """
    tensors = {name: value for name, value in example.items() if isinstance(value, Tensor)}
    constants = {name: value for name, value in example.items() if not isinstance(value, Tensor)}
    device = next((value.device for value in model.parameters()), torch.device("cpu"))
    given = {name: _on(value, device) for name, value in tensors.items()}
    before = vars(model).get("forward")
    vars(model)["forward"] = _plain(model.forward, constants)
    try:
        with _ONE_AT_A_TIME, _disable_current_modes():
            program = torch.export.export(model, (), given, strict=False)
            graph = program.module()
    except ModelError:
        raise
    except Exception as error:  # whatever the module does with a stand-in for a tensor
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ModelError(
            f"cut: torch.export cannot capture {type(model).__name__} ({reason}); give all tensors that it "
            "needs in the example, and turn off what depends on values or keeps a cache"
        ) from error
    finally:
        del vars(model)["forward"]
        if before is not None:
            vars(model)["forward"] = before
    assert isinstance(graph, fx.GraphModule), "torch.export makes graph modules"
    return graph


def _on(value: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of its own on a device: for torch.export, arguments that are one tensor stay one."""
    return value.clone() if value.device == device else torch.zeros_like(value, device=device)


def _plain(forward: Callable[..., Any], constants: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a module's forward with some arguments given, which returns a tuple of tensors."""

    @functools.wraps(forward)
    def plain(*arguments: Any, **named: Any) -> tuple[Tensor, ...]:
        return tuple(_tensors(forward(*arguments, **named, **constants)))

    return plain


def _tensors(value: Any) -> list[Tensor]:
    """Return the tensors of what a module returned, in order; what is None is left out.

    Raises:
        ModelError: There is something else.
    """
    if value is None:
        return []
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [each for item in value.values() for each in _tensors(item)]
    if is_dataclass(value):
        return [each for field in fields(value) for each in _tensors(getattr(value, field.name))]
    if isinstance(value, (tuple, list)):
        return [each for item in value for each in _tensors(item)]
    raise ModelError(
        f"cut: the model returns a {type(value).__name__} beside tensors; turn that off in the example, as "
        "use_cache=False does"
    )


def without_none(returned: Any) -> Any:
    """Return what a graph returns without what is None."""
    if isinstance(returned, (tuple, list)):
        return tuple(each for each in returned if each is not None)
    return returned


def is_device(node: fx.Node) -> bool:
    """Tell whether a node is the device of another one's tensor."""
    return node.op == "call_function" and node.target is getattr and node.args[1] == "device"


def inner_graphs(model: nn.Module, node: fx.Node) -> dict[str, fx.GraphModule]:
    """Return the graphs that a node runs, by name: regions without gradients, with autocast, branches."""
    names = [str(used.target) for used in node.all_input_nodes if used.op == "get_attr"]
    found = {name: getattr(model, name, None) for name in names}
    return {name: inner for name, inner in found.items() if isinstance(inner, fx.GraphModule)}


def _autocast_type(device: torch.device) -> str:
    return device.type if torch.amp.is_autocast_available(device.type) else "cpu"


def on_any_device(model: fx.GraphModule, more: bool = False) -> fx.GraphModule:
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
        wanted = node.kwargs.get("device")
        if isinstance(wanted, (str, torch.device)):
            node.kwargs = {**node.kwargs, "device": device}
        is_moved = node.op == "call_method" and node.target == "to" and isinstance(node.args[1], str)
        node.args = tuple(
            device if isinstance(each, torch.device) or (is_moved and index == 1) else each
            for index, each in enumerate(node.args)
        )
        if node.target is torch.ops.higher_order.wrap_with_autocast:
            node.args = (kind, *node.args[1:])
        for name, inner in inner_graphs(model, node).items():
            is_wrapped = str(node.target).startswith("wrap_with_")
            again = fx.GraphModule(inner, copy.deepcopy(inner.graph))
            setattr(model, name, on_any_device(again, is_wrapped))
            node.args = (*node.args, *([inputs[0]] if is_wrapped else []))
    for each in (kind, device):
        if not each.users:
            graph.erase_node(each)
    model.recompile()
    return model
