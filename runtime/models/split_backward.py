"""A backward in two halves, first the gradients of inputs and then those of weights, computing nothing twice.

Autograd's graph of a block has steps that lead to its inputs and steps that lead to its weights alone. The
first half runs the former and keeps the gradients that arrive where the two kinds part, as at a product of
inputs and weights; there the second half begins. Where they part follows from the graph. It is found at the
first micro-batch; at later ones the graph is only compared with that one. A graph of another form, as of a
module that branches, is looked through anew.

Some weights cannot wait. A custom function, and the few of torch's own in `_INDIVISIBLE`, make all their
gradients at once. A weight that is used again nearer to the inputs would draw the steps in between into the
second half. Their gradients are computed in the first half, so nothing runs twice there either, and the
second half adds them to those of the weights.

It does not know blocks, devices and messages. The results have the bits of a backward in one go: autograd
runs the steps of a graph from the last to the first, and so does each half.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

_INDIVISIBLE = (
    "CppFunction",
    "CudnnRnnBackward0",
    "MiopenRnnBackward0",
    "MkldnnRnnLayerBackward0",
    "PreluKernelBackward0",
    "ScaledDotProduct",
)
"""How the names of torch's own steps begin that compute all their gradients whichever are asked for."""

Edges = tuple[tuple[int, int], ...]
"""(step, which of the gradients that it takes) for each gradient that a step makes and that is used."""


class _Graph(NamedTuple):
    """The form of a graph; its steps are numbered as they are met, breadth first from the output.

    Attributes:
        kinds: The class of each step.
        leaves: For each step which input it is, or -1 for anything else.
        edges: For each step where its gradients go.
    """

    kinds: tuple[type, ...]
    leaves: tuple[int, ...]
    edges: tuple[Edges, ...]


class _Part(NamedTuple):
    """Weights whose gradients the second half computes in one go.

    Attributes:
        captures: Which of the gradients that the first half keeps it begins with: positions in `_Plan.begins`.
        weights: The steps that add to them.
    """

    captures: tuple[int, ...]
    weights: tuple[int, ...]


class _Plan(NamedTuple):
    """Where the graph is cut.

    Attributes:
        begins: The (step, which of its gradients) at which the second half begins.
        parts: Of the second half, in the order of their first steps.
        used_up: The steps that the second half does not run again.
        saved_names: What each of these saved: the names of its attributes.
        has_functions: Whether the second half begins at a custom function, which does not keep itself alive.
    """

    begins: Edges
    parts: tuple[_Part, ...]
    used_up: tuple[int, ...]
    saved_names: tuple[tuple[str, ...], ...]
    has_functions: bool


class WeightHalf(NamedTuple):
    """The second half of a backward, yet to be run; it can be run once.

    Attributes:
        gradients: Those that the first half kept.
        parts: (Where each begins, with which gradients, the weights; None for all) of each part.
        owner: Keeps the graph alive.
    """

    gradients: tuple[Tensor, ...]
    parts: tuple[tuple[list[GradientEdge], list[Tensor], list[Tensor] | None], ...]
    owner: object

    def run(self) -> None:
        """Add the gradients of the weights to their `grad`."""
        for edges, gradients, weights in self.parts:
            torch.autograd.backward(edges, gradients, inputs=weights)


class SplitBackward:
    """Divides the backward of a block, whose graph has the same form for each of its micro-batches."""

    def __init__(self) -> None:
        """Begin with no graph known."""
        self._graph: _Graph | None = None
        self._plan: _Plan | None = None

    def input_half(
        self, output: Tensor, gradient: Tensor, inputs: Sequence[Tensor]
    ) -> tuple[list[Tensor | None], WeightHalf]:
        """Return the gradients of the inputs, and what is left to do.

        What the second half does not need is freed, as far as nothing else holds it. Without inputs all is
        left to do.

        Args:
            output: With its graph.
            gradient: Of the output.
            inputs: Leaves of the graph; one that has no part in it has no gradient.
        """
        if not inputs:
            part = [get_gradient_edge(output)], [gradient], None
            return [], WeightHalf((gradient,), (part,), None)
        root = get_gradient_edge(output)
        nodes, graph = _walk(root.node, inputs)
        if self._plan is None or graph != self._graph:
            self._graph, self._plan = graph, _plan(graph, root.output_nr)
        plan = self._plan
        edges = [GradientEdge(nodes[step], number) for step, number in plan.begins]
        found = torch.autograd.grad(
            output, [*inputs, *edges], gradient, retain_graph=bool(edges), allow_unused=True
        )
        if edges:
            _free(nodes, plan)
        owner = _owner(output) if plan.has_functions else None
        return list(found[: len(inputs)]), _rest(plan, nodes, edges, found[len(inputs) :], owner)


def _walk(root: Node, inputs: Sequence[Tensor]) -> tuple[list[Node], _Graph]:
    """Return the steps of a graph, and its form."""
    leaf_of = {id(value): index for index, value in enumerate(inputs)}
    nodes, numbers = [root], {root: 0}
    leaves: list[int] = []
    edges: list[Edges] = []
    for node in nodes:  # which grows meanwhile
        found = []
        for after, number in node.next_functions:
            if after is not None:
                if after not in numbers:
                    numbers[after] = len(nodes)
                    nodes.append(after)
                found.append((numbers[after], number))
        edges.append(tuple(found))
        variable = None if found else getattr(node, "variable", None)
        leaves.append(leaf_of.get(id(variable), -1))
    return nodes, _Graph(tuple(map(type, nodes)), tuple(leaves), tuple(edges))


def _plan(graph: _Graph, root_number: int) -> _Plan:
    """Find where a graph is cut; in the names below, a step is before those that its gradients go to."""
    nexts = [{step for step, _ in edges} for edges in graph.edges]
    leaves = {step for step, leaf in enumerate(graph.leaves) if leaf >= 0}
    early: set[int] = set()
    while True:
        first = _before(leaves | early, nexts)
        early -= first
        rest = {step: nexts[step] - first - early - leaves for step in first}
        rest = {step: after for step, after in rest.items() if after}
        more = {each for step, after in rest.items() if _is_indivisible(graph.kinds[step]) for each in after}
        parts = _parts(nexts, rest, early)
        for begins in parts:
            if any(_after({begin}, nexts) & begins - {begin} for begin in begins):
                more |= {each for begin in begins & rest.keys() for each in rest[begin]}
        if not more:
            break
        early |= more
    captured = {edge for step in first for edge in graph.edges[step]} | {(0, root_number)}
    begins = tuple(sorted(edge for edge in captured if edge[0] in rest or edge[0] in early))
    used_up = tuple(sorted(first - rest.keys()))
    return _Plan(
        begins,
        tuple(_part(graph, nexts, rest, begins, steps) for steps in parts),
        used_up,
        tuple(_saved_names(graph.kinds[step]) for step in used_up),
        any(_is_function(graph.kinds[step]) for step in early),
    )


def _parts(nexts: Sequence[set[int]], rest: dict[int, set[int]], early: set[int]) -> list[set[int]]:
    """Return where the second half begins, put together where it comes to the same steps from there."""
    parts: list[tuple[set[int], set[int]]] = []
    for begin in sorted(rest.keys() | early):
        begins, reached = {begin}, _after(rest.get(begin, {begin}), nexts)
        apart = []
        for other, steps in parts:
            if steps & reached:
                begins |= other
                reached |= steps
            else:
                apart.append((other, steps))
        parts = [*apart, (begins, reached)]
    return [begins for begins, _ in parts]


def _part(
    graph: _Graph, nexts: Sequence[set[int]], rest: dict[int, set[int]], begins: Edges, steps: set[int]
) -> _Part:
    captures = tuple(position for position, (step, _) in enumerate(begins) if step in steps)
    reached = _after({each for step in steps for each in rest.get(step, {step})}, nexts)
    weights = (step for step in reached if graph.kinds[step].__name__ == "AccumulateGrad")
    return _Part(captures, tuple(sorted(weights)))


def _before(steps: set[int], nexts: Sequence[set[int]]) -> set[int]:
    """Return the steps from which one comes to some of these; not these themselves, unless that is so."""
    before: list[list[int]] = [[] for _ in nexts]
    for step, after in enumerate(nexts):
        for each in after:
            before[each].append(step)
    found: set[int] = set()
    queue = list(steps)
    while queue:
        for step in before[queue.pop()]:
            if step not in found:
                found.add(step)
                queue.append(step)
    return found


def _after(steps: Iterable[int], nexts: Sequence[set[int]]) -> set[int]:
    """Return these steps and all that one comes to from them."""
    found = set(steps)
    queue = list(found)
    while queue:
        for step in nexts[queue.pop()] - found:
            found.add(step)
            queue.append(step)
    return found


def _is_function(kind: type) -> bool:
    """Tell whether a step is a custom function, written in Python."""
    return issubclass(kind, torch._C._FunctionBase)


def _is_indivisible(kind: type) -> bool:
    return _is_function(kind) or kind.__name__.startswith(_INDIVISIBLE)


def _saved_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def _free(nodes: Sequence[Node], plan: _Plan) -> None:
    """Forget what steps saved that do not run again; the graph itself is needed below them.

    What they saved can be replaced by anything, by the hooks that autograd has for it; so by nothing.
    """
    for step, names in zip(plan.used_up, plan.saved_names, strict=True):
        for name in names:
            saved: Any = getattr(nodes[step], name)
            for each in saved if isinstance(saved, (tuple, list)) else (saved,):
                with suppress(RuntimeError):  # it saved None, or a module has put it elsewhere by hooks
                    each.register_hooks(_nothing, _is_gone)


def _nothing(tensor: Tensor) -> None:
    """Keep nothing of a tensor."""


def _is_gone(nothing: None) -> Tensor:
    raise AssertionError("a step of the first half ran again")


def _owner(output: Tensor) -> object:
    with torch.enable_grad():
        return output.view_as(output).grad_fn


def _rest(
    plan: _Plan,
    nodes: Sequence[Node],
    edges: Sequence[GradientEdge],
    gradients: Sequence[Tensor | None],
    owner: object,
) -> WeightHalf:
    """Return what is left to do; parts that no gradient has come to are not."""
    parts = []
    for part in plan.parts:
        begins = [(edges[i], gradient) for i in part.captures if (gradient := gradients[i]) is not None]
        weights: list[Any] = [getattr(nodes[step], "variable") for step in part.weights]
        if begins and weights:
            parts.append(([edge for edge, _ in begins], [each for _, each in begins], weights))
    return WeightHalf(tuple(each for each in gradients if each is not None), tuple(parts), owner)
