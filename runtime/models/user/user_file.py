"""A user's own model: a Python file with a module for each forward block, the data and the loss.

The file defines, and nothing else is asked of it:

- ``build(block)``, which returns the `torch.nn.Module` of a forward block, or ``blocks()``, which returns a
  mapping of all, as `runtime.models.user.cut` makes them. In ``blocks()`` blocks may share parameters.
- ``data(iteration, micro_batch)``, which returns inputs and targets, each a tensor, several, or a mapping of
  block to these where blocks read different ones. Blocks without inputs of their own read the inputs, and so
  do those whose modules have ``input_names``, after the outputs of the blocks before.
- ``loss(*outputs, *targets)``, which returns the scalar loss of the outputs of a block that feeds no other;
  without it such a block's module is given the targets after its inputs, and returns the loss itself. Where
  `cut` was told of ``targets``, the module is given them in any case, and ``loss(*outputs)`` picks its loss.
- ``loss_weight(*targets)``, which returns the weight of a micro-batch's loss, a number of at least 0, as the
  number of tokens of which it is the mean. Without it all micro-batches, and shares of one, count the same.

A module is called with the outputs of the blocks that its block is after, in that order. Where the forward
blocks make several separate graphs (the X-shape), graph g of G reads the micro-batches ``n * G + g`` and the
loss is their mean; so both directions of Chimera can be given the same modules.

A block on several devices runs on each of them for a share of the samples (`Block.data_parallel` is their
number), as far as `runtime.models.user.tracing` finds that it can; with fewer shares than devices its module
must have layers that are cut over devices, as those of `runtime.models.core.layers`.

Random numbers depend on the seed, the iteration, the block and the micro-batch, never on the order of blocks.
Without backward blocks the modules are put into eval mode. A process keeps the values of its own blocks
alone: ``build`` is called for these, and what ``blocks()`` made for others gives its memory back. So every
process needs memory for the whole model while ``blocks()`` runs, and with ``build`` for its own part.
"""

from __future__ import annotations

import itertools
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.core.parameters import description_of, initial_values
from runtime.models.user.seeds import digest, seeded
from runtime.models.user.sources import Batches, ModuleSource

_numbers = itertools.count()
"""Numbers of files that were run."""


def _run(path: Path) -> dict[str, Any]:
    """Return a file's definitions, in a module of its own, where libraries look its classes up."""
    module = ModuleType(f"{path.stem}_{next(_numbers)}_of_schedsearch")
    defined = runpy.run_path(str(path), run_name=module.__name__)
    vars(module).update(defined)
    sys.modules[module.__name__] = module
    return defined


class UserFile(ModuleSource):
    """The file of the options' path, run once.

    Args:
        gives_away: Whether one model is made of it, which takes the modules' own tensors.

    Raises:
        ModelError: The file cannot be run, or lacks a function.
    """

    seed: int

    def __init__(self, options: ModelOptions, *, gives_away: bool = False) -> None:
        assert options.path is not None, "the options of a module have a path"
        self._path, self.seed = Path(options.path), options.seed
        self.name = str(self._path)
        self._gives_away = gives_away
        if not self._path.is_file():
            raise ModelError(f"{self._path} is not a file; give the Python file of the model", "path")
        with self._seeded("file"):
            defined = _run(self._path)
        names = "build", "blocks", "data", "loss", "loss_weight"
        self._build, self._blocks, self._data, self.loss, self.loss_weight = (
            given if callable(given := defined.get(name)) else None for name in names
        )
        if self._data is None or (self._build is None) is (self._blocks is None):
            raise ModelError(
                f"{self._path} must define data(iteration, micro_batch), and either build(block) or blocks()",
                "path",
            )

    def modules(self, names: Sequence[str]) -> dict[str, nn.Module]:
        """Return the modules of some forward blocks, and of all if the file builds all.

        ``build`` is called for these blocks alone. Modules of other blocks have no values any more.

        Raises:
            ModelError: The file does not make one for each.
        """
        build, blocks = self._build, self._blocks
        made: dict[str, Any] = {}
        if blocks is not None:
            with self._seeded("blocks"):
                made = dict(blocks())
        if build is not None:
            for name in names:
                with self._seeded(name):
                    made[name] = build(name)
        for name in names:
            if not isinstance(made.get(name), nn.Module):
                given = ", ".join(made) if blocks is not None else type(made[name]).__name__
                raise ModelError(
                    f"{self._path} makes no torch module for block {name}, but {given}; return one for each "
                    "forward block of the placement",
                    "path",
                )
            for parameter in made[name].parameters():
                if (description := description_of(parameter)) is not None:
                    parameter.data = initial_values(description, self.seed, parameter.dtype)
        kept = {memory.data_ptr() for name in names for memory in _memory(made[name])}
        for memory in (memory for name in made.keys() - set(names) for memory in _memory(made[name])):
            if memory.data_ptr() not in kept and memory.resizable():
                memory.resize_(0)
        return made

    def values(self, tensor: Tensor) -> Tensor:
        """Return the values of a tensor of one of the modules, which belong to the caller alone."""
        return tensor.detach() if self._gives_away else tensor.detach().clone()

    def batches(self, num_micro_batches: int, device: torch.device | str) -> Batches:
        """Return a function that makes inputs and targets of a micro-batch, on the CPU."""
        return self.data

    def data(self, iteration: int, micro_batch: int) -> tuple[Any, Any]:
        """Return inputs and targets of a micro-batch, as the file makes them.

        Raises:
            ModelError: It fails, or returns something else.
        """
        assert self._data is not None
        with self._seeded("data", iteration, micro_batch):
            pair = self._data(iteration, micro_batch)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ModelError(
                f"data of {self._path} returned a {type(pair).__name__}; return the pair (inputs, targets)",
                "path",
            )
        return pair[0], pair[1]

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
            raise ModelError(f"{self._path} fails with {type(error).__name__}: {error}", "path") from error


def _memory(module: object) -> Iterator[torch.UntypedStorage]:
    """Yield the memory of a module's parameters and buffers."""
    if isinstance(module, nn.Module):
        for tensor in (*module.parameters(), *module.buffers()):
            yield tensor.untyped_storage()
