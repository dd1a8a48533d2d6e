"""A backward in two halves, input gradients first and weight gradients later, computing nothing twice.

Autograd's graph of a block has steps that lead to its inputs and steps that lead to its weights alone. The
first half runs the former. The second half is left with the products with weights, convolutions among them
(`_DIVISIBLE`): nearly all of its work. The gradient that arrives at such a step is kept, and the second half
begins there. Everything else that leads to the inputs, as a norm or a custom function, computes all its
gradients in the first half; the gradients of weights are then only added in the second.

So does a product whose weight is used again nearer to the inputs, because the second half would have to run
the steps in between: nothing runs twice there either, but nothing is left to the second half.

Where the graph is cut follows from its form. It is found at the first micro-batch, and anew where the form
changes, as of a module that branches. It does not know blocks, devices and messages. The results have the
bits of a backward in one go: autograd runs the steps of a graph from the last to the first, and so does each
half.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

_DIVISIBLE = {
    "AddbmmBackward0",
    "AddmmBackward0",
    "BaddbmmBackward0",
    "BmmBackward0",
    "ConvolutionBackward0",
    "LinearBackward0",
    "MmBackward0",
}
"""Names of torch's steps that compute only the gradients that are asked for."""

_WEIGHT = "AccumulateGrad"
"""Autograd's name for the step that adds a gradient to that of a leaf."""

_NONE = -1

_LEAST_BYTES = 1024
"""Smaller tensors are not freed before the rest of their graph is."""


class _Graph(NamedTuple):
    """The form of a graph; its steps are numbered as they are met, breadth first from the output.

    Inputs are the steps that are leaves of an input; other leaves are weights. Edges are for each step the
    (step, index of its gradient) that each of its own gradients goes to; `_NONE` for one that nobody wants.
    """

    kinds: list[type]
    inputs: set[int]
    edges: list[list[tuple[int, int]]]


class _Plan(NamedTuple):
    """Where a graph is cut.

    The second half begins at (step, index of its gradient); its runs are positions among these, and steps
    that add to weights. Used up are saved tensors, (step, attribute), of steps that it does not run. If it
    begins at a custom function, that does not keep itself alive.
    """

    begins: list[tuple[int, int]]
    parts: list[tuple[list[int], list[int]]]
    used_up: list[tuple[int, str]]
    has_functions: bool


class WeightHalf(NamedTuple):
    """The second half of a backward, which can be run once. By default there is nothing to do.

    Its parts are runs: edges where they begin, with which gradients, and weights, None for all. The owner
    keeps the graph alive.
    """

    gradients: tuple[Tensor, ...] = ()
    parts: tuple[tuple[list[GradientEdge], list[Tensor], list[Tensor] | None], ...] = ()
    owner: object = None

    @property
    def held(self) -> list[Tensor]:
        """Tensors kept for it: gradients, and the tensors that its steps saved, weights among them."""
        steps = {id(edge.node): edge.node for edges, _, _ in self.parts for edge in edges}
        tensors = list(self.gradients)
        for step in steps.values():
            for name in dir(step):
                if name.startswith("_saved_"):
                    with suppress(RuntimeError):  # freed
                        value = getattr(step, name)
                        tensors += [value] if isinstance(value, Tensor) else []
        return tensors

    def run(self) -> None:
        """Add the gradients of the weights to their `grad`."""
        for edges, gradients, weights in self.parts:
            torch.autograd.backward(edges, gradients, inputs=weights)


class SplitBackward:
    """Divides the backward of a block, whose graph has the same form for each of its micro-batches."""

    def __init__(self) -> None:
        self._known: tuple[_Graph, _Plan] | None = None

    def input_half(
        self, output: Tensor, gradient: Tensor, inputs: Sequence[Tensor]
    ) -> tuple[list[Tensor | None], WeightHalf]:
        """Return the gradients of the inputs, and the work that is left.

        Saved tensors that the second half does not need are freed, as far as nothing else holds them. Inputs
        are leaves; one that has no part in the graph has no gradient. Without inputs all is left to do.
        """
        root = get_gradient_edge(output)
        if not inputs:
            return [], WeightHalf((gradient,), (([root], [gradient], None),))
        nodes, graph = _walk(root.node, inputs)
        if self._known is None or self._known[0] != graph:
            self._known = graph, _plan(graph, root.output_nr, nodes)
        plan = self._known[1]
        edges = [GradientEdge(nodes[step], number) for step, number in plan.begins]
        wanted: list[Any] = [*inputs, *edges]
        grads = torch.autograd.grad(output, wanted, gradient, retain_graph=bool(edges), allow_unused=True)
        _free(nodes, plan)
        owner = None
        if plan.has_functions:
            with torch.enable_grad():
                owner = output.view_as(output).grad_fn
        arrived = grads[len(inputs) :]
        parts = []
        for places, steps in plan.parts:
            begins = [(edges[i], grad) for i in places if (grad := arrived[i]) is not None]
            weights: list[Any] = [nodes[step].variable for step in steps]  # type: ignore[attr-defined]
            if begins and weights:
                parts.append(([edge for edge, _ in begins], [grad for _, grad in begins], weights))
        kept = tuple(grad for grad in arrived if grad is not None)
        return list(grads[: len(inputs)]), WeightHalf(kept, tuple(parts), owner)


def _walk(root: Node, inputs: Sequence[Tensor]) -> tuple[list[Node], _Graph]:
    """Return the steps of a graph, and its form."""
    leaves, nodes, numbers = set(map(id, inputs)), [root], {root: 0}
    graph = _Graph([], set(), [])
    for step, node in enumerate(nodes):  # which grows meanwhile
        edges = []
        for after, number in node.next_functions:
            if after is None:
                edges.append((_NONE, number))
                continue
            if after not in numbers:
                numbers[after] = len(nodes)
                nodes.append(after)
            edges.append((numbers[after], number))
        graph.kinds.append(type(node))
        graph.edges.append(edges)
        if not edges and type(node).__name__ == _WEIGHT and id(node.variable) in leaves:  # type: ignore[attr-defined]
            graph.inputs.add(step)
    return nodes, graph


def _plan(graph: _Graph, root_number: int, nodes: Sequence[Node]) -> _Plan:
    """Find the cuts of a graph; in the names below, a step is before the steps that read its gradients.

    In ``(x * g).mm(w)``, with x as the input, autograd goes from the output to the leaves:

        0 product         --> 1 multiplication, 2 w
        1 multiplication  --> 3 x, 4 g

    The first half runs 0 and 1, which are before x. Beside its way lie the gradients of w and g. A product
    computes only the gradients that it is asked for, so the second half begins at 0, with the gradient that
    arrived there, and ends at w. A multiplication computes all of its gradients at once. So after the first
    half that of g is there, and the second half begins at 4, where it is only added.

    >>> x, g, w = (torch.ones(2, 2, requires_grad=True) for _ in range(3))
    >>> def begins(output):
    ...     nodes, graph = _walk(output.grad_fn, [x])
    ...     return [step for step, _ in _plan(graph, 0, nodes).begins]
    >>> begins((x * g).mm(w))
    [0, 4]

    In ``x.mm(w).relu().mm(w)`` both products lead to w, and one also leads to the other:

        0 product  --> 1 relu, 2 w
        1 relu     --> 3 product
        3 product  --> 4 x, 2 w

    A run of autograd that begins at both and ends at w would go through 1 and 3 on its way from 0, a second
    time. So both gradients of w are computed in the first half, and only added in the second.

    >>> begins(x.mm(w).relu().mm(w))
    [2]
    """
    nexts = [{step for step, _ in edges if step != _NONE} for edges in graph.edges]
    before: list[set[int]] = [set() for _ in nexts]
    for step, after in enumerate(nexts):
        for later in after:
            before[later].add(step)
    # Where the second half begins although it is no product: the gradient that arrives there is complete
    # after the first half. Each round may find more of them, and so more steps for the first half.
    early: set[int] = set()
    while True:
        first = _reached({earlier for step in graph.inputs | early for earlier in before[step]}, before)
        early -= first  # where the first half runs through anyway is no place to begin
        # The steps of the first half with gradients that are left to do, and these gradients.
        rest = {step: left for step in first if (left := nexts[step] - first - early - graph.inputs)}
        # All gradients of these steps are computed together: none is left for later (g above).
        whole = [step for step in rest if graph.kinds[step].__name__ not in _DIVISIBLE]
        more = {later for step in whole for later in rest[step]}
        parts = _parts(nexts, rest, early)
        for steps, _ in parts:
            # A part is one run of autograd, so a way from one of its beginnings to another would be run
            # again, with all that is in between (w above).
            products = steps & rest.keys()
            if any(_reached({step}, nexts) & steps - {step} for step in products):
                more |= {later for step in products for later in rest[step]}
        if not more:
            break
        early |= more
    # Only edges from the first half bring a gradient that it computes; or the output's own.
    captured = {edge for step in first for edge in graph.edges[step]} | {(0, root_number)}
    begins = sorted(edge for edge in captured if edge[0] in rest or edge[0] in early)
    runs = [
        (
            [place for place, (step, _) in enumerate(begins) if step in steps],
            sorted(step for step in reached if graph.kinds[step].__name__ == _WEIGHT),
        )
        for steps, reached in parts
    ]
    used_up = [(step, name) for step in sorted(first - rest.keys()) for name in _saved_names(nodes[step])]
    has_functions = any(issubclass(graph.kinds[step], torch._C._FunctionBase) for step in early)
    return _Plan(begins, runs, used_up, has_functions)


def _parts(
    nexts: Sequence[set[int]], rest: Mapping[int, set[int]], early: Collection[int]
) -> list[tuple[set[int], set[int]]]:
    """Return the runs of the second half, each as (first steps, all steps not run in the first half).

    First steps that reach a common step share a run, and so do all early ones.
    """
    parts: list[tuple[set[int], set[int]]] = []
    if early:
        parts.append((set(early), _reached(early, nexts)))
    for begin in sorted(rest):
        begins, reached = {begin}, _reached(rest[begin], nexts)
        for part in [part for part in parts if part[1] & reached]:
            parts.remove(part)
            begins, reached = begins | part[0], reached | part[1]
        parts.append((begins, reached))
    return parts


def _reached(steps: Iterable[int], nexts: Sequence[set[int]]) -> set[int]:
    """Return these steps and all reachable from them."""
    reached = set(steps)
    queue = list(reached)
    while queue:
        new = nexts[queue.pop()] - reached
        reached |= new
        queue += new
    return reached


def _saved_names(node: Node) -> list[str]:
    """Return the attributes in which a step saved tensors that are worth freeing."""
    is_function = isinstance(node, torch._C._FunctionBase)
    names = []
    for name in dir(type(node)):
        if name.startswith("_raw_saved_"):
            saved: Any = getattr(node, "saved_tensors" if is_function else name.removeprefix("_raw"))
            for value in saved if isinstance(saved, (tuple, list)) else (saved,):
                is_weight = isinstance(value, Tensor) and value.is_leaf and value.requires_grad
                if isinstance(value, Tensor) and not is_weight and value.nbytes >= _LEAST_BYTES:
                    names.append(name)
                    break
    return names


def _free(nodes: Sequence[Node], plan: _Plan) -> None:
    """Forget the saved tensors of steps that do not run again; the graph itself is needed below them.

    Autograd's hooks can replace a saved tensor by anything; so by nothing.
    """
    for step, name in plan.used_up:
        saved: Any = getattr(nodes[step], name)
        for part in saved if isinstance(saved, (tuple, list)) else (saved,):
            with suppress(RuntimeError):  # one of several is None, or a module has put it elsewhere by hooks
                part.register_hooks(lambda tensor: None, _fail)


def _fail(nothing: None) -> Tensor:
    raise AssertionError("a step of the first half ran again")
