"""Modules built without memory, and the values of some of their parameters made later, one by one.

A module is built on the ``meta`` device while the operators that make its tensors are noted. The values of a
tensor are made by doing again the operators that it depends on, on the CPU. So a process makes only those
that it needs, and they are as the module's own code makes them.

Random operators are numbered while they are noted, and each draws from a seed of its own number. So values
depend on the code that builds the model, and never on which of its parameters a process has.

Code that needs values while it builds (`Tensor.numpy`, a generator of its own) is run for real instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from runtime.models.user.seeds import digest, seeded

Built = TypeVar("Built")

_META, _CPU = torch.device("meta"), torch.device("cpu")

_aten = torch.ops.aten

_GIVEN_DATA = (torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor)
"""Functions that make tensors of values that are there already."""

log = logging.getLogger(__name__)


class LateValuesError(Exception):
    """An operator cannot be done again."""


class _Done(NamedTuple):
    """An operator that was noted: its call, and the storages that it took, and made or changed."""

    function: Callable[..., Any]
    arguments: Sequence[Any]
    options: dict[str, Any]
    returned: list[Tensor]
    reads: frozenset[int]
    writes: frozenset[int]
    number: int | None
    """Number among random operators; None if it draws nothing."""


class _LateValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operators on the ``meta`` device, and does them again."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._done: list[_Done] = []
        self._num_random = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch not to wrap this class, for which it would import its compiler: seconds in a process."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = _without_values((args, kwargs))
        if func is _aten._local_scalar_dense.default and given:
            with _disable_current_modes():
                return self.values(given[0]).item()
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        changed = _changed(func, args, kwargs)
        # Operators that draw values import torch's compiler on the meta device.
        if is_random and args and any(args[0] is each for each in changed):
            returned = args[0]
        elif func in (_aten.randn.default, _aten.rand.default) and kwargs.get("device") == _META:
            returned = _aten.empty.memory_format(*args, **kwargs)
        else:
            returned = func(*args, **kwargs)
        made = _without_values(returned)
        draws = any(isinstance(leaf, torch.Generator) for leaf in tree_leaves((args, kwargs)))
        if draws and (made or changed):
            raise LateValuesError(f"{func} draws from a generator of its own")
        reads = frozenset(map(_storage, given))
        writes = frozenset(map(_storage, made)) - reads | frozenset(map(_storage, changed))
        if writes:
            # As they are now: a parameter may be given other memory later.
            args, kwargs, made = tree_map_only(Tensor, Tensor.detach, (args, kwargs, made))
            number = self._num_random if is_random else None
            self._done.append(_Done(func, args, kwargs, made, reads, writes, number))
            self._num_random += is_random
        return returned

    def values(self, tensor: Tensor) -> Tensor:
        """Return the values of a tensor on the CPU, which belong to the caller alone.

        Raises:
            LateValuesError: They cannot be made.
        """
        if not tensor.is_meta:
            return tensor.detach().clone()
        found: dict[int, torch.UntypedStorage] = {}

        def real(value: Any) -> Any:
            if isinstance(value, Tensor) and value.is_meta:
                return _view(value, found[_storage(value)])
            return _CPU if value == _META else value

        with torch.no_grad():
            for each in self._needed_for(tensor):
                arguments, options = tree_map(real, (list(each.arguments), each.options))
                with seeded(None if each.number is None else digest(self._seed, each.number), _CPU):
                    returned = each.function(*arguments, **options)
                results = [leaf for leaf in tree_leaves(returned) if isinstance(leaf, Tensor)]
                for made, result in zip(each.returned, results, strict=True):
                    if result.stride() != made.stride():
                        raise LateValuesError(f"{each.function} lays its result out otherwise")
                    found.setdefault(_storage(made), result.untyped_storage())
            if _storage(tensor) not in found:
                raise LateValuesError("a tensor was made by nothing that was noted")
            values = _view(tensor, found[_storage(tensor)])
            is_part = values.untyped_storage().nbytes() > values.numel() * values.itemsize
            return values.clone() if is_part else values

    def _needed_for(self, tensor: Tensor) -> list[_Done]:
        """Return the operators that a tensor's values depend on, in order."""
        wanted, needed = {_storage(tensor)}, []
        for each in reversed(self._done):
            if wanted & each.writes:
                needed.append(each)
                wanted |= each.reads
        return needed[::-1]


def _without_values(tree: Any) -> list[Tensor]:
    """Return the tensors without values in a tree."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.is_meta]


def _changed(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors without values that an operator changes in place."""
    declared = func._schema.arguments
    given = dict(zip((each.name for each in declared), args, strict=False)) | kwargs
    written = [each.name for each in declared if each.alias_info is not None and each.alias_info.is_write]
    return _without_values([given.get(name) for name in written])


def _storage(tensor: Tensor) -> int:
    """Return the identity of a tensor's memory."""
    return int(tensor.untyped_storage()._cdata)


def _view(tensor: Tensor, storage: torch.UntypedStorage) -> Tensor:
    """Return a tensor of a tensor's form in other memory."""
    empty = torch.empty(0, dtype=tensor.dtype)
    return empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


class _OnMeta(TorchFunctionMode):
    """Lets tensors be made on the ``meta`` device, where no device is said and no values are given."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _device_constructors() and func not in _GIVEN_DATA and kwargs.get("device") is None:
            kwargs["device"] = _META
        return func(*args, **kwargs)


def build_late(build: Callable[[], Built], seed: int, what: str) -> tuple[Built, Callable[[Tensor], Tensor]]:
    """Build modules without memory.

    Args:
        build: Builds them.
        seed: Seed of all random numbers.
        what: To call it in the log.

    Returns:
        The modules, and a function that makes the values of one of their tensors, which belong to the caller
        alone. If they cannot be built without values, they are built with them, and the log says so.
    """
    noted = _LateValues(seed)
    try:
        with _OnMeta(), noted:
            built = build()
        return built, noted.values
    except Exception as error:  # whatever needs values
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    with seeded(seed, _CPU):
        built = build()
    log.warning(
        "%s is built with all its values in every process, because it cannot be built without (%s); make "
        "values with torch's own operators alone",
        what,
        reason,
    )
    return built, lambda tensor: tensor.detach().clone()


def fill_attributes(module: nn.Module, values: Callable[[Tensor], Tensor]) -> None:
    """Give values to the tensors that a module has beside parameters and buffers."""
    of_torch = {name for name in vars(nn.Module()) if name.startswith("_")}
    for each in module.modules():
        for name, value in vars(each).items():
            is_tree = name not in of_torch and isinstance(value, (Tensor, list, tuple, dict))
            if is_tree and _without_values(value):
                vars(each)[name] = tree_map_only(
                    Tensor, lambda tensor: values(tensor) if tensor.is_meta else tensor, value
                )
