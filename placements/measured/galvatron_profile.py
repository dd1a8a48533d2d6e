"""Profiles as today's Galvatron writes them: time and memory of a model's layers, bandwidths of a machine.

The files are found by their names, anywhere below a folder:
``computation_profiling_PRECISION_MODEL_all.json``, ``memory_profiling_PRECISION_MODEL_all.json``,
``allreduce_bandwidth_*``, ``p2p_bandwidth_*`` and ``overlap_coefficient.json``. Other files, and the raw
measurements in these, are not read. A model has layers of one kind. MB are 2^20 bytes. The module does not
know strategies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np

from placements.forms.meaning import Meaning
from placements.forms.reading import Field, json_file

_NAMED = re.compile(r"(computation|memory)_profiling_(bf16|fp16|fp32)_(.+?)(?:_all)?\.json")
_MACHINE = re.compile(r"(allreduce|p2p)_bandwidth_([1-9]\d{0,4})nodes_([1-9]\d{0,4})gpus_per_node\.json")
_TIME = re.compile(r"layertype_(\w+?)_bsz([1-9]\d{0,6})_seq([1-9]\d{0,8})")
_ALL_REDUCE = re.compile(r"allreduce_size_([1-9]\d{0,6})_consec_([01])")
_NEXT = re.compile(r"pp_size_([1-9]\d{0,6})")

_Degree = Annotated[int, Meaning("number of GPUs that share a layer", min=1)]
_SampleMs = Annotated[float, Meaning("time of a sample", "ms", above=0)]
_Mib = Annotated[float, Meaning("memory", "MB", min=0)]
_LayerMib = Annotated[float, Meaning("memory of a layer", "MB", above=0)]
_GbPerS = Annotated[float, Meaning("bandwidth", "1e9 bytes per second", above=0)]
_Slowdown = Annotated[float, Meaning("factor; 1 for none", min=1, max=2)]


class GalvatronProfileError(ValueError):
    """A file of a profile is missing or wrong; the message names file, value and remedy in one line."""


@dataclass(frozen=True)
class TimeLine:
    """Time as a line over the samples of a GPU, fitted to measurements.

    Attributes:
        ms_per_sample: Slope, above 0.
        constant_ms: Time for no sample; 0 or more.
    """

    ms_per_sample: float
    constant_ms: float

    def ms(self, samples: float) -> float:
        """Return the time of so many samples."""
        return self.constant_ms + self.ms_per_sample * samples


@dataclass(frozen=True)
class EndMemory:
    """Memory of embedding or output layer on a GPU, by the GPUs that share the vocabulary.

    Attributes:
        states_mib: Weights, gradients and the optimizer's states.
        kept_mib: Memory that one sample keeps from the forward to the backward.
    """

    states_mib: Mapping[int, float]
    kept_mib: Mapping[int, float]


@dataclass(frozen=True)
class GalvatronMemory:
    """Memory of a model's layers.

    Attributes:
        parameter_mib: Parameters of a layer in 32 bits.
        kept_mib: Kept by one sample in a layer on each GPU, by the GPUs that share it.
        input_mib: The same where the backward computes all else again, on one GPU.
        first: Embedding, on the first of several stages.
        last: Output layer, on the last of several stages.
        both: Memory of one stage with both.
    """

    parameter_mib: float
    kept_mib: Mapping[int, float]
    input_mib: float
    first: EndMemory
    last: EndMemory
    both: EndMemory


@dataclass(frozen=True)
class MachineBandwidths:
    """Bandwidths of some nodes, in 1e9 bytes per second as Galvatron counts: MB for each ms.

    Attributes:
        all_reduce: What each GPU of a ring sends, by the GPUs of the ring and whether they are neighbours.
        to_next: Bandwidth from a stage to the next one, by the number of stages.
    """

    all_reduce: Mapping[tuple[int, bool], float]
    to_next: Mapping[int, float]


@dataclass(frozen=True)
class GalvatronProfile:
    """A model on a machine.

    Attributes:
        name: Name of the model.
        precision: ``bf16``, ``fp16`` or ``fp32``.
        sequence_length: Tokens of a sample.
        block: Forward of one layer.
        other: Forward of embedding and output layer together.
        memory: Memory by whether tensor-parallel GPUs share norms and dropout too (Megatron's sequence
            parallelism).
        machines: Bandwidths by nodes and GPUs of each.
        overlap_slowdown: Factor by which computing and transfers slow each other down.
    """

    name: str
    precision: str
    sequence_length: int
    block: TimeLine
    other: TimeLine
    memory: Mapping[bool, GalvatronMemory]
    machines: Mapping[tuple[int, int], MachineBandwidths]
    overlap_slowdown: float


def is_galvatron_folder(folder: str | Path) -> bool:
    """Return whether there is a profile of Galvatron below a folder."""
    return any(Path(folder).rglob("computation_profiling_*.json"))


def read_galvatron_profile(
    folder: str | Path, model: str, sequence_length: int | None = None
) -> GalvatronProfile:
    """Read what a folder has of a model.

    Args:
        folder: Folder with the files, at any depth.
        model: Its name in theirs; ``_`` stands for ``-`` too.
        sequence_length: Sequence length to take, where several were measured.

    Raises:
        GalvatronProfileError: A file is missing or wrong.
    """
    folder = Path(folder)
    times, precision = _find(folder, "computation", model, None)
    memory, _ = _find(folder, "memory", model, precision)
    length, lines = _read_times(times, sequence_length)
    overlap = _only(folder, "overlap_coefficient.json")
    return GalvatronProfile(
        model,
        precision,
        length,
        lines["0"],
        lines["other"],
        _read_memory(memory, length),
        _read_machines(folder),
        _read_overlap(overlap),
    )


def _find(folder: Path, kind: str, model: str, precision: str | None) -> tuple[Path, str]:
    """Return the file of a model, and its precision."""
    found: list[tuple[Path, str]] = []
    known: set[str] = set()
    for path in sorted(folder.rglob(f"{kind}_profiling_*.json")):
        match = _NAMED.fullmatch(path.name)
        if match is None:
            continue
        known.add(match[3])
        if _plain(match[3]) == _plain(model) and precision in (None, match[2]):
            found.append((path, match[2]))
    if not found:
        raise GalvatronProfileError(
            f"{folder}: has no {kind}_profiling file of {model!r}"
            + (f" in {precision}" if precision else "")
            + f"; it has {', '.join(sorted(known)) or 'none'}"
        )
    if len(found) > 1:
        first, second = (path.relative_to(folder) for path, _ in found[:2])
        raise GalvatronProfileError(
            f"{folder}: has both {first} and {second}; give a folder with one of them"
        )
    return found[0]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _only(folder: Path, name: str) -> Path:
    found = sorted(folder.rglob(name))
    if len(found) != 1:
        raise GalvatronProfileError(f"{folder}: has {len(found)} files {name}; give a folder with one")
    return found[0]


def _read_times(path: Path, sequence_length: int | None) -> tuple[int, dict[str, TimeLine]]:
    """Return the sequence length, and the line of each type of layer."""
    with json_file(path, "times of layers", GalvatronProfileError) as fields:
        points: dict[tuple[int, str], list[tuple[int, float]]] = {}
        for name in fields.mapping():
            if match := _TIME.fullmatch(name):
                size, length = int(match[2]), int(match[3])
                each_ms = fields[name].typed(_SampleMs)
                points.setdefault((length, match[1]), []).append((size, size * each_ms))
        length = _length(sorted({length for length, _ in points}), sequence_length)
        kinds = {kind for known, kind in points if known == length}
        if unknown := sorted(kinds - {"0", "other"}):
            raise GalvatronProfileError(
                f"layertype_{unknown[0]}: is a second kind of layer; give a profile of equal layers"
            )
        for kind in ("0", "other"):
            if kind not in kinds:
                raise GalvatronProfileError(
                    f"lacks layertype_{kind}_bszN_seq{length}, the time of a sample in ms; add it"
                )
        return length, {kind: _line(points[length, kind]) for kind in kinds}


def _length(known: list[int], wanted: int | None) -> int:
    listed = ", ".join(map(str, known))
    if not known:
        raise GalvatronProfileError("has no layertype_0_bszN_seqN, the time of a sample in ms; add it")
    if wanted is None and len(known) > 1:
        raise GalvatronProfileError(f"sequence_length: was measured for {listed}; give one of them")
    if wanted is not None and wanted not in known:
        raise GalvatronProfileError(f"sequence_length: {wanted} was not measured, only {listed}; give one")
    return known[0] if wanted is None else wanted


def _line(points: list[tuple[int, float]]) -> TimeLine:
    """Return the line of least squares; through 0 where there is one point, or it would begin below 0."""
    sizes, times = np.array(sorted(points), dtype=float).T
    if len(sizes) > 1:
        slope, constant = np.polyfit(sizes, times, 1)
        if slope > 0 and constant >= 0:
            return TimeLine(float(slope), float(constant))
    return TimeLine(float(sizes @ times / (sizes @ sizes)), 0.0)


def _read_memory(path: Path, length: int) -> dict[bool, GalvatronMemory]:
    with json_file(path, "memory of layers", GalvatronProfileError) as fields:
        suffixes = {is_shared: "_sp" if is_shared else "" for is_shared in (True, False)}
        found = {
            is_shared: _memory(fields, suffix, length)
            for is_shared, suffix in suffixes.items()
            if f"layertype_0{suffix}" in fields.mapping()
        }
        if not found:
            raise GalvatronProfileError(
                "lacks layertype_0_sp and layertype_0, the memory of a layer; add one"
            )
        return found


def _memory(fields: Field, suffix: str, length: int) -> GalvatronMemory:
    layer = fields[f"layertype_0{suffix}"][str(length)]
    kept = layer["tp_activation_per_bsz_dict"]
    return GalvatronMemory(
        layer["parameter_size"].typed(_LayerMib),
        _by_number(kept, ("checkpoint",)),
        kept["checkpoint"].typed(_LayerMib),
        *(
            EndMemory(_by_number(where["model_states"]), _by_number(where["activation"]))
            for name in ("pp_on_first", "pp_on_last", "pp_off")
            for where in [fields[f"other_memory_{name}{suffix}"][str(length)]]
        ),
    )


def _by_number(field: Field, others: tuple[str, ...] = ()) -> dict[int, float]:
    own = {name: each for name, each in field.mapping().items() if name not in others}
    found: dict[int, float] = replace(field, value=own).typed(Mapping[_Degree, _Mib])
    if not found:
        raise field.wrong("memory by the GPUs that share a layer")
    return found


def _read_machines(folder: Path) -> dict[tuple[int, int], MachineBandwidths]:
    rings: dict[tuple[int, int], dict[tuple[int, bool], float]] = {}
    chains: dict[tuple[int, int], dict[int, float]] = {}
    for path in sorted(folder.rglob("*_bandwidth_*.json")):
        match = _MACHINE.fullmatch(path.name)
        if match is None:
            continue
        machine = int(match[2]), int(match[3])
        if machine in (rings if match[1] == "allreduce" else chains):
            raise GalvatronProfileError(f"{folder}: has {path.name} twice; give a folder with one of them")
        with json_file(path, "bandwidths", GalvatronProfileError) as fields:
            for name in fields.mapping():
                gb_s = fields[name].typed(_GbPerS)
                if ring := _ALL_REDUCE.fullmatch(name):
                    rings.setdefault(machine, {})[int(ring[1]), ring[2] == "1"] = gb_s
                elif chain := _NEXT.fullmatch(name):
                    chains.setdefault(machine, {})[int(chain[1])] = gb_s
                else:
                    raise fields[name].wrong(
                        "named allreduce_size_N_consec_0, ..._1 or pp_size_N", "rename it"
                    )
    machines = sorted({*rings, *chains})
    if not machines:
        raise GalvatronProfileError(
            f"{folder}: has no allreduce_bandwidth_*nodes_*gpus_per_node.json; give a folder with these "
            "files of the machine too"
        )
    return {each: MachineBandwidths(rings.get(each, {}), chains.get(each, {})) for each in machines}


def _read_overlap(path: Path) -> float:
    with json_file(path, "an overlap_coe", GalvatronProfileError) as data:
        return float(data["overlap_coe"].typed(_Slowdown))
