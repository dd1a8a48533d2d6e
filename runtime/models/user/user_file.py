"""The Python file of a user's own model: what it defines, and what its data function returns.

See `runtime.models.user.user` for what the file is asked for.
"""

from __future__ import annotations

import itertools
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.user.late_values import build_late, fill_attributes
from runtime.models.user.seeds import digest, seeded

_numbers = itertools.count()
"""Of files that were run to be compiled."""


def _run(path: Path, is_compiled: bool) -> dict[str, Any]:
    """Return what a file defines; torch's compiler looks its functions up in the module of their name."""
    if not is_compiled:
        return runpy.run_path(str(path))
    module = ModuleType(f"{path.stem}_{next(_numbers)}_of_schedsearch")
    defined = runpy.run_path(str(path), run_name=module.__name__)
    vars(module).update(defined)
    sys.modules[module.__name__] = module
    return defined


class UserFile:
    """The file, run once.

    Attributes:
        path: Of the file.
        name: What errors call it.
        seed: Of all random numbers.
        loss: Its function of that name, or None.

    Args:
        options: Path and seed.

    Raises:
        ModelError: The file cannot be run, or lacks a function.
    """

    def __init__(self, options: ModelOptions) -> None:
        """Run the file."""
        assert options.path is not None, "the options of a module have a path"
        self.path, self.seed = Path(options.path), options.seed
        self.name = str(self.path)
        self._values: dict[int, tuple[Tensor, Callable[[Tensor], Tensor]]] = {}
        if not self.path.is_file():
            raise ModelError(f"{self.path} is not a file; give the Python file of the model", "path")
        with self._seeded("file"):
            self._defined = _run(self.path, options.compile is not None)
        self.loss = self._function("loss")
        num_builders = sum(self._function(name) is not None for name in ("build", "blocks"))
        if self._function("data") is None or num_builders != 1:
            raise ModelError(
                f"{self.path} must define data(iteration, micro_batch), and either build(block) or blocks()",
                "path",
            )

    @property
    def loss_weight(self) -> Callable[..., float] | None:
        """The file's function of that name, or None."""
        return self._function("loss_weight")

    def modules_with_values(self, names: Sequence[str]) -> dict[str, nn.Module]:
        """Return what `modules` does, with the values of these blocks' parameters and buffers in them.

        Raises:
            ModelError: The file does not make one for each.
        """
        found = self.modules(names)
        own = [tensor for name in names for tensor in (*found[name].parameters(), *found[name].buffers())]
        made: dict[int, Tensor] = {}
        for tensor in own:
            if id(tensor) not in made:
                values = self.values(tensor)
                if isinstance(tensor, nn.Parameter):
                    values = nn.Parameter(values, requires_grad=tensor.requires_grad)
                made[id(tensor)] = values
        for module in found.values():
            for inner in module.modules():
                held: dict[str, Any]
                for held in (inner._parameters, inner._buffers):
                    held |= {name: made.get(id(tensor), tensor) for name, tensor in held.items()}
        return found

    def modules(self, names: Sequence[str]) -> dict[str, nn.Module]:
        """Return the modules of some forward blocks, and of all if the file builds all; without memory.

        ``build`` is called for these blocks alone. What is built has no values, see `values`.

        Raises:
            ModelError: The file does not make one for each.
        """
        build, blocks = self._function("build"), self._function("blocks")
        found: dict[str, Any] = {}
        if blocks is not None:
            found = self._built(lambda: dict(blocks()), "blocks")
        elif build is not None:
            for name in names:
                found |= self._built(partial(_build_one, build, name), name)
        for name in names:
            if not isinstance(found.get(name), nn.Module):
                given = ", ".join(found) if blocks is not None else type(found[name]).__name__
                raise ModelError(
                    f"{self.path} makes no torch module for block {name}, but {given}; return "
                    "one for each forward block of the placement",
                    "path",
                )
        return found

    def values(self, tensor: Tensor) -> Tensor:
        """Return the values of a tensor of one of the modules, which belong to the caller alone."""
        return self._values[id(tensor)][1](tensor)

    def _built(self, build: Callable[[], dict[str, Any]], what: str) -> dict[str, Any]:
        """Return what a function of the file builds, without values; keep what makes them."""
        with self._seeded(what):
            found, values = build_late(build, digest(self.seed, what), f"{self.path}: {what}")
        for module in found.values():
            if isinstance(module, nn.Module):
                for tensor in (*module.parameters(), *module.buffers()):
                    self._values[id(tensor)] = tensor, values
                fill_attributes(module, values)
        return found

    def data(self, iteration: int, micro_batch: int) -> tuple[Any, Any]:
        """Return inputs and targets of a micro-batch, as the file makes them.

        Raises:
            ModelError: It fails, or returns something else.
        """
        function = self._function("data")
        assert function is not None
        with self._seeded("data", iteration, micro_batch):
            found = function(iteration, micro_batch)
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise ModelError(
                f"data of {self.path} returned a {type(found).__name__}; return the pair (inputs, targets)",
                "path",
            )
        return found[0], found[1]

    @contextmanager
    def _seeded(self, *what: object) -> Iterator[None]:
        """Run a part of the file, which draws the same numbers each time.

        Raises:
            ModelError: It fails.
        """
        try:
            with seeded(digest(self.seed, *what), torch.device("cpu")):
                yield
        except ModelError:
            raise
        except (Exception, SystemExit) as error:  # whatever the file raises
            raise ModelError(f"{self.path} fails with {type(error).__name__}: {error}", "path") from error

    def _function(self, name: str) -> Callable[..., Any] | None:
        found = self._defined.get(name)
        return found if callable(found) else None


def _build_one(build: Callable[[str], Any], name: str) -> dict[str, Any]:
    return {name: build(name)}
