"""Forward blocks compiled by torch, each by itself.

torch counts how often it compiles a piece of code, and after a few times leaves it as it is. Many blocks run
the same code, so each is given a copy of its own.
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
        function: Function of a module, without defaults; its result depends on its arguments alone.
        block: Name of the block.
        backend: Backend of `torch.compile`; None for the function itself.
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
    """Refuse to compile a split backward, whose graph the compiler replaces, and sums over devices.

    Raises:
        ModelError: A block that would be compiled has one of them.
    """
    for block in placement.blocks if options.compile is not None else ():
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
