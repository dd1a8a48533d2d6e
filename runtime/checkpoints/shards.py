"""Items in the words of `torch.distributed.checkpoint`: written to and read from its files.

PyTorch's default planner knows a tensor's place only from classes of sharded tensors: plain tensors of
one name on two processes count as copies, and all but one are lost; DTensor and ShardedTensor want shards of
one process group. The planners here say for each tensor its place in the whole, as PyTorch's planners are
meant to be extended. Of copies one is written, by the process that has the least to write; every reader reads
the parts that overlap its own places.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
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
from runtime.checkpoints.training_state import Item


class ShardSaver(DefaultSavePlanner):
    """Plans the writing of the items of this process; of copies among them the first is written."""

    def __init__(self, items: Sequence[Item]) -> None:
        """Hold the items' values until `release`."""
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._values: dict[MetadataIndex, Any] = {}
        self._written: list[WriteItem] = []
        for item in items:
            written = _write_item(item)
            if written.index not in self._values:
                self._values[written.index] = item.value
                self._written.append(written)

    def create_local_plan(self) -> SavePlan:
        """Return all that this process could write; PyTorch leaves one of several copies."""
        return SavePlan(self._written)

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Return the value of an item."""
        return self._values[index]

    def release(self) -> None:
        """Forget all values, which else stay in memory until the next collection of garbage."""
        self._values = {}


def _write_item(item: Item) -> WriteItem:
    if item.place is None:
        data = BytesIOWriteData(nbytes=0)
        return WriteItem(MetadataIndex(item.key), WriteItemType.BYTE_IO, bytes_io_data=data)
    offsets = torch.Size(item.place.offsets)
    chunk = ChunkStorageMetadata(offsets, item.value.shape)
    whole = TensorWriteData(chunk, TensorProperties(dtype=item.value.dtype), torch.Size(item.place.size))
    return WriteItem(MetadataIndex(item.key, offsets), WriteItemType.SHARD, tensor_data=whole)


@dataclass(frozen=True)
class _DigestedResult(WriteResult):
    """A written item with the digest of its file."""

    digest: str = ""


class ShardWriter(FileSystemWriter):
    """Writes a file for each process into a new folder, flushed to the disk, then ends the checkpoint.

    Args:
        folder: Folder of the checkpoint; older files in it are removed first.
        finish: Called with the digest of each file by name, by one process, when all files are there.
    """

    def __init__(self, folder: Path, finish: Callable[[Mapping[str, str]], None]) -> None:
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
        names = {result.storage_data.relative_path for result in written}
        digests = {name: digest_of(self._folder / name) or "" for name in names}
        results: list[WriteResult] = [
            _DigestedResult(**vars(part), digest=digests[part.storage_data.relative_path]) for part in written
        ]
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """End the checkpoint, by one process."""
        super().finish(metadata, results)
        of_all = [cast(_DigestedResult, result) for written in results for result in written]
        digests = {result.storage_data.relative_path: result.digest for result in of_all}
        self._finish(digests | {METADATA: digest_of(self._folder / METADATA) or ""})


class ShardReader:
    """The files of a whole checkpoint.

    Attributes:
        contents: Metadata by key: whole tensors with their size and type, and plain data.

    Args:
        folder: Folder of the checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self._reader = FileSystemReader(folder)
        self._metadata = self._reader.read_metadata()
        self._reader.set_up_storage_reader(self._metadata, True)
        self.contents = self._metadata.state_dict_metadata

    def size_and_dtype(self, key: str) -> tuple[tuple[int, ...], torch.dtype] | None:
        """Return size and type of a whole tensor; None if there is no tensor under this key."""
        stored = self.contents.get(key)
        if not isinstance(stored, TensorStorageMetadata):
            return None
        return tuple(stored.size), stored.properties.dtype

    def read(self, items: Sequence[Item]) -> dict[str, Any]:
        """Overwrite tensors with the parts that overlap them, and return the plain data by key."""
        planner = _ShardLoader(items)
        planner.set_up_planner({}, self._metadata, True)
        self._reader.read_data(planner.create_local_plan(), planner).wait()
        return planner.state_dict


class _ShardLoader(DefaultLoadPlanner):
    """Plans the reading of items, whose indices are their numbers."""

    def __init__(self, items: Sequence[Item]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._items = items

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        reads: list[ReadItem] = []
        for number, item in enumerate(self._items):
            if item.place is None:
                index, none = MetadataIndex(item.key), torch.Size((0,))
                reads.append(ReadItem(LoadItemType.BYTE_IO, index, none, index, none, none))
                continue
            chunk = ChunkStorageMetadata(torch.Size(item.place.offsets), item.value.shape)
            whole = cast(TensorStorageMetadata, self.metadata.state_dict_metadata[item.key])
            for part in create_read_items_for_chunk_list(item.key, whole, [chunk]):
                reads.append(replace(part, dest_index=replace(part.dest_index, index=number)))
        return LoadPlan(reads)

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        plain = torch.load(value, map_location="cpu", weights_only=True)
        self.state_dict[read_item.dest_index.fqn] = plain

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        assert index.index is not None
        tensor: Tensor = self._items[index.index].value
        return tensor.detach()
