"""Stages as people write them: a YAML file, plain data, or columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, SupportsFloat, SupportsIndex, TypeGuard

from placements.forms.meaning import Meaning
from placements.forms.reading import Field, in_file
from placements.forms.texts import read_yaml
from placements.stages.stage_chain import DevicePower, SequenceSlices, Stage, StageChain, StagesError, exact

_MIB = Meaning("memory of a device", "MiB", min=0)


@dataclass(frozen=True)
class StageEntry:
    """A stage or layer, for one micro-batch.

    Raises:
        StagesError: The backward is not given, or both whole and in halves.
    """

    forward_ms: Annotated[float, Meaning("its forward", "ms", above=0)]
    backward_ms: Annotated[float | None, Meaning("its whole backward", "ms", above=0)] = None
    input_gradient_ms: Annotated[
        float | None, Meaning("instead of the whole: until the stage before can go on", "ms", above=0)
    ] = None
    weight_gradient_ms: Annotated[float | None, Meaning("beside that: the rest", "ms", above=0)] = None
    activation_mib: Annotated[
        float, Meaning("held from its forward to the end of its backward", "MiB", min=0)
    ] = 0.0
    weight_mib: Annotated[
        float, Meaning("held all the time: weights, gradients, optimizer", "MiB", min=0)
    ] = 0.0
    recompute_ms: Annotated[
        float | None, Meaning("a mode: its forward again, before its backward", "ms", above=0)
    ] = None
    recompute_mib: Annotated[
        float, Meaning("held from its forward to its backward in that mode", "MiB", min=0)
    ] = 0.0
    offload_ms: Annotated[
        float | None, Meaning("a mode: what it holds to the host, and as long back", "ms", above=0)
    ] = None

    def __post_init__(self) -> None:
        """Check how the backward is given."""
        halves = self.input_gradient_ms, self.weight_gradient_ms
        if (self.backward_ms is None) != (None not in halves) or halves.count(None) == 1:
            raise StagesError("give either backward_ms, or input_gradient_ms and weight_gradient_ms")

    @property
    def stage(self) -> Stage:
        """The same with the whole backward."""
        whole, first, second = self.backward_ms, self.input_gradient_ms, self.weight_gradient_ms
        backward = exact(first) + exact(second) if first is not None and second is not None else whole
        assert backward is not None, "checked"
        return Stage(
            self.forward_ms,
            backward,
            first,
            self.activation_mib,
            self.weight_mib,
            self.recompute_ms,
            self.recompute_mib,
            self.offload_ms,
        )


@dataclass(frozen=True)
class StagesForm:
    """A model as a chain of stages or layers, and the devices for it.

    Raises:
        StagesError: There are neither stages nor layers, both, or layers without a number of devices.
    """

    stages: Annotated[tuple[StageEntry, ...], Meaning("the stages, with the fields below")] = ()
    layers: Annotated[
        tuple[StageEntry, ...],
        Meaning(
            "instead of stages: a finer chain, divided such that the longest piece is as short as possible"
        ),
    ] = ()
    memory_mib: Annotated[
        Field | None, Meaning("of each device: one number or a list; none for no limit", "MiB")
    ] = None
    transfer_ms: Annotated[
        float, Meaning("from the end of a block to where its output is on another device", "ms", min=0)
    ] = 0.0
    num_devices: Annotated[int | None, Meaning("as many as stages; required beside layers", min=1)] = None
    input_gradient_share: Annotated[
        float,
        Meaning(
            "part of a backward that its input gradient takes where only the whole is given", above=0, below=1
        ),
    ] = 0.5
    power_w: Annotated[
        DevicePower | None,
        Meaning("of each device: `running`, while it computes, and `blocking`, while it waits", "W"),
    ] = None
    host_memory_mib: Annotated[
        float | None, Meaning("what each device may hold on its host; none for no limit", "MiB", min=0)
    ] = None
    sequence_slices: Annotated[
        SequenceSlices | None,
        Meaning(
            "how each sequence is cut into slices: `num_slices`, and `attention_share`, "
            "`kv_share` (0 to 1, default 0) and `partition` (`even`, or `equal_time`)"
        ),
    ] = None

    def __post_init__(self) -> None:
        """Check that there are stages or layers."""
        if bool(self.stages) == bool(self.layers):
            raise StagesError("stages: give either 'stages', one for each device, or 'layers', to be divided")
        if self.layers and self.num_devices is None:
            raise StagesError("num_devices: has no value beside layers; give the number of devices")


def read_stages(path: str | Path) -> StageChain:
    """Read a model's stages from a YAML or JSON file; see `stages_from_dict`.

    Raises:
        StagesError: The file cannot be read or is wrong; the message begins with its path.
    """
    data = read_yaml(path, StagesError)
    with in_file(path, StagesError):
        return stages_from_dict(data)


def stages_from_dict(data: object) -> StageChain:
    """Build a model from plain data; see `StagesForm`.

    Raises:
        StagesError: A field is missing, unknown or wrong.
    """
    if isinstance(data, dict) and "blocks" in data:
        raise StagesError("blocks: this is a placement and no stages; use placement=file placement.path=FILE")
    form = Field(data, "", StagesError).record(StagesForm)
    pieces = tuple(each.stage for each in form.stages or form.layers)
    number = len(pieces) if form.num_devices is None else form.num_devices
    memory = None if form.memory_mib is None else _read_memory(form.memory_mib, number)
    return StageChain(
        pieces,
        number,
        memory,
        form.transfer_ms,
        form.input_gradient_share,
        bool(form.layers),
        form.power_w,
        form.host_memory_mib,
        form.sequence_slices,
    )


def with_memory(stages: StageChain, memory: object, where: str) -> StageChain:
    """Return the model on devices with other memory.

    Args:
        stages: The model.
        memory: One value or a list, as ``memory_mib`` of a file.
        where: Its name in messages.
    """
    return replace(stages, memory_mib=_read_memory(Field(memory, where, StagesError), stages.num_devices))


def _read_memory(field: Field, num_devices: int) -> tuple[float, ...] | None:
    if field.value is None:
        return None
    if not isinstance(field.value, list):
        return (field.typed(float, meaning=_MIB),) * num_devices
    if len(field.value) != num_devices:
        raise StagesError(
            f"{field.where}: has {len(field.value)} numbers for {num_devices} devices; give one each, or one"
        )
    return tuple(each.typed(float, meaning=_MIB) for each in field.items())


def stages_of(
    num_stages: int | None = None,
    *,
    memory_mib: float | str | Sequence[float | str] | None = None,
    transfer_ms: float = 0.0,
    num_devices: int | None = None,
    input_gradient_share: float = 0.5,
    power_w: Mapping[str, float] | None = None,
    host_memory_mib: float | None = None,
    sequence_slices: Mapping[str, Any] | None = None,
    **columns: float | Iterable[float],
) -> StageChain:
    """Build a model from columns; see `stages_from_dict` for their names.

    Args:
        num_stages: Needed where no column is a list.
        memory_mib: Memory of each device, or of all; with another unit as text, such as ``24GiB``.
        transfer_ms: See `StageChain`, as for the rest.
        num_devices: Default: as many as stages.
        input_gradient_share: Likewise.
        power_w: Power of a device, as ``{"running": 300, "blocking": 75}``.
        host_memory_mib: See `StageChain`.
        sequence_slices: How sequences are cut, as ``{"num_slices": 8, "attention_share": 0.3}``.
        columns: One number for all stages, or one for each: lists, arrays, or columns of a DataFrame.

    Raises:
        StagesError: A column is unknown, wrong, or of another length than the others.

    >>> stages_of(forward_ms=[10, 12], backward_ms=20, memory_mib=4096).pieces[1].forward_ms
    12.0
    """
    given = {name: list(each) if _is_row(each) else each for name, each in columns.items()}
    lengths = {name: len(each) for name, each in given.items() if isinstance(each, list)}
    if num_stages is None and not lengths:
        raise StagesError("num_stages: has no value, and no column is a list; give either")
    count = max(lengths.values()) if num_stages is None else num_stages
    if not isinstance(count, SupportsIndex):
        raise StagesError(f"num_stages: a {type(count).__name__} is not a whole number; give columns by name")
    for name, length in lengths.items():
        if length != count:
            raise StagesError(f"{name}: has {length} numbers for {count} stages; give one each, or one")
    rows = [
        {name: _plain(each[i] if isinstance(each, list) else each) for name, each in given.items()}
        for i in range(count)
    ]
    memory = [*map(_plain, memory_mib)] if _is_row(memory_mib) else _plain(memory_mib)
    data = {"stages": rows, "memory_mib": memory, "transfer_ms": transfer_ms}
    data |= {} if host_memory_mib is None else {"host_memory_mib": host_memory_mib}
    number = {} if num_devices is None else {"num_devices": num_devices}
    power = None if power_w is None else dict(power_w)
    data |= {} if sequence_slices is None else {"sequence_slices": dict(sequence_slices)}
    return stages_from_dict(data | number | {"input_gradient_share": input_gradient_share, "power_w": power})


def _is_row(value: Any) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, Iterable) and not isinstance(value, str)


def _plain(value: Any) -> Any:
    """Return a number of any kind, such as numpy's, as plain data; all else as it is, to be refused."""
    return float(value) if isinstance(value, SupportsFloat) else value
