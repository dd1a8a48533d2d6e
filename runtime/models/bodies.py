"""What the options say a model computes, as a body of blocks, and what is checked of it before it runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch

from placements import Kind, Placement
from runtime.models.architectures import ZooSource
from runtime.models.body import Body
from runtime.models.core.compiling import check_compile
from runtime.models.core.options import GIVEN_MODEL, USER_MODEL, ModelError, ModelOptions
from runtime.models.core.parameters import Parameter
from runtime.models.optimizer import Optimizer
from runtime.models.user.tracing import forms_from_plain, forms_to_plain, trace
from runtime.models.user.user_file import UserFile
from schedsearch.semantics.versions import WeightMode


def body_of(options: ModelOptions, placement: Placement, own: Collection[str] | None = None) -> Body:
    """Return what the model computes.

    Args:
        options: The model.
        placement: What runs where.
        own: The forward blocks that are computed here; None for all.

    Raises:
        ModelError: The model does not fit the placement, or a user's file does not make one.
    """
    if options.name == GIVEN_MODEL:
        raise ModelError(
            f"{GIVEN_MODEL!r} has no modules but those that a script of your own gives to "
            f"runtime.Pipeline; start that script, or use the model {USER_MODEL!r}",
            "name",
        )
    check_compile(options, placement)
    if options.name != USER_MODEL:
        body = Body(options, placement, ZooSource(options, placement))
    else:
        body = Body(options, placement, UserFile(options), None if options.handed_over is None else own)
        if options.handed_over is None:
            trace(body)
        else:
            body.forms |= forms_from_plain(options.handed_over, body.names)
    _check_separate(options, placement, body)
    return body


def check_parameters(options: ModelOptions, placement: Placement, body: Body) -> None:
    """Ensure that the optimizer's options are for the parameters that a model has.

    Raises:
        ModelError: A group matches no parameter, or the optimizer does not take the parameters, or parts of
            them.
    """
    found: dict[str, Parameter] = {}
    cut: list[str] = []
    for block in placement.topological_order:
        for parameter in body.parameters(block.name) if block.kind is Kind.F else ():
            found[parameter.name] = parameter
            if parameter.split is not None and len(block.groups[0]) > 1:
                cut.append(parameter.name)
    options.check_parameters(list(found), cut)
    if options.uses_torch_optimizer:
        values = [torch.empty(each.shape, device="meta").requires_grad_() for each in found.values()]
        Optimizer(options, values, list(found))


def traced(options: ModelOptions, placement: Placement) -> ModelOptions:
    """Return the options with what the blocks of a user's model hand over, so that no process need find it.

    Raises:
        ModelError: See `body_of`.
    """
    if options.name != USER_MODEL or options.handed_over is not None:
        return options
    return replace(options, handed_over=forms_to_plain(body_of(options, placement).forms))


def _check_separate(options: ModelOptions, placement: Placement, body: Body) -> None:
    """Ensure that every block can be updated by itself, where that is asked for.

    Raises:
        ModelError: Blocks share a parameter, or have replicas of theirs.
    """
    if options.weight_versions == WeightMode.FLUSH:
        return
    holder: dict[str, str] = {}
    for block in placement.topological_order:
        if block.kind is not Kind.F:
            continue
        for parameter in body.parameters(block.name):
            other = holder.setdefault(parameter.name, block.name)
            if other != block.name:
                raise ModelError(
                    f"{options.weight_versions} updates every block by itself, "
                    f"but {other} and {block.name} share {parameter.name}; use {WeightMode.FLUSH} or the "
                    "model 'synthetic'",
                    "weight_versions",
                )
