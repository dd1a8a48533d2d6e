"""The records and fields of a placement's file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from placements.meaning import Meaning
from placements.plain_data import Field

SCHEMA_VERSION = 1
"""Version of the placement file form; a file without the key is taken to be of this version."""


@dataclass(frozen=True)
class BlockEntry:
    """A block; numbers may be written with a point, as 2.0, and memory with a unit, as 24GiB."""

    name: Annotated[Field, Meaning("name, unique in the placement")]
    kind: Annotated[
        Field,
        Meaning(
            "`F` (forward), `R` (a forward computed again), `B` (backward), `I` and `W` (its input and weight"
            " halves), or `O`: an optimizer step, which runs once, after its inputs of every micro-batch"
        ),
    ]
    devices: Annotated[
        Field,
        Meaning(
            "where it runs. A block on several devices, or on one that stands for several GPUs, is run by "
            "all of its GPUs together: tensor parallel"
        ),
    ]
    time: Annotated[Field | None, Meaning("its time", "ticks", above=0)] = None
    time_ms: Annotated[
        Field | None,
        Meaning(
            "instead of `time`. Where times are fractions of a tick, ticks are made finer, by powers of "
            "ten, until each time is whole to a millionth",
            "ms",
            above=0,
        ),
    ] = None
    memory: Annotated[
        Field | None,
        Meaning(
            "allocated at the block's start when positive, and released when negative: one number for each "
            "of its devices, or units by device, as in `memory: {0: 1, 2: 3}` (devices left out: 0; in JSON, "
            "devices are in quotes)",
            "units",
        ),
    ] = None
    after: Annotated[Field | None, Meaning("names of blocks of the same micro-batch that it waits for")] = (
        None
    )
    transient: Annotated[
        Field | None,
        Meaning("needed besides while the block runs, on each of its devices", "units", min=0),
    ] = None
    data_parallel: Annotated[
        Field | None,
        Meaning(
            "`2`: its GPUs are two groups, each of which computes half of the micro-batch's samples", min=1
        ),
    ] = None
    stream: Annotated[
        Field | None,
        Meaning(
            "its devices' stream that it runs on, such as `communication`, `copy_out` or `copy_in`; "
            "`compute` where none is given. Each stream runs one block at a time, memory is the device's"
        ),
    ] = None
    host_memory: Annotated[
        Field | None,
        Meaning("allocated on the host of each of its devices, released when negative", "units"),
    ] = None
    in_turns: Annotated[
        Field | None,
        Meaning(
            "`true`: its groups take whole micro-batches in turn, as PipeDream's replicas do; each is a "
            "device of its own for a schedule"
        ),
    ] = None
    sequence_slice: Annotated[
        Field | None,
        Meaning(
            "the slice of the micro-batch's sequence that it computes, from 0 on; a forward after one of an "
            "earlier slice takes the keys and values that this left on the device",
            min=0,
        ),
    ] = None


@dataclass(frozen=True)
class ChangeEntry:
    """What a mode changes of a block; what is not given stays as written."""

    time: Annotated[
        Field | None, Meaning("its time; 0 for a block that does not run in this mode", "ticks", min=0)
    ] = None
    time_ms: Annotated[Field | None, Meaning("instead of `time`", "ms", min=0)] = None
    memory: Annotated[Field | None, Meaning("as of a block", "units")] = None
    transient: Annotated[Field | None, Meaning("as of a block", "units", min=0)] = None
    host_memory: Annotated[Field | None, Meaning("as of a block", "units")] = None


@dataclass(frozen=True)
class DecisionEntry:
    """Linked blocks with modes, one of which a search chooses for each micro-batch."""

    choices: Annotated[
        Field,
        Meaning(
            "modes by name; for each the blocks that differ from what is written, as in `{keep: {}, "
            "recompute: {F0: {memory: 1}, B0: {time: 6, memory: -1, transient: 9}}}`"
        ),
    ]


@dataclass(frozen=True)
class SlowdownEntry:
    """Two streams that slow each other down where both run a block on a device."""

    streams: Annotated[Field, Meaning("list: the two streams, as in `[compute, communication]`")]
    factors: Annotated[
        Field, Meaning("list: how many times as long each then takes, as in `[1.05, 1.02]`", min=1)
    ]


@dataclass(frozen=True)
class SharedStreamEntry:
    """A stream that several devices have together: it runs one block of all of them at a time."""

    stream: Annotated[Field, Meaning("its name, as `copy_out`")]
    devices: Annotated[Field, Meaning("list: the devices, two or more")]


@dataclass(frozen=True)
class TransferEntry:
    """A transfer, which may also be a list of these three."""

    source: Annotated[Field, Meaning("the block whose output it is", key="from")]
    target: Annotated[Field, Meaning("the block after it", key="to")]
    time: Annotated[Field, Meaning("from the end of the one to the start of the other", "ticks", min=0)]


@dataclass(frozen=True)
class PlacementForm:
    """The file of a placement."""

    name: Annotated[Field, Meaning("name of the placement")]
    num_devices: Annotated[Field, Meaning("number of devices", min=1)]
    tick_ms: Annotated[Field, Meaning("length of a tick", "ms", above=0)]
    blocks: Annotated[Field, Meaning("blocks of one micro-batch, in any order")]
    schema_version: Annotated[Field | None, Meaning("version of the form")] = None
    memory: Annotated[
        Field | None, Meaning("capacity of each device: one number or a list", "units", min=0)
    ] = None
    static_memory: Annotated[
        Field | None, Meaning("held by each device all the time, likewise", "units", min=0)
    ] = None
    num_gpus: Annotated[
        Field | None,
        Meaning("GPUs that each device stands for, likewise; a run has a process for each", min=1),
    ] = None
    memory_unit_mib: Annotated[Field | None, Meaning("one unit of memory", "MiB", above=0)] = None
    nodes: Annotated[
        Field | None, Meaning("list: the machine of each GPU, from 0 on, those of one in a row", min=0)
    ] = None
    host_memory: Annotated[
        Field | None, Meaning("what each device may hold on its host, likewise", "units", min=0)
    ] = None
    modes: Annotated[Field | None, Meaning("list of decisions on how blocks run")] = None
    slowdown: Annotated[Field | None, Meaning("list of streams that slow each other down")] = None
    shared_streams: Annotated[Field | None, Meaning("list of streams that devices have together")] = None
    transfer: Annotated[Field | None, Meaning("times between a block and another after it")] = None
    cost_source: Annotated[
        Field | None,
        Meaning("`times`: where times come from, and `placeholder`: true where nobody gave them"),
    ] = None
