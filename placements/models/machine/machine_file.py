"""Files of what a machine was measured to reach: the JSON form of SimuMax's systems, or a plain CSV.

A CSV file has a row for each measurement, such as ``product,forward,4096 8192 10240,0.65,``. Sizes of a
product are tokens, inputs and outputs; of experts, matrices and then these three; of a core, tokens, heads,
heads of keys, and width of a key. Shares of products, experts and cores are of the peak in 16 bits, those of
kernels of the memory's bandwidth, those of collectives of the link's; all of the GPU that is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal, get_args

from placements.forms.meaning import Meaning
from placements.forms.reading import Field, in_file, json_file
from placements.forms.tables import csv_records
from placements.hardware import Gpu
from placements.models.machine.measured_rates import (
    PASSES,
    CollectiveKind,
    CollectiveRate,
    KernelRate,
    MeasuredRates,
    ShareTable,
)
from placements.models.operators import KernelKind

MeasuredOperator = Literal["product", "experts", "core", "kernel", "collective"]

_KINDS: Mapping[MeasuredOperator, tuple[tuple[str, ...], int]] = {
    "product": (PASSES, 3),
    "experts": (PASSES, 4),
    "core": (("forward", "backward"), 4),
    "kernel": (get_args(KernelKind), 0),
    "collective": (get_args(CollectiveKind), 0),
}
"""Operators: their passes or kinds, and how many sizes each has."""

_Shares = dict[tuple[str, str], ShareTable]


class MachineFileError(ValueError):
    """A file of a machine is wrong; the message names the file, the field and the remedy in one line."""


def read_machine(path: str | Path, gpu: Gpu) -> MeasuredRates:
    """Read a file of a machine; see this module for its forms.

    Args:
        path: Of a JSON file, or of a CSV file.
        gpu: GPU of the machine, whose peaks the shares of a CSV file refer to.

    Raises:
        MachineFileError: The file cannot be read or is wrong; the message begins with its path.
    """
    if Path(path).suffix.lower() in (".csv", ".gz"):
        with in_file(path, MachineFileError):
            return _of_csv(Path(path), gpu)
    with json_file(path, "a file of a machine, JSON or CSV", MachineFileError) as data:
        return _of_json(data)


_JSON_PASSES: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "matmul": {
        "layout=TN": ("product", "forward", "m k n"),
        "layout=NN": ("product", "input_gradient", "m n k"),
        "layout=NT": ("product", "weight_gradient", "k n m"),
    },
    "group_matmul": {
        "stage=fwd": ("experts", "forward", "ng M K N"),
        "stage=bwd_grad_act": ("experts", "input_gradient", "ng M K N"),
        "stage=bwd_grad_w": ("experts", "weight_gradient", "ng M K N"),
    },
    "sdp_fwd": {"": ("core", "forward", "seq_len head_num kv_head_num qk_head_dim")},
    "sdp_bwd": {"": ("core", "backward", "seq_len head_num kv_head_num qk_head_dim")},
}
"""Operators and passes, by what names of shapes say of them, and the names of their sizes."""

_JSON_FIRST = {"out_dtype=fp32", "main_grad_dtype=fp32", "qkv_contiguous=True"}
"""Measurement that counts of two of a shape: gradients of weights are added up in 32 bits."""

_JSON_NAMES: Mapping[str, str] = {
    "stream": "default",
    "permute": "permute_fwd",
    "loss": "ce_fusion",
    "all_to_all": "all2all",
    "send": "p2p",
}
"""Names of kernels and collectives, where they are not ours."""


def _of_json(data: Field) -> MeasuredRates:
    data = replace(data, is_open=True)
    operators, bandwidths = data["accelerator"]["op"], data["accelerator"]["bandwidth"]
    links = data["networks"]["high_intra_node"]
    link_gb_s = links["bandwidth"]["gbps"].number("a bandwidth in GB/s", min=1e-3)
    collectives = ((kind, links["op"][_JSON_NAMES.get(kind, kind)]) for kind in get_args(CollectiveKind))
    return MeasuredRates(
        data["sys_name"].text(),
        operators["matmul"]["tflops"].number("a peak in TFLOP/s", min=1e-3),
        {key: table for name in _JSON_PASSES for key, table in _json_tables(operators, name).items()},
        {kind: bandwidths[_JSON_NAMES[kind]].record(KernelRate) for kind in get_args(KernelKind)},
        {kind: field.record(CollectiveRate, bandwidth_gb_s=link_gb_s) for kind, field in collectives},
        data["num_per_node"].whole("a number of GPUs", min=1),
    )


def _json_tables(operators: Field, name: str) -> _Shares:
    """Return the shares of an operator's passes; a shape's name is such as ``m=4096, k=8192, layout=TN``."""
    passes, factors = _JSON_PASSES[name], operators[name]["accurate_efficient_factor"]
    found: dict[tuple[str, str], dict[tuple[int, ...], float]] = {key[:2]: {} for key in passes.values()}
    for text in factors.mapping():
        parts = [part.strip() for part in str(text).split(",")]
        kinds = [passes[part] for part in (*parts, "") if part in passes]
        if not kinds:
            raise factors[text].mistake(f"is of no pass; use {', '.join(passes)}")
        operator, which, names = kinds[0]
        sizes = dict(part.partition("=")[::2] for part in parts)
        for size in names.split():
            if not (sizes.get(size, "").isascii() and sizes.get(size, "").isdigit()):
                raise factors[text].mistake(f"has no size {size}=, a whole number; give one")
        shape = tuple(int(sizes[size]) for size in names.split())
        if shape not in found[operator, which] or _JSON_FIRST & {*parts}:
            found[operator, which][shape] = _share(factors[text])
    mean = _share(operators[name]["efficient_factor"])
    return {key: ShareTable(shares, mean) for key, shares in found.items()}


def _share(field: Field) -> float:
    # Shares of cores may be above 1: they count scores that a causal kernel leaves out.
    return field.number("a share above 0 and at most 2", min=1e-6, max=2)


@dataclass(frozen=True)
class MachineRow:
    """A row of the CSV form."""

    operator: Annotated[MeasuredOperator, Meaning("what was measured")]
    which: Annotated[str, Meaning("its pass or kind", key="pass")]
    share: Annotated[float, Meaning("share of the GPU's peak that it reaches", above=0, max=2)]
    sizes: Annotated[str, Meaning("its sizes, with spaces between")] = ""
    latency_us: Annotated[float | None, Meaning("time of each kernel or step besides", "us", min=0)] = None


def _of_csv(path: Path, gpu: Gpu) -> MeasuredRates:
    rows: dict[tuple[str, str], dict[tuple[int, ...], MachineRow]] = {}
    for number, row in csv_records(path, "measurement", MachineFileError, MachineRow):
        kinds, count = _KINDS[row.operator]
        sizes = row.sizes.split()
        if row.which not in kinds:
            text = f"pass: {row.which!r} is not known; use one of {', '.join(kinds)}"
        elif len(sizes) != count or not all(each.isdecimal() and int(each) for each in sizes):
            text = f"sizes: {row.sizes!r} is not {count} whole numbers above 0; give them with spaces between"
        else:
            rows.setdefault((row.operator, row.which), {})[tuple(map(int, sizes))] = row
            continue
        raise MachineFileError(f"line {number}, column {text}")
    for each in PASSES:
        if ("product", each) not in rows:
            raise MachineFileError(f"has no product of the pass {each}; measure one")
    # Operators that were not measured at all reach what products do.
    usual = [row.share for row in rows["product", "forward"].values()]
    shares: _Shares = {}
    for operator in ("product", "experts", "core"):
        for which in _KINDS[operator][0]:
            found = {shape: row.share for shape, row in rows.get((operator, which), {}).items()}
            shares[operator, which] = ShareTable(found, fmean(found.values() or usual))

    def rate(operator: str, kind: str, share: float) -> tuple[float, float]:
        row = rows.get((operator, kind), rows.get((operator, "stream"), {})).get(())
        return (share, 0.0) if row is None else (row.share, row.latency_us or 0.0)

    memory_gb_s, link_gb_s = gpu.memory_bandwidth_gb_s, gpu.link_bandwidth_gb_s
    kernels = {kind: KernelRate(memory_gb_s, *rate("kernel", kind, 0.85)) for kind in get_args(KernelKind)}
    collectives = {}
    for kind in get_args(CollectiveKind):
        share, step_us = rate("collective", kind, 0.7)
        collectives[kind] = CollectiveRate(link_gb_s, share, 2.0 if kind == "all_reduce" else 1.0, step_us)
    return MeasuredRates(path.stem, gpu.peak_tflops, shares, kernels, collectives, gpu.gpus_per_node)
