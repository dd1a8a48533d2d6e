"""Forward blocks compiled by torch, each by itself.

It does not know what a block computes. torch counts how often it compiles a piece of code, and after a few
times leaves it as it is. Many blocks run the same code, so each is given a copy of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import torch

from placements import Kind, Placement
from runtime.models.core.options import ModelError, ModelOptions

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function, block: str, backend: str | None) -> Function:
    """Return a function as torch compiles it for a block: at its first call, and for each new shape.

    Args:
        function: Function of a module, without defaults; what it returns depends on its arguments alone.
        block: Of this function and process it is compiled once.
        backend: One of `runtime.models.core.options.COMPILERS`; None for the function itself.
    """
    if backend is None:
        return function
    assert isinstance(function, FunctionType), "a function of a module"
    code = function.__code__.replace(co_name=f"{function.__name__}_{block}")
    own = FunctionType(code, function.__globals__, code.co_name)
    # Dropout falls as without the compiler.
    options: dict[str, Any] | None = {"fallback_random": True} if backend == "inductor" else None
    return cast(Function, torch.compile(own, backend=backend, options=options))


def check_compile(options: ModelOptions, placement: Placement) -> None:
    """Ensure that blocks can be compiled, if that is asked for.

    Raises:
        ModelError: A backward is split, which needs the graph that the compiler replaces, or a block is cut
            over several devices, whose sums it cannot see.
    """
    if options.compile is None:
        return
    for block in placement.blocks:
        if block.kind is Kind.W:
            raise ModelError(
                f"{options.compile} makes one backward of a block, but {placement.name} has "
                f"weight gradients by themselves ({block.name}); use compile=null, or a placement without",
                "compile",
            )
        if block.kind is Kind.F and len(block.groups[0]) > 1:
            raise ModelError(
                f"{options.compile} cannot compile the sums over the devices of {block.name} "
                f"({', '.join(map(str, block.groups[0]))}); use compile=null, or put it on one device",
                "compile",
            )
