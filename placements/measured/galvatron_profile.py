"""Profiles as today's Galvatron writes them: time and memory of a model's layers, bandwidths of a machine.

The files are found by their names, anywhere below a folder:
``computation_profiling_PRECISION_MODEL_all.json``, ``memory_profiling_PRECISION_MODEL_all.json``,
``allreduce_bandwidth_*``, ``p2p_bandwidth_*`` and ``overlap_coefficient.json``. Other files, and the raw
measurements in these, are not read. A model has layers of one kind. MB are 2^20 bytes. The module does not
know strategies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from numpy.polynomial import Polynomial

from placements.forms.meaning import Meaning
from placements.forms.reading import Field, json_file

_NAMED = re.compile(r"\w+?_profiling_(bf16|fp16|fp32)_(.+?)(?:_all)?\.json")
_MACHINE = re.compile(r"(?:allreduce|p2p)_bandwidth_([1-9]\d{0,4})nodes_([1-9]\d{0,4})gpus_per_node\.json")
_TIME = re.compile(r"layertype_(\w+?)_bsz([1-9]\d{0,6})_seq([1-9]\d{0,8})")
_BANDWIDTH = re.compile(r"allreduce_size_([1-9]\d{0,6})_consec_([01])|pp_size_([1-9]\d{0,6})")

_SampleMs = Annotated[float, Meaning("time of a sample", "ms", above=0)]
_LayerMib = Annotated[float, Meaning("memory of a layer", "MB", above=0)]
_GbPerS = Annotated[float, Meaning("bandwidth", "1e9 bytes per second", above=0)]
_Slowdown = Annotated[float, Meaning("factor; 1 for none", min=1, max=2)]
_MibByDegree = Mapping[
    Annotated[int, Meaning("number of GPUs that share a layer", min=1)],
    Annotated[float, Meaning("memory", "MB", min=0)],
]


class GalvatronProfileError(ValueError):
    """A file of a profile is missing or wrong; the message names file, value and remedy in one line."""


class EndMemory(NamedTuple):
    """Memory of embedding or output layer on a GPU, by the GPUs that share the vocabulary."""

    states_mib: Annotated[_MibByDegree, Meaning("weights, gradients, optimizer", key="model_states")]
    kept_mib: Annotated[_MibByDegree, Meaning("kept by a sample until the backward", key="activation")]


class GalvatronMemory(NamedTuple):
    """Memory of a model's layers: of a layer, and of the ends of one and of several stages.

    Attributes:
        parameter_mib: Parameters of a layer in 32 bits.
        kept_mib: Kept by one sample in a layer on each GPU, by the GPUs that share it.
        input_mib: The same where the backward computes all else again, on one GPU.
    """

    parameter_mib: float
    kept_mib: Mapping[int, float]
    input_mib: float
    first: EndMemory
    last: EndMemory
    both: EndMemory


class MachineBandwidths(NamedTuple):
    """Bandwidths of some nodes, in 1e9 bytes per second as Galvatron counts: MB for each ms.

    Attributes:
        all_reduce: Bandwidth of each GPU of a ring, by the GPUs of the ring and whether these are neighbours.
        to_next: Bandwidth from a stage to the next one, by the number of stages.
    """

    all_reduce: dict[tuple[int, bool], float]
    to_next: dict[int, float]


class GalvatronProfile(NamedTuple):
    """A model on a machine: forward of a block, and of embedding and output layer together.

    Both are ms as a line over the samples of a GPU.

    Attributes:
        precision: ``bf16``, ``fp16`` or ``fp32``.
        memory: Memory by whether tensor-parallel GPUs share norms and dropout too (Megatron's sequence
            parallelism).
        machines: Bandwidths by nodes and GPUs of each.
        overlap_slowdown: Factor by which computing and transfers slow each other down.
    """

    name: str
    precision: str
    sequence_length: int
    block: Polynomial
    other: Polynomial
    memory: Mapping[bool, GalvatronMemory]
    machines: Mapping[tuple[int, int], MachineBandwidths]
    overlap_slowdown: float


def is_galvatron_folder(folder: str | Path) -> bool:
    """Return whether a folder has a Galvatron profile at any depth."""
    return any(Path(folder).rglob("computation_profiling_*.json"))


def read_galvatron_profile(
    folder: str | Path, model: str, sequence_length: int | None = None
) -> GalvatronProfile:
    """Read a model's profile from a folder of Galvatron's files.

    Args:
        folder: Folder with the files, at any depth.
        model: Name in the names of the files; ``_`` also matches ``-``.
        sequence_length: Sequence length to take, where several were measured.

    Raises:
        GalvatronProfileError: A file is missing or wrong.
    """
    folder = Path(folder)
    times, precision = _find(folder, "computation_profiling", model)
    memory, _ = _find(folder, f"memory_profiling_{precision}", model)
    overlap = _only(folder, folder.rglob("overlap_coefficient.json"), "overlap_coefficient.json")
    with json_file(times, "times of layers", GalvatronProfileError) as data:
        length, block, other = _times(data, sequence_length)
    with json_file(memory, "memory of layers", GalvatronProfileError) as data:
        held = {
            end == "_sp": _memory(data, end, length)
            for end in ("_sp", "")
            if f"layertype_0{end}" in data.mapping()
        }
        if not held:
            raise data.mistake("lacks layertype_0_sp and layertype_0, the memory of a layer; add one")
    with json_file(overlap, "an overlap_coe", GalvatronProfileError) as data:
        slowdown: float = data["overlap_coe"].typed(_Slowdown)
    machines = _machines(folder)
    return GalvatronProfile(model, precision, length, block, other, held, machines, slowdown)


def _find(folder: Path, kind: str, model: str) -> tuple[Path, str]:
    """Return a model's file and its precision."""
    matches = {path: _NAMED.fullmatch(path.name) for path in folder.rglob(f"{kind}_*.json")}
    known, wanted = {path: (m[1], m[2]) for path, m in matches.items() if m}, model.lower().replace("_", "-")
    fitting = [path for path, (_, name) in known.items() if name.lower().replace("_", "-") == wanted]
    others = ", ".join(sorted({name for _, name in known.values()})) or "none"
    path = _only(folder, fitting, f"{kind} file of {model!r}", f"; it has {others}")
    return path, known[path][0]


def _only(folder: Path, paths: Iterable[Path], name: str, others: str = "; give a folder with one") -> Path:
    matches = sorted(paths)
    if not matches:
        raise GalvatronProfileError(f"{folder}: has no {name}{others}")
    if len(matches) > 1:
        first, second = (path.relative_to(folder) for path in matches[:2])
        raise GalvatronProfileError(f"{folder}: has both {first} and {second}; give a folder with one")
    return matches[0]


def _times(data: Field, sequence_length: int | None) -> tuple[int, Polynomial, Polynomial]:
    """Return the sequence length, and the lines of a block and of the other layers."""
    points: dict[int, dict[str, list[tuple[int, float]]]] = {}
    for name in data.mapping():
        if match := _TIME.fullmatch(name):
            size, of_length = int(match[2]), points.setdefault(int(match[3]), {})
            of_length.setdefault(match[1], []).append((size, size * data[name].typed(_SampleMs)))
    listed = ", ".join(map(str, sorted(points)))
    if sequence_length is None and len(points) > 1:
        raise data.mistake(f"sequence_length: was measured for {listed}; give one of them")
    length = next(iter(points), 0) if sequence_length is None else sequence_length
    if points and length not in points:
        raise data.mistake(f"sequence_length: {length} was not measured, only {listed}; give one")
    lines = {kind: _line(samples) for kind, samples in points.get(length, {}).items()}
    for kind in ("0", "other"):
        if kind not in lines:
            raise data.mistake(f"lacks layertype_{kind}_bszN_seq{length or 'N'}, ms of a sample; add it")
    if unknown := sorted(lines.keys() - {"0", "other"}):
        fault = "is a second kind of layer"
        raise data.mistake(f"layertype_{unknown[0]}: {fault}; give a profile of equal layers")
    return length, lines["0"], lines["other"]


def _line(points: list[tuple[int, float]]) -> Polynomial:
    """Return the least-squares line; one through 0 for one point, or if the fit would begin below 0."""
    sizes, times = np.array(points, dtype=float).T
    slope, constant = np.polyfit(sizes, times, 1) if len(sizes) > 1 else (0.0, 0.0)
    if slope <= 0 or constant < 0:
        slope, constant = sizes @ times / (sizes @ sizes), 0.0
    return Polynomial([constant, slope])


def _memory(data: Field, suffix: str, length: int) -> GalvatronMemory:
    layer = data[f"layertype_0{suffix}"][str(length)]
    kept = layer["tp_activation_per_bsz_dict"]
    by_degree = {name: size for name, size in kept.mapping().items() if name != "checkpoint"}
    ends = (
        replace(data[f"other_memory_{name}{suffix}"][str(length)], is_open=True).record(EndMemory)
        for name in ("pp_on_first", "pp_on_last", "pp_off")
    )
    return GalvatronMemory(
        layer["parameter_size"].typed(_LayerMib),
        replace(kept, value=by_degree).typed(_MibByDegree),
        kept["checkpoint"].typed(_LayerMib),
        *ends,
    )


def _machines(folder: Path) -> dict[tuple[int, int], MachineBandwidths]:
    machines: dict[tuple[int, int], MachineBandwidths] = {}
    files = [(path, _MACHINE.fullmatch(path.name)) for path in folder.rglob("*_bandwidth_*.json")]
    for path, nodes, gpus in sorted((path, int(match[1]), int(match[2])) for path, match in files if match):
        machine = machines.setdefault((nodes, gpus), MachineBandwidths({}, {}))
        with json_file(path, "bandwidths", GalvatronProfileError) as data:
            for name in data.mapping():
                gb_s: float = data[name].typed(_GbPerS)
                if (known := _BANDWIDTH.fullmatch(name)) is None:
                    raise data[name].wrong("named allreduce_size_N_consec_0, ..._1 or pp_size_N", "rename it")
                if known[3]:
                    machine.to_next[int(known[3])] = gb_s
                else:
                    machine.all_reduce[int(known[1]), known[2] == "1"] = gb_s
    if not machines:
        fault = "has no allreduce_bandwidth_*nodes_*gpus_per_node.json"
        raise GalvatronProfileError(f"{folder}: {fault}; give a folder with these files of the machine too")
    return dict(sorted(machines.items()))
