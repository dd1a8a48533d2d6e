"""Files of what a machine was measured to reach: the JSON form of SimuMax's systems, or a plain CSV.

A CSV file has a row for each measurement::

    operator,pass,sizes,share,latency_us
    product,forward,4096 8192 10240,0.65,
    experts,weight_gradient,8 1024 4096 14336,0.41,
    core,backward,4096 32 8 128,0.78,
    kernel,stream,,0.67,30
    collective,all_gather,,0.67,9.2

Sizes of a product are tokens, inputs and outputs; of experts, matrices and then these three; of a core,
tokens, heads, heads of keys, and width of a key. Shares of products, experts and cores are of the peak in 16
bits, those of kernels of the memory's bandwidth, those of collectives of the link's; all of the GPU that is
given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal, get_args

from placements.forms.meaning import Meaning
from placements.forms.reading import Field, in_file, json_file
from placements.forms.tables import csv_records
from placements.hardware import Gpu
from placements.models.machine.measured_rates import (
    CollectiveKind,
    CollectiveRate,
    KernelRate,
    MeasuredRates,
    ProductPass,
    ShareTable,
)
from placements.models.operators import KernelKind

_PASSES: tuple[ProductPass, ...] = get_args(ProductPass)
_KERNELS: tuple[KernelKind, ...] = get_args(KernelKind)
_COLLECTIVES: tuple[CollectiveKind, ...] = get_args(CollectiveKind)
_CORES = ("forward", "backward")


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


_JSON_LAYOUTS: Mapping[str, tuple[ProductPass, tuple[str, ...]]] = {
    "TN": ("forward", ("m", "k", "n")),
    "NN": ("input_gradient", ("m", "n", "k")),
    "NT": ("weight_gradient", ("k", "n", "m")),
}
"""Layouts of products: what they compute, and which of their sizes are tokens, inputs and outputs."""

_JSON_GROUPED = ("ng", "M", "K", "N")
_JSON_STAGES: Mapping[str, tuple[ProductPass, tuple[str, ...]]] = {
    "fwd": ("forward", _JSON_GROUPED),
    "bwd_grad_act": ("input_gradient", _JSON_GROUPED),
    "bwd_grad_w": ("weight_gradient", _JSON_GROUPED),
}
_JSON_KERNELS: Mapping[KernelKind, str] = {"stream": "default", "permute": "permute_fwd", "loss": "ce_fusion"}
_JSON_COLLECTIVES: Mapping[CollectiveKind, str] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all2all",
    "send": "p2p",
}
_JSON_CORE = ("seq_len", "head_num", "kv_head_num", "qk_head_dim")


def _of_json(data: Field) -> MeasuredRates:
    accelerator = data["accelerator"]
    operators, bandwidths = accelerator["op"], accelerator["bandwidth"]
    products = operators["matmul"]
    links = data["networks"]["high_intra_node"]
    link_gb_s = links["bandwidth"]["gbps"].number("a bandwidth in GB/s", min=1e-3)
    return MeasuredRates(
        data["sys_name"].text(),
        products["tflops"].number("a peak in TFLOP/s", min=1e-3),
        _json_products(products, "layout", _JSON_LAYOUTS, "out_dtype"),
        _json_products(operators["group_matmul"], "stage", _JSON_STAGES, "main_grad_dtype"),
        _json_cores(operators["sdp_fwd"]),
        _json_cores(operators["sdp_bwd"]),
        {kind: _json_kernel(bandwidths[name]) for kind, name in _JSON_KERNELS.items()},
        {kind: _json_collective(links["op"][name], link_gb_s) for kind, name in _JSON_COLLECTIVES.items()},
        data["num_per_node"].whole("a number of GPUs", min=1),
    )


def _json_shares(field: Field) -> list[tuple[dict[str, str], Field]]:
    """Return the sizes and the share of each shape; a name is such as ``m=4096, k=8192, layout=TN``."""
    shares = field["accurate_efficient_factor"]
    found = []
    for name in shares.mapping():
        sizes = dict(part.strip().partition("=")[::2] for part in str(name).split(","))
        found.append((sizes, shares[name]))
    return found


def _json_size(sizes: Mapping[str, str], name: str, share: Field) -> int:
    text = sizes.get(name, "")
    if not (text.isascii() and text.isdigit()):
        raise share.mistake(f"has no size {name}=, a whole number; give one")
    return int(text)


def _share(field: Field) -> float:
    # Shares of cores may be above 1: they count scores that a causal kernel leaves out.
    return field.number("a share above 0 and at most 2", min=1e-6, max=2)


def _json_products(
    field: Field, key: str, kinds: Mapping[str, tuple[ProductPass, tuple[str, ...]]], sums_in: str
) -> dict[ProductPass, ShareTable]:
    """Return the shares of each pass, which a key tells; sums in 32 bits count before those in 16."""
    found: dict[ProductPass, dict[tuple[int, ...], float]] = {each: {} for each in _PASSES}
    for sizes, share in _json_shares(field):
        kind = str(sizes.get(key))
        if kind not in kinds:
            raise share.mistake(f"{key}={kind} is not known; use {', '.join(kinds)}")
        product_pass, names = kinds[kind]
        shape = tuple(_json_size(sizes, name, share) for name in names)
        # Gradients of weights were measured in 16 and in 32 bits, in which they are added up.
        if shape not in found[product_pass] or sizes.get(sums_in) == "fp32":
            found[product_pass][shape] = _share(share)
    mean = _share(field["efficient_factor"])
    return {each: ShareTable(shares, mean) for each, shares in found.items()}


def _json_cores(field: Field) -> ShareTable:
    found: dict[tuple[int, ...], float] = {}
    for sizes, share in _json_shares(field):
        shape = tuple(_json_size(sizes, name, share) for name in _JSON_CORE)
        if shape not in found or sizes.get("qkv_contiguous") == "True":
            found[shape] = _share(share)
    return ShareTable(found, _share(field["efficient_factor"]))


def _json_kernel(field: Field) -> KernelRate:
    return KernelRate(
        field["gbps"].number("a bandwidth in GB/s", min=1e-3),
        _share(field["efficient_factor"]),
        field["latency_us"].number("a time in us", min=0),
    )


def _json_collective(field: Field, link_gb_s: float) -> CollectiveRate:
    fixed = {0: field.get("fixed_latency_us", 0.0).number("a time in us", min=0)}
    by_number = field.get("fixed_latency_us_by_comm_num", {})
    for number in by_number.mapping():
        if not (number.isascii() and number.isdigit()):
            raise by_number.mistake(f"{number!r} is not a number of GPUs; give one")
        fixed[int(number)] = by_number[number].number("a time in us", min=0)
    return CollectiveRate(
        link_gb_s,
        _share(field["efficient_factor"]),
        field["scale"].number("a multiple of the tensor", min=0),
        field["latency_us"].number("a time in us", min=0),
        fixed,
    )


MeasuredOperator = Literal["product", "experts", "core", "kernel", "collective"]


@dataclass(frozen=True)
class MachineRow:
    """A row of the CSV form."""

    operator: Annotated[MeasuredOperator, Meaning("what was measured")]
    which: Annotated[str, Meaning("its pass or kind", key="pass")]
    share: Annotated[float, Meaning("share of the GPU's peak that it reaches", above=0, max=2)]
    sizes: Annotated[str, Meaning("its sizes, with spaces between")] = ""
    latency_us: Annotated[float | None, Meaning("time of each kernel or step besides", "us", min=0)] = None


_CSV_KINDS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "product": (_PASSES, 3),
    "experts": (_PASSES, 4),
    "core": (_CORES, 4),
    "kernel": (_KERNELS, 0),
    "collective": (_COLLECTIVES, 0),
}
"""Operators: their passes or kinds, and how many sizes each has."""


def _of_csv(path: Path, gpu: Gpu) -> MeasuredRates:
    rows: dict[tuple[str, str], dict[tuple[int, ...], MachineRow]] = {}
    for number, row in csv_records(path, "measurement", MachineFileError, MachineRow):
        kinds, count = _CSV_KINDS[row.operator]
        if row.which not in kinds:
            raise MachineFileError(
                f"line {number}, column pass: {row.which!r} is not known; use one of {', '.join(kinds)}"
            )
        sizes = row.sizes.split()
        if len(sizes) != count or not all(each.isascii() and each.isdigit() and int(each) for each in sizes):
            raise MachineFileError(
                f"line {number}, column sizes: {row.sizes!r} is not {count} whole numbers above 0; give them "
                "with spaces between"
            )
        rows.setdefault((row.operator, row.which), {})[tuple(map(int, sizes))] = row
    for required in (("product", each) for each in _PASSES):
        if required not in rows:
            raise MachineFileError(f"has no product of the pass {required[1]}; measure one")

    def table(operator: str, which: str) -> ShareTable:
        shares = {shape: row.share for shape, row in rows.get((operator, which), {}).items()}
        # Operators that were not measured at all reach what products do.
        known: Iterable[float] = shares.values() or [row.share for row in rows["product", "forward"].values()]
        return ShareTable(shares, fmean(known))

    def kernel(kind: KernelKind) -> KernelRate:
        row = rows.get(("kernel", kind), rows.get(("kernel", "stream"), {})).get(())
        share, latency_us = (0.85, 0.0) if row is None else (row.share, row.latency_us or 0.0)
        return KernelRate(gpu.memory_bandwidth_gb_s, share, latency_us)

    def collective(kind: CollectiveKind) -> CollectiveRate:
        row = rows.get(("collective", kind), {}).get(())
        share, step_us = (0.7, 0.0) if row is None else (row.share, row.latency_us or 0.0)
        volume = 2.0 if kind == "all_reduce" else 1.0
        return CollectiveRate(gpu.link_bandwidth_gb_s, share, volume, step_us, {})

    return MeasuredRates(
        path.stem,
        gpu.peak_tflops,
        {each: table("product", each) for each in _PASSES},
        {each: table("experts", each) for each in _PASSES},
        table("core", "forward"),
        table("core", "backward"),
        {each: kernel(each) for each in _KERNELS},
        {each: collective(each) for each in _COLLECTIVES},
        gpu.gpus_per_node,
    )
