"""Files of a machine's measured rates: the JSON form of SimuMax's systems, or a plain CSV.

A CSV file has a row for each measurement, such as ``product,forward,4096 8192 10240,0.65,``. Sizes of a
product are tokens, inputs and outputs; of experts, matrices and then these three; of a core, tokens, heads,
heads of keys, and width of a key; of a collective GPUs and bytes of the tensor, or none. Shares of products,
experts and cores are of the peak, those of kernels of the memory's bandwidth, those of collectives of the
link's; all of the GPU that is given. A time in place of a share is of the operator alone.

The files in ``placements/rates`` come with the project: measured by ai-dynamo/aiconfigurator at 095f58a5
(Apache-2.0), products by cuBLAS in 16, 8 and 4 bits, cores of a causal prefill (width 192: of latent
attention, with values of 128), NCCL among GPUs of a node. Each operator ran alone, and cool: in a run those
in 16 bits take `Gpu.run_slowdown` as long, by SimuMax's rates of an A100 and a B200, and layers on an H100.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal, get_args

from placements.forms.meaning import Meaning
from placements.forms.reading import Field, in_file, json_file
from placements.forms.tables import csv_records
from placements.gpus import GPUS
from placements.hardware import Gpu
from placements.models.layers import BF16, Precision
from placements.models.machine.machine_rates import (
    PERMUTE_SHARE,
    CollectiveKind,
    CollectiveRate,
    CollectiveTimes,
    KernelRate,
    MachineRates,
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


def read_machine(path: str | Path, gpu: Gpu) -> MachineRates:
    """Read a machine's file; shares in a CSV are of the peaks of `gpu`.

    Raises:
        MachineFileError: The file cannot be read or is wrong; the message begins with its path.
    """
    if Path(path).suffix.lower() in (".csv", ".gz"):
        with in_file(path, MachineFileError):
            rates = _of_csv(Path(path), gpu, gpu)
            assert rates is not None, "in 16 bits"
            return rates
    with json_file(path, "a file of a machine, JSON or CSV", MachineFileError) as data:
        return _of_json(replace(data, is_open=True))


def _of_json(data: Field) -> MachineRates:
    operators, bandwidths = data["accelerator"]["op"], data["accelerator"]["bandwidth"]
    links = data["networks"]["high_intra_node"]
    link_gb_s = links["bandwidth"]["gbps"].number("a bandwidth in GB/s", min=1e-3)
    collectives: dict[CollectiveKind, CollectiveRate] = {}
    for kind in get_args(CollectiveKind):
        field = links["op"][_JSON_COLLECTIVES.get(kind, kind)]
        collectives[kind] = field.record(CollectiveRate, bandwidth_gb_s=link_gb_s)
    return MachineRates(
        data["sys_name"].text(),
        operators["matmul"]["tflops"].number("a peak in TFLOP/s", min=1e-3),
        {shape[:2]: _json_shares(operators, *shape[2:]) for shape in _SHAPES},
        {kind: bandwidths[name].record(KernelRate) for kind, name in _JSON_KERNELS.items()},
        collectives,
        data["num_per_node"].whole("a number of GPUs", min=1),
    )


def _json_shares(operators: Field, name: str, mark: str, names: str) -> ShareTable:
    """Return the shares of a pass by shape; a shape's name is of the form ``m=4096, k=8192, layout=TN``."""
    factors, shares = operators[name]["accurate_efficient_factor"], dict[tuple[int, ...], float]()
    marks = [known for *_, of, known, _ in _SHAPES if of == name]
    for text in factors.mapping():
        sizes = [re.search(rf"\b{size}=([0-9]+)", text) for size in names.split()]
        shape = tuple(int(size[1]) for size in sizes if size)
        if len(shape) < len(sizes) or not any(known in text for known in marks):
            named = f"{' '.join(f'{size}=' for size in names.split())} {' or '.join(marks)}"
            raise factors[text].mistake(f"is of no pass, or lacks a size; name it by {named}")
        if mark in text and (shape not in shares or _JSON_FIRST.search(text)):
            shares[shape] = _share(factors[text])
    if names == _CORE:
        shares = {shape[:2] + shape[3:]: share for shape, share in shares.items()}  # whatever heads of keys
    return ShareTable(shares, _share(operators[name]["efficient_factor"]))


def _share(field: Field) -> float:
    # Shares of cores may be above 1: they count scores that a causal kernel leaves out.
    return field.number("a share above 0 and at most 2", min=1e-6, max=2)


@dataclass(frozen=True)
class MachineRow:
    """A row of the CSV form, with a share or a time."""

    operator: Annotated[MeasuredOperator, Meaning("operator measured")]
    which: Annotated[str, Meaning("pass, kernel or collective", key="pass")]
    sizes: Annotated[str, Meaning("sizes, separated by spaces")] = ""
    share: Annotated[float | None, Meaning("fraction of the peak", above=0, max=2)] = None
    latency_us: Annotated[float | None, Meaning("latency of each kernel or step", "us", min=0)] = None
    time_us: Annotated[float | None, Meaning("time, instead of a share", "us", above=0)] = None
    precision: Annotated[str, Meaning("precision of a product; 16 bits if empty")] = ""


_MEMORY_SHARE = 0.75
"""Share of the bandwidth that kernels reach where it was not measured: on an A100 0.75, on a B200 0.67 were
measured (SimuMax)."""

_LINK_SHARE = 0.7
"""Share of the link that collectives reach where it was not measured: assumed."""

_LAUNCH_US = 5.0
"""Time of a kernel besides, where it was not measured: NCCL moves 256 bytes between two H100 in 5 us."""

_VALUE_WIDTH = {192: 128}
"""Width of values where it is not the keys', which is so in latent attention (DeepSeek-V2)."""

Sizes = tuple[int, ...]


@cache
def rates_of(gpu: Gpu, precision: Precision) -> MachineRates | None:
    """Return the rates that come with the project for a GPU; None where its products were not measured so.

    A GPU with the rates of another one reaches the same shares of its own peaks.
    """
    if not gpu.rates or precision.number_bytes != BF16.number_bytes:  # products of 32 bits are in none
        return None
    path = Path(__file__).parents[2] / "rates" / f"{gpu.rates}.csv.gz"
    # A GPU without such products has those of 16 bits.
    measured = precision.name if precision.peak_tflops(gpu) > gpu.peak_tflops else ""
    return _of_csv(path, gpu, GPUS.get(gpu.rates, gpu), precision, measured)


def _of_csv(
    path: Path, gpu: Gpu, measured_gpu: Gpu, precision: Precision = BF16, measured: str = ""
) -> MachineRates | None:
    """Return the rates in a file; None if it has no products in a precision, by its name there."""
    rows = _csv_rows(path, measured)
    if ("product", "forward") not in rows:
        if measured:
            return None
        raise MachineFileError("has no product of the pass forward; measure one")
    peak_tflops, memory_gb_s = precision.peak_tflops(gpu), gpu.memory_bandwidth_gb_s

    def roof(tokens: int, inputs: int, outputs: int) -> float:
        moved = precision.product_bytes * (tokens + outputs) * inputs + 2 * tokens * outputs
        return min(1.0, 2e-3 * tokens * inputs * outputs / moved * memory_gb_s / peak_tflops)

    shares = {}
    for key in (shape[:2] for shape in _SHAPES if shape[:2] in rows):
        is_core, by_sizes = key[0] == "core", dict[Sizes, float]()
        gpu_tflops, measured_tflops = (precision.peak_tflops(card, is_core) for card in (gpu, measured_gpu))
        for sizes, row in rows[key].items():
            slowdown = 1.0 if row.precision else gpu.run_slowdown
            share = _share_of(row, sizes, measured_tflops, slowdown) * gpu_tflops / peak_tflops
            by_sizes[sizes[:2] + sizes[3:] if is_core else sizes] = share  # of a core, whatever heads of keys
        roofs = {"roof": roof} if key[0] == "product" else {}
        shares[key] = ShareTable(by_sizes, fmean(by_sizes.values()), **roofs)
    # Cores that were not measured reach what products do.
    shares.setdefault(("core", "forward"), ShareTable({}, shares["product", "forward"].mean))

    def rate(operator: str, kind: str, share: float, latency_us: float) -> tuple[float, float]:
        row = rows.get((operator, kind), rows.get((operator, "stream"), {})).get(())
        return (share, latency_us) if row is None or row.share is None else (row.share, row.latency_us or 0.0)

    kernels = dict[KernelKind, KernelRate]()
    for kernel in get_args(KernelKind):
        usual = PERMUTE_SHARE if kernel == "permute" else _MEMORY_SHARE
        kernels[kernel] = KernelRate(memory_gb_s, *rate("kernel", kernel, usual, _LAUNCH_US))
    collectives = dict[CollectiveKind, CollectiveRate | CollectiveTimes]()
    for kind in get_args(CollectiveKind):
        points: dict[int, list[tuple[float, float]]] = {}
        timed = rows.get(("collective", "all_gather" if kind == "send" else kind), {})
        for sizes, row in sorted(timed.items()):
            if row.time_us is not None:
                points.setdefault(sizes[0], []).append((sizes[1], row.time_us / 1e3))
        share, step_us = rate("collective", kind, _LINK_SHARE, 0.0)
        volume = 2.0 if kind == "all_reduce" else 1.0
        assumed = CollectiveRate(gpu.link_bandwidth_gb_s, share, volume, step_us)
        collectives[kind] = CollectiveTimes(points) if points else assumed
    name = path.name.partition(".")[0]
    return MachineRates(name, peak_tflops, shares, kernels, collectives, gpu.gpus_per_node, precision)


def _csv_rows(path: Path, measured: str) -> dict[tuple[str, str], dict[Sizes, MachineRow]]:
    """Return rows by operator and pass, and by sizes; of products those in a precision alone."""
    known = {(operator, which): len(names.split()) for operator, which, *_, names in _SHAPES}
    known |= {("kernel", kind): 0 for kind in get_args(KernelKind)}
    known |= {("collective", kind): 2 for kind in get_args(CollectiveKind)}
    rows: dict[tuple[str, str], dict[Sizes, MachineRow]] = {}
    for line, row in csv_records(path, "measurement", MachineFileError, MachineRow):
        key, sizes = (row.operator, row.which), tuple(row.sizes.split())
        if key not in known:
            passes = ", ".join(which for operator, which in known if operator == row.operator)
            fault = f"{row.which!r} is not known"
            raise MachineFileError(f"line {line}, column pass: {fault}; use one of {passes}")
        if row.operator == "collective" and not sizes:
            pass  # a share of the link for all sizes
        elif len(sizes) != known[key] or not all(size.isdecimal() and int(size) for size in sizes):
            text = f"{row.sizes!r} is not {known[key]} whole numbers above 0; give them with spaces between"
            raise MachineFileError(f"line {line}, column sizes: {text}")
        if (row.share is None) == (row.time_us is None) or (row.time_us is not None and not sizes):
            raise MachineFileError(f"line {line}, column share: give either a share, or time_us of its sizes")
        if row.operator != "product" or row.precision == measured:
            rows.setdefault(key, {})[tuple(map(int, sizes))] = row
    return rows


def _share_of(row: MachineRow, sizes: Sizes, peak_tflops: float, slowdown: float) -> float:
    """Return the share of the peak of an operator in a run; of a core all scores count."""
    if row.time_us is None:
        assert row.share is not None, "one of both"
        return row.share
    flops = 2 * math.prod(sizes)
    if row.operator == "core":
        tokens, heads, _, width = sizes
        flops = 2 * tokens**2 * heads * (width + _VALUE_WIDTH.get(width, width))
    return flops / (peak_tflops * 1e6 * row.time_us * slowdown)
