"""A backward in two halves, first the gradients of inputs and then those of weights, computing nothing twice.

Autograd's graph of a block has steps that lead to its inputs and steps that lead to its weights alone. The
first half runs the former. What is left to the second half are the products with weights, convolutions among
them (`_DIVISIBLE`): nearly all of its work. The gradient that arrives at such a step is kept, and the second
half begins there. Everything else that leads to the inputs, as a norm or a custom function, computes all its
gradients in the first half; those of weights are then only added to what they have.

So does a product whose weight is used again nearer to the inputs, because the second half would have to run
the steps in between: nothing runs twice there either, but nothing is left to the second half.

Where the graph is cut follows from its form. That is found at the first micro-batch; at later ones the graph
is only compared with that one, and looked through anew if it has another form, as of a module that branches.

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

_DIVISIBLE = {
    "AddbmmBackward0",
    "AddmmBackward0",
    "BaddbmmBackward0",
    "BmmBackward0",
    "ConvolutionBackward0",
    "LinearBackward0",
    "MmBackward0",
}
"""The steps, by the names of torch's, that compute only those of their gradients that are asked for."""

_WEIGHT = "AccumulateGrad"
"""Autograd's name for the step that adds a gradient to that of a leaf."""

_NONE = -1

_LEAST_BYTES = 1024
"""Smaller tensors are not freed before the rest of their graph is."""

Edges = tuple[tuple[int, int], ...]
"""(step, which of the gradients that it takes) for each gradient that a step makes and that is used."""


class _Graph(NamedTuple):
    """The form of a graph; its steps are numbered as they are met, breadth first from the output.

    Attributes:
        kinds: The class of each step.
        leaves: (step, which input it is, or `_NONE` for a weight) for each step that ends at a leaf.
        edges: For each step where its gradients go; `_NONE` for one that nobody wants.
    """

    kinds: tuple[type, ...]
    leaves: tuple[tuple[int, int], ...]
    edges: tuple[Edges, ...]


class _Part(NamedTuple):
    """Weights whose gradients the second half computes in one go.

    Attributes:
        captures: Which of the gradients that the first half keeps it begins with: positions in
            `_Plan.begins`.
        weights: The steps that add to them.
    """

    captures: tuple[int, ...]
    weights: tuple[int, ...]


class _Plan(NamedTuple):
    """Where the graph is cut.

    Attributes:
        begins: The (step, which of its gradients) at which the second half begins.
        parts: Parts of the second half, in the order of their first steps.
        used_up: What steps saved that the second half does not run again: (step, name of the attribute).
        has_functions: Whether the second half begins at a custom function, which does not keep itself alive.
    """

    begins: Edges
    parts: tuple[_Part, ...]
    used_up: tuple[tuple[int, str], ...]
    has_functions: bool


class WeightHalf(NamedTuple):
    """The second half of a backward, yet to be run; it can be run once. By default there is nothing to do.

    Attributes:
        gradients: Those that the first half kept.
        parts: (Where each begins, with which gradients, the weights; None for all) of each part.
        owner: Keeps the graph alive.
    """

    gradients: tuple[Tensor, ...] = ()
    parts: tuple[tuple[list[GradientEdge], list[Tensor], list[Tensor] | None], ...] = ()
    owner: object = None

    @property
    def held(self) -> list[Tensor]:
        """The tensors that are kept for it: gradients, and what its steps saved; weights among them."""
        steps = {id(edge.node): edge.node for edges, _, _ in self.parts for edge in edges}
        return [*self.gradients, *(tensor for step in steps.values() for tensor in _saved_by(step))]

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
            gradient: Gradient of the output.
            inputs: Leaves of the graph; one that has no part in it has no gradient.
        """
        if not inputs:
            part = [get_gradient_edge(output)], [gradient], None
            return [], WeightHalf((gradient,), (part,), None)
        root = get_gradient_edge(output)
        nodes, plan = self._look_through(root, inputs)
        edges = [GradientEdge(nodes[step], number) for step, number in plan.begins]
        wanted: list[Any] = [*inputs, *edges]
        found = torch.autograd.grad(output, wanted, gradient, retain_graph=bool(edges), allow_unused=True)
        _free(nodes, plan)
        owner = _owner(output) if plan.has_functions else None
        return list(found[: len(inputs)]), _rest(plan, nodes, edges, found[len(inputs) :], owner)

    def _look_through(self, root: GradientEdge, inputs: Sequence[Tensor]) -> tuple[list[Node], _Plan]:
        """Return the steps of a graph, and where it is cut."""
        if self._graph is not None and self._plan is not None:
            nodes = _as_before(root.node, self._graph, inputs)
            if nodes is not None:
                return nodes, self._plan
        nodes, self._graph = _walk(root.node, inputs)
        self._plan = _plan(self._graph, root.output_nr, nodes)
        return nodes, self._plan


def _as_before(root: Node, graph: _Graph, inputs: Sequence[Tensor]) -> list[Node] | None:
    """Return the steps of a graph if it has this form, else None."""
    nodes = [root]
    for step, (kind, edges) in enumerate(zip(graph.kinds, graph.edges, strict=True)):
        node = nodes[step]
        if type(node) is not kind:
            return None
        nexts = node.next_functions
        if len(nexts) != len(edges):
            return None
        for (after, number), (expected, expected_number) in zip(nexts, edges, strict=True):
            if expected == len(nodes) and after is not None:
                nodes.append(after)
            known = nodes[expected] if 0 <= expected < len(nodes) else None
            if known is not after or (after is None) != (expected == _NONE) or number != expected_number:
                return None
    of_inputs = {id(value) for value in inputs}
    for step, leaf in graph.leaves:
        found = id(nodes[step].variable)  # type: ignore[attr-defined]
        if (found != id(inputs[leaf])) if leaf >= 0 else found in of_inputs:
            return None
    return nodes if len(set(nodes)) == len(nodes) else None


def _walk(root: Node, inputs: Sequence[Tensor]) -> tuple[list[Node], _Graph]:
    """Return the steps of a graph, and its form."""
    leaf_of = {id(value): index for index, value in enumerate(inputs)}
    nodes, numbers = [root], {root: 0}
    leaves: list[tuple[int, int]] = []
    edges: list[Edges] = []
    for step, node in enumerate(nodes):  # which grows meanwhile
        found = []
        for after, number in node.next_functions:
            if after is not None and after not in numbers:
                numbers[after] = len(nodes)
                nodes.append(after)
            found.append((_NONE if after is None else numbers[after], number))
        edges.append(tuple(found))
        if type(node).__name__ == _WEIGHT:
            leaves.append((step, leaf_of.get(id(node.variable), _NONE)))  # type: ignore[attr-defined]
    return nodes, _Graph(tuple(map(type, nodes)), tuple(leaves), tuple(edges))


def _plan(graph: _Graph, root_number: int, nodes: Sequence[Node]) -> _Plan:
    """Find where a graph is cut; in the names below, a step is before those that its gradients go to.

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
    leaves = {step for step, leaf in graph.leaves if leaf != _NONE}
    # Where the second half begins although it is no product: the gradient that arrives there is complete
    # after the first half. Each round may find more of them, and so more steps for the first half.
    early: set[int] = set()
    while True:
        first = _before(leaves | early, nexts)
        early -= first  # what the first half runs through anyway is no place to begin
        # The steps of the first half from which something is left to do, and what.
        rest = {step: nexts[step] - first - early - leaves for step in first}
        rest = {step: after for step, after in rest.items() if after}
        # All gradients of these steps are computed together: none is left for later (g above).
        whole = [step for step in rest if graph.kinds[step].__name__ not in _DIVISIBLE]
        more = {each for step in whole for each in rest[step]}
        parts = _parts(nexts, rest, early)
        for begins in parts:
            # A part is one run of autograd, so what leads from one of its beginnings to another would run in
            # it again, with all that is in between (w above).
            products = begins & rest.keys()
            if any(_after({begin}, nexts) & begins - {begin} for begin in products):
                more |= {each for begin in products for each in rest[begin]}
        if not more:
            break
        early |= more
    # Only edges from the first half bring a gradient that it computes; or the output's own.
    captured = {edge for step in first for edge in graph.edges[step]} | {(0, root_number)}
    kept = tuple(sorted(edge for edge in captured if edge[0] in rest or edge[0] in early))
    # What these saved is of no use to the second half, as that runs none of them again.
    used_up = [(step, name) for step in sorted(first - rest.keys()) for name in _saved_names(nodes[step])]
    return _Plan(
        kept,
        tuple(_part(graph, nexts, rest, kept, steps) for steps in parts),
        tuple(used_up),
        any(_is_function(graph.kinds[step]) for step in early),
    )


def _parts(nexts: Sequence[set[int]], rest: dict[int, set[int]], early: set[int]) -> list[set[int]]:
    """Return where the second half begins, put together where it comes to the same steps from there."""
    parts: list[tuple[set[int], set[int]]] = []
    if early:  # none leads to another part's steps, but for steps that both come to
        parts.append((set(early), _after(early, nexts)))
    for begin in sorted(rest):
        begins, reached = {begin}, _after(rest[begin], nexts)
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
    weights = (step for step in reached if graph.kinds[step].__name__ == _WEIGHT)
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


def _saved_names(node: Node) -> list[str]:
    """Return the attributes in which a step saved tensors that are worth freeing."""
    found = []
    for name in dir(type(node)):
        if name.startswith("_raw_saved_"):
            saved: Any = getattr(
                node, "saved_tensors" if _is_function(type(node)) else name.removeprefix("_raw")
            )
            values = saved if isinstance(saved, (tuple, list)) else (saved,)
            if any(isinstance(value, Tensor) and _is_worth_freeing(value) for value in values):
                found.append(name)
    return found


def _is_worth_freeing(value: Tensor) -> bool:
    is_weight = value.is_leaf and value.requires_grad
    return not is_weight and value.nbytes >= _LEAST_BYTES


def _free(nodes: Sequence[Node], plan: _Plan) -> None:
    """Forget what steps saved that do not run again; the graph itself is needed below them.

    What they saved can be replaced by anything, by the hooks that autograd has for it; so by nothing.
    """
    for step, name in plan.used_up:
        saved: Any = getattr(nodes[step], name)
        for each in saved if isinstance(saved, (tuple, list)) else (saved,):
            with suppress(RuntimeError):  # one of several is None, or a module has put it elsewhere by hooks
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
        weights: list[Any] = [nodes[step].variable for step in part.weights]  # type: ignore[attr-defined]
        if begins and weights:
            parts.append(([edge for edge, _ in begins], [each for _, each in begins], weights))
    return WeightHalf(tuple(each for each in gradients if each is not None), tuple(parts), owner)


def _saved_by(step: Node) -> Iterable[Tensor]:
    """Yield the tensors that a step saved and that are not freed yet."""
    for name in dir(step):
        if name.startswith("_saved_"):
            with suppress(RuntimeError):  # freed
                value = getattr(step, name)
                if isinstance(value, Tensor):
                    yield value
