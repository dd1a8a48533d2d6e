"""Files of a machine's measured rates: the JSON form of SimuMax's systems, or a plain CSV.

A CSV file has a row for each measurement, such as ``product,forward,4096 8192 10240,0.65,``. Sizes of a
product are tokens, inputs and outputs; of experts, matrices and then these three; of a core, tokens, heads,
heads of keys, and width of a key. Shares of products, experts and cores are of the peak in 16 bits, those of
kernels of the memory's bandwidth, those of collectives of the link's; all of the GPU that is given.
"""

from __future__ import annotations

import re
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

_CORE = "seq_len head_num kv_head_num qk_head_dim"
_SHAPES = (
    ("product", "forward", "matmul", "layout=TN", "m k n"),
    ("product", "input_gradient", "matmul", "layout=NN", "m n k"),
    ("product", "weight_gradient", "matmul", "layout=NT", "k n m"),
    ("experts", "forward", "group_matmul", "stage=fwd", "ng M K N"),
    ("experts", "input_gradient", "group_matmul", "stage=bwd_grad_act", "ng M K N"),
    ("experts", "weight_gradient", "group_matmul", "stage=bwd_grad_w", "ng M K N"),
    ("core", "forward", "sdp_fwd", "", _CORE),
    ("core", "backward", "sdp_bwd", "", _CORE),
)
"""Operators and passes, each with the JSON's operator, text of the pass, and names of sizes."""

_JSON_FIRST = re.compile("out_dtype=fp32|main_grad_dtype=fp32|qkv_contiguous=True")
"""Text of the measurement that counts if a shape has two: weight gradients are added up in 32 bits."""

_JSON_KERNELS: Mapping[KernelKind, str] = {"stream": "default", "permute": "permute_fwd", "loss": "ce_fusion"}
_JSON_COLLECTIVES = {"all_to_all": "all2all", "send": "p2p"}
"""Names of kernels, and of collectives where they are not ours."""


class MachineFileError(ValueError):
    """A file of a machine is wrong; the message names the file, the field and the remedy in one line."""


def read_machine(path: str | Path, gpu: Gpu) -> MeasuredRates:
    """Read a machine's file; shares in a CSV are of the peaks of `gpu`.

    Raises:
        MachineFileError: The file cannot be read or is wrong; the message begins with its path.
    """
    if Path(path).suffix.lower() in (".csv", ".gz"):
        with in_file(path, MachineFileError):
            return _of_csv(Path(path), gpu)
    with json_file(path, "a file of a machine, JSON or CSV", MachineFileError) as data:
        return _of_json(replace(data, is_open=True))


def _of_json(data: Field) -> MeasuredRates:
    operators, bandwidths = data["accelerator"]["op"], data["accelerator"]["bandwidth"]
    links = data["networks"]["high_intra_node"]
    link_gb_s = links["bandwidth"]["gbps"].number("a bandwidth in GB/s", min=1e-3)
    collectives: dict[CollectiveKind, CollectiveRate] = {}
    for kind in get_args(CollectiveKind):
        field = links["op"][_JSON_COLLECTIVES.get(kind, kind)]
        collectives[kind] = field.record(CollectiveRate, bandwidth_gb_s=link_gb_s)
    return MeasuredRates(
        data["sys_name"].text(),
        operators["matmul"]["tflops"].number("a peak in TFLOP/s", min=1e-3),
        {shape[:2]: _json_shares(operators, *shape[2:]) for shape in _SHAPES},
        {kind: bandwidths[name].record(KernelRate) for kind, name in _JSON_KERNELS.items()},
        collectives,
        data["num_per_node"].whole("a number of GPUs", min=1),
    )


def _json_shares(operators: Field, name: str, mark: str, names: str) -> ShareTable:
    """Return the shares of a pass by shape; a shape's name is of the form ``m=4096, k=8192, layout=TN``."""
    factors, found = operators[name]["accurate_efficient_factor"], dict[tuple[int, ...], float]()
    marks = [each for *_, of, each, _ in _SHAPES if of == name]
    for text in factors.mapping():
        sizes = [re.search(rf"\b{size}=([0-9]+)", text) for size in names.split()]
        shape = tuple(int(size[1]) for size in sizes if size)
        if len(shape) < len(sizes) or not any(each in text for each in marks):
            named = f"{' '.join(f'{size}=' for size in names.split())} {' or '.join(marks)}"
            raise factors[text].mistake(f"is of no pass, or lacks a size; name it by {named}")
        if mark in text and (shape not in found or _JSON_FIRST.search(text)):
            found[shape] = _share(factors[text])
    return ShareTable(found, _share(operators[name]["efficient_factor"]))


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
    known = {(operator, which): len(names.split()) for operator, which, *_, names in _SHAPES}
    known |= {("kernel", kind): 0 for kind in get_args(KernelKind)}
    known |= {("collective", kind): 0 for kind in get_args(CollectiveKind)}
    rows: dict[tuple[str, str], dict[tuple[int, ...], MachineRow]] = {}
    for line, row in csv_records(path, "measurement", MachineFileError, MachineRow):
        key, sizes = (row.operator, row.which), tuple(row.sizes.split())
        if key not in known:
            passes = ", ".join(which for operator, which in known if operator == row.operator)
            raise MachineFileError(
                f"line {line}, column pass: {row.which!r} is not known; use one of {passes}"
            )
        if len(sizes) != known[key] or not all(each.isdecimal() and int(each) for each in sizes):
            text = f"{row.sizes!r} is not {known[key]} whole numbers above 0; give them with spaces between"
            raise MachineFileError(f"line {line}, column sizes: {text}")
        rows.setdefault(key, {})[tuple(map(int, sizes))] = row
    for each in PASSES:
        if ("product", each) not in rows:
            raise MachineFileError(f"has no product of the pass {each}; measure one")
    # Operators that were not measured at all reach what products do.
    usual = [row.share for row in rows["product", "forward"].values()]
    shares = {}
    for operator, which, *_ in _SHAPES:
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
