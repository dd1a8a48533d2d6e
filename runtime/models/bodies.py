"""The body of blocks that the options ask for, and its checks before it runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch

from placements import Placement
from runtime.models.architectures import ZooSource
from runtime.models.body import Body
from runtime.models.core.compiling import check_compile
from runtime.models.core.options import GIVEN_MODEL, USER_MODEL, ModelError, ModelOptions
from runtime.models.optimizer import Optimizer
from runtime.models.user.tracing import forms_from_plain, forms_to_plain, trace
from runtime.models.user.user_file import UserFile
from schedsearch.semantics.versions import WeightMode


def body_of(options: ModelOptions, placement: Placement, own: Collection[str] | None = None) -> Body:
    """Return the body of a model, of which these forward blocks are computed here; None for all.

    Raises:
        ModelError: The model does not fit the placement, or a user's file does not make one; or blocks share
            a parameter although each is to be updated by itself.
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
    holder: dict[str, str] = {}
    for block in body.names if options.weight_versions != WeightMode.FLUSH else ():
        for parameter in body.parameters(block):
            other = holder.setdefault(parameter.name, block)
            if other != block:
                raise ModelError(
                    f"{options.weight_versions} updates every block by itself, but {other} and {block} "
                    f"share {parameter.name}; use {WeightMode.FLUSH} or the model 'synthetic'",
                    "weight_versions",
                )
    return body


def check_parameters(options: ModelOptions, placement: Placement, body: Body) -> None:
    """Ensure that the optimizer's options are for the parameters that a model has.

    Raises:
        ModelError: A group matches no parameter, or the optimizer does not take the parameters, or parts of
            them.
    """
    found = {each.name: each for block in body.names for each in body.parameters(block)}
    cut = [
        each.name
        for block in body.names
        for each in body.parameters(block)
        if each.split is not None and len(placement.by_name[block].groups[0]) > 1
    ]
    options.check_parameters(list(found), cut)
    if options.uses_torch_optimizer:
        values = [torch.empty(each.shape, device="meta").requires_grad_() for each in found.values()]
        Optimizer(options, values, list(found))


def traced(options: ModelOptions, placement: Placement) -> ModelOptions:
    """Return the options with the forms between the blocks of a user's model, so that no process traces it.

    Raises:
        ModelError: See `body_of`.
    """
    if options.name != USER_MODEL or options.handed_over is not None:
        return options
    return replace(options, handed_over=forms_to_plain(body_of(options, placement).forms))
