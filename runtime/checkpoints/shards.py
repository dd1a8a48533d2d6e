"""Shards in the words of `torch.distributed.checkpoint`: what a process writes and reads of whole tensors.

PyTorch's default planner knows where a tensor belongs only from classes of sharded tensors: plain tensors of
one name on two processes count as copies, and all but one are lost. The planners here say for each tensor
its place in the whole, as PyTorch's planners are meant to be extended. Of copies one is written, by the
process that has the least to write; every reader reads what overlaps its own places.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    BytesIOWriteData,
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from placements.forms.texts import flush_folder
from runtime.checkpoints.manifest import METADATA, digest_of, make_empty
from runtime.checkpoints.training_state import (
    EXTRA,
    RANDOM,
    Collect,
    TensorPlace,
    TrainingState,
    device_key,
    parameter_key,
    place_of_state,
    places_of,
    random_states,
    state_key,
)

_ITEMS = "items"
"""The only key of what PyTorch copies and writes, which it looks at key by key."""


@dataclass(frozen=True)
class ShardItem:
    """Something that is written.

    Attributes:
        key: Under which it is found.
        value: A tensor, or plain data.
        place: Where the tensor belongs; None for plain data.
    """

    key: str
    value: Any
    place: TensorPlace | None = None


@dataclass(frozen=True)
class Wanted:
    """A tensor that is read.

    Attributes:
        key: Under which it is found.
        place: Where it belongs.
        into: Is overwritten.
    """

    key: str
    place: TensorPlace
    into: Tensor


def items_of(
    state: TrainingState, device: int, torch_device: torch.device, collect: Collect
) -> list[ShardItem]:
    """Return what a process writes; every process must call it together.

    Args:
        state: State of the process.
        device: Number of the device.
        torch_device: Where it computes.
        collect: Returns every device's value.

    Raises:
        CheckpointError: A tensor belongs nowhere; see `places_of` and `place_of_state`.
    """
    places, states = places_of(state.parameters, collect), state.states
    found = [
        ShardItem(device_key(RANDOM, device), random_states(torch_device)),
        ShardItem(device_key(EXTRA, device), dict(state.extra)),
    ]
    for shard, weight in state.parameters.items():
        place = places[shard.name]
        found.append(ShardItem(parameter_key(shard.name), weight.detach(), place))
        plain = {}
        for name, value in states.state_of(weight).items():
            if isinstance(value, Tensor):
                own = place_of_state(shard.name, weight, place, value)
                found.append(ShardItem(state_key(shard.name, name), value.detach(), own))
            else:
                plain[name] = value
        hyper_parameters = dict(states.hyper_parameters_of(weight))
        if plain or hyper_parameters:
            found.append(
                ShardItem(state_key(shard.name), {"state": plain, "hyper_parameters": hyper_parameters})
            )
    return [item for item in found if item.place is None or item.value.numel()]


class ShardSaver(DefaultSavePlanner):
    """Plans the writing of items, whose values are the state dict, numbered.

    Args:
        items: Items of this process; where some are copies of one another, the first is written.
    """

    def __init__(self, items: Sequence[ShardItem]) -> None:
        """Keep what is known of the items, but no value."""
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._plan: dict[MetadataIndex, WriteItem] = {}
        self._names: dict[MetadataIndex, str] = {}
        for number, item in enumerate(items):
            written = _write_item(item)
            if written.index not in self._plan:
                self._plan[written.index], self._names[written.index] = written, str(number)

    def create_local_plan(self) -> SavePlan:
        """Return what this process could write; PyTorch leaves one of several copies."""
        return SavePlan(list(self._plan.values()))

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Return the value of an item."""
        return self.state_dict[_ITEMS][self._names[index]]

    def release(self) -> None:
        """Forget all values, which else stay in memory until the next collection of garbage."""
        self.state_dict = {}


def state_dict_of(items: Sequence[ShardItem]) -> dict[str, Any]:
    """Return the values of items as a `ShardSaver` of them finds them."""
    return {_ITEMS: {str(number): item.value for number, item in enumerate(items)}}


def _write_item(item: ShardItem) -> WriteItem:
    if item.place is None:
        return WriteItem(
            MetadataIndex(item.key), WriteItemType.BYTE_IO, bytes_io_data=BytesIOWriteData(nbytes=0)
        )
    offsets = torch.Size(item.place.offsets)
    data = TensorWriteData(
        ChunkStorageMetadata(offsets, item.value.shape),
        TensorProperties(dtype=item.value.dtype),
        torch.Size(item.place.size),
    )
    return WriteItem(MetadataIndex(item.key, offsets), WriteItemType.SHARD, tensor_data=data)


@dataclass(frozen=True)
class _DigestedResult(WriteResult):
    """What was written where, and the digest of that file."""

    digest: str = ""


class ShardWriter(FileSystemWriter):
    """Writes a file for each process into a new folder, flushed to the disk, then ends the checkpoint.

    Args:
        folder: Folder of the checkpoint; what is in it is removed first.
        finish: Called with the digest of each file by name, by one process, when all files are there.
    """

    def __init__(self, folder: Path, finish: Callable[[Mapping[str, str]], None]) -> None:
        """Write nothing yet."""
        super().__init__(folder)
        self._folder, self._finish = folder, finish

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Leave the folder alone: one process prepares it."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Make the folder, empty; no process writes before."""
        make_empty(self._folder)
        return super().prepare_global_plan(plans)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the file of this process."""
        written = super().write_data(plan, planner).wait()
        flush_folder(self._folder)
        names = {each.storage_data.relative_path for each in written}
        digests = {name: digest_of(self._folder / name) or "" for name in names}
        done: Future[list[WriteResult]] = Future()
        done.set_result(
            [
                _DigestedResult(**vars(each), digest=digests[each.storage_data.relative_path])
                for each in written
            ]
        )
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """End the checkpoint, by one process."""
        super().finish(metadata, results)
        of_all = [cast(_DigestedResult, each) for written in results for each in written]
        digests = {each.storage_data.relative_path: each.digest for each in of_all}
        self._finish(digests | {METADATA: digest_of(self._folder / METADATA) or ""})


@dataclass(frozen=True)
class Whole:
    """A whole tensor of a checkpoint.

    Attributes:
        size: Its shape.
        dtype: Its type.
    """

    size: tuple[int, ...]
    dtype: torch.dtype


class ShardReader:
    """A checkpoint in the files of `torch.distributed.checkpoint`.

    Args:
        folder: Folder of the checkpoint, which is whole.
    """

    def __init__(self, folder: Path) -> None:
        """Read what is where."""
        self._reader = FileSystemReader(folder)
        self._metadata = self._reader.read_metadata()
        self._reader.set_up_storage_reader(self._metadata, True)

    def contents(self) -> dict[str, Whole | None]:
        """Return what there is: whole tensors, and None for plain data."""
        return {
            key: Whole(tuple(each.size), each.properties.dtype)
            if isinstance(each, TensorStorageMetadata)
            else None
            for key, each in self._metadata.state_dict_metadata.items()
        }

    def read(self, tensors: Sequence[Wanted], plain: Sequence[str]) -> dict[str, Any]:
        """Overwrite tensors with what overlaps them, and return plain data by key."""
        planner = _ShardLoader(tensors, plain)
        planner.set_up_planner({}, self._metadata, True)
        self._reader.read_data(planner.create_local_plan(), planner).wait()
        return planner.plain


class _ShardLoader(LoadPlanner):
    """Plans the reading of tensors, whose indices are their numbers, and of plain data.

    Attributes:
        plain: What was read of that, by key.
    """

    def __init__(self, tensors: Sequence[Wanted], plain: Sequence[str]) -> None:
        self._tensors, self._plain_keys = tensors, plain
        self.plain: dict[str, Any] = {}

    def set_up_planner(
        self, state_dict: Any, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        assert metadata is not None
        self._metadata = metadata.state_dict_metadata

    def create_local_plan(self) -> LoadPlan:
        items = [_read_plain(key) for key in self._plain_keys]
        for number, wanted in enumerate(self._tensors):
            chunk = ChunkStorageMetadata(torch.Size(wanted.place.offsets), wanted.into.shape)
            whole = cast(TensorStorageMetadata, self._metadata[wanted.key])
            found = create_read_items_for_chunk_list(wanted.key, whole, [chunk])
            items += [replace(item, dest_index=replace(item.dest_index, index=number)) for item in found]
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        self.plain[read_item.storage_index.fqn] = torch.load(value, map_location="cpu", weights_only=True)

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        assert read_item.dest_index.index is not None
        part = self._tensors[read_item.dest_index.index].into.detach()
        for dim, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            part = part.narrow(dim, start, length)
        return part

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        pass


def _read_plain(key: str) -> ReadItem:
    index, none = MetadataIndex(key), torch.Size((0,))
    return ReadItem(LoadItemType.BYTE_IO, index, none, index, none, none)
