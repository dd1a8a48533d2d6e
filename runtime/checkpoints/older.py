"""Checkpoints as they were written before: a file for each device with its shards, and a first manifest.

They are only read, and like newer ones by any number of devices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from runtime.checkpoints.shards import Wanted, Whole
from runtime.checkpoints.training_state import (
    EXTRA,
    RANDOM,
    Place,
    device_key,
    parameter_key,
    place_of_state,
    places_of,
    state_key,
)
from runtime.models import ParameterShard

_STATES = {"sgd": ("momentum_buffer",), "adamw": ("step", "exp_avg", "exp_avg_sq")}
"""The states of a parameter in the order in which they were written, by the name of the optimizer."""


class OlderReader:
    """A checkpoint of the first form; like a `runtime.checkpoints.shards.ShardReader`.

    Args:
        folder: Of the checkpoint, which is whole.
        num_devices: That wrote it.
        optimizer: Of its model: ``sgd`` or ``adamw``.
    """

    def __init__(self, folder: Path, num_devices: int, optimizer: str | None) -> None:
        """Find out what is where; tensors stay on the disk until they are read."""
        self._shards: dict[str, list[tuple[Place, Tensor]]] = defaultdict(list)
        self._plain: dict[str, Any] = {}
        paths = [folder / f"device_{device}.pt" for device in range(num_devices)]
        contents = [torch.load(path, weights_only=True, mmap=True, map_location="cpu") for path in paths]
        weights = [_parameters(content) for content in contents]
        lengths = [
            {tuple(shard): value.shape[shard.dim] for shard, value in each.items() if shard.num_shards > 1}
            for each in weights
        ]
        for device, (content, parameters) in enumerate(zip(contents, weights, strict=True)):
            places = places_of(parameters, lambda _: lengths)
            self._add(content, parameters, places, _STATES.get(optimizer or "", ()))
            random = {"cpu": content["random"], "cuda": content["random_cuda"]}
            self._plain[device_key(RANDOM, device)] = {
                name: value for name, value in random.items() if value is not None
            }
            self._plain[device_key(EXTRA, device)] = {}

    def contents(self) -> dict[str, Whole | None]:
        """Return what there is: whole tensors, and None for plain data."""
        found: dict[str, Whole | None] = dict.fromkeys(self._plain)
        return found | {
            key: Whole(shards[0][0].size, shards[0][1].dtype) for key, shards in self._shards.items()
        }

    def read(self, tensors: Sequence[Wanted], plain: Sequence[str]) -> dict[str, Any]:
        """Overwrite tensors with what overlaps them, and return plain data by key."""
        for wanted in tensors:
            for place, value in self._shards[wanted.key]:
                _copy_overlap(place, value, wanted)
        return {key: self._plain[key] for key in plain}

    def _add(
        self,
        content: Mapping[str, Any],
        parameters: Mapping[ParameterShard, Tensor],
        places: Mapping[str, Place],
        names: Sequence[str],
    ) -> None:
        states = {index: values for index, *values in content["optimizer"]}
        for index, (shard, value) in enumerate(parameters.items()):
            place = places[shard.name]
            self._shards[parameter_key(shard.name)].append((place, value))
            for name, state in zip(names, states.get(index, ()), strict=False):
                own = place_of_state(shard.name, value, place, state)
                self._shards[state_key(shard.name, name)].append((own, state))


def _parameters(content: Mapping[str, Any]) -> dict[ParameterShard, Tensor]:
    return {ParameterShard(*shard): value for *shard, value in content["parameters"]}


def _copy_overlap(place: Place, value: Tensor, wanted: Wanted) -> None:
    """Copy what a shard and a wanted tensor have in common."""
    source, target = value, wanted.into.detach()
    for dim, (theirs, ours) in enumerate(zip(place.offsets, wanted.place.offsets, strict=True)):
        start = max(theirs, ours)
        length = min(theirs + value.shape[dim], ours + wanted.into.shape[dim]) - start
        if length <= 0:
            return
        source, target = source.narrow(dim, start - theirs, length), target.narrow(dim, start - ours, length)
    target.copy_(source)
