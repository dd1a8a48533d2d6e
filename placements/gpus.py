"""GPUs by name: their data sheets, usual networks and clocks, with where each figure is from.

Peaks are dense: data sheets often print twice as much, for matrices half of whose entries are zero. Memory is
what the driver reports where that was found, else what the vendor states. The module knows figures alone; see
`placements.hardware` for what they mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from placements.hardware import ASSUMED_LATENCY, DWELL_PER_LATENCY, ClockLatency, Gpu, PowerModel

# Power models of A100 and A40: fitted to the GPT-3 175B stage profile of the Perseus SOSP'24 artifact
# (855 MHz and up; least squares of relative errors). Root mean square and largest error of the model:
#     A100 SXM: time 0.8 % (1.6 %), power 1.6 % (6.3 %), energy 1.4 % (4.9 %)
#     A40:      time 4.2 % (12 %),  power 2.0 % (5.6 %), energy 4.4 % (11 %); its measured times are noisy
_FITTED = "fitted to a stage profile of Perseus's artifact"
_A100_POWER = PowerModel(1350, compute_share=0.912, static_w=222.5, dynamic_w=244.7, exponent=5.90)
_A40_POWER = PowerModel(1500, compute_share=0.409, static_w=153.1, dynamic_w=142.8, exponent=3.24)

# A change of clock takes "around 10 ms" on NVIDIA GPUs (Perseus, footnote 2; its GPUs are A100 and A40). It
# is known to vary with the clock that is asked for; no figures by clock were at hand, so `by_target_ms` is
# empty; `python -m runtime.clock latency` measures them.
_MEASURED_LATENCY = ClockLatency(
    10.0, DWELL_PER_LATENCY * 10.0, "Perseus, footnote 2: around 10 ms; dwell assumed"
)

# One direction of sixteen lanes.
_PCIE_3_GB_S = 15.75
_PCIE_4_GB_S = 31.5
_PCIE_5_GB_S = 63.0

# Blocking powers of A100 and A40: the same artifact.
# Peaks, memories and bandwidths: the vendor's data sheets.
A100_SXM_80GB = Gpu(
    "NVIDIA A100-SXM4-80GB",
    peak_tflops=312.0,
    peak_fp32_tflops=19.5,
    memory_gib=80.0,
    memory_bandwidth_gb_s=2039.0,
    link_bandwidth_gb_s=300.0,
    clocks_mhz=tuple(range(210, 1410 + 1, 15)),
    blocking_power_w=83.64,
    power=_A100_POWER,
    clock_latency=_MEASURED_LATENCY,
    power_source=_FITTED,
    peak_tf32_tflops=156.0,
    node_bandwidth_gb_s=200.0,
    network_source="DGX A100: eight adapters of 200 Gb/s",
)
A40 = Gpu(
    "NVIDIA A40",
    peak_tflops=149.7,
    peak_fp32_tflops=37.4,
    memory_gib=48.0,
    memory_bandwidth_gb_s=696.0,
    link_bandwidth_gb_s=_PCIE_4_GB_S,
    clocks_mhz=tuple(range(210, 1740 + 1, 15)),
    blocking_power_w=70.38,
    power=_A40_POWER,
    clock_latency=_MEASURED_LATENCY,
    power_source=_FITTED,
    peak_tf32_tflops=74.8,
)


def _without_profile(name: str, board_w: float, clocks_mhz: Iterable[int], **data_sheet: Any) -> Gpu:
    """Return a GPU whose powers are the A100's in proportion to the board power; the A100's is 400 W."""
    clocks, scale, like = tuple(clocks_mhz), board_w / 400.0, _A100_POWER
    return Gpu(
        name,
        **data_sheet,
        clocks_mhz=clocks,
        blocking_power_w=round(scale * A100_SXM_80GB.blocking_power_w, 2),
        power=replace(
            like,
            sustained_clock_mhz=clocks[-1],
            static_w=scale * like.static_w,
            dynamic_w=scale * like.dynamic_w,
        ),
        clock_latency=ASSUMED_LATENCY,
        power_source="the A100's in proportion to the board power",
    )


def _half_steps(lowest_mhz: int, highest_mhz: int) -> Iterable[int]:
    """Return clocks that are 7.5 MHz apart, rounded down, and end with the highest."""
    return (lowest_mhz + 15 * i // 2 for i in range((2 * (highest_mhz - lowest_mhz) + 1) // 15 + 1))


# No profile of those below was at hand.
V100_SXM_32GB = _without_profile(
    "NVIDIA V100-SXM2-32GB",
    300.0,
    _half_steps(135, 1530),
    peak_tflops=125.0,
    peak_fp32_tflops=15.7,
    memory_gib=32.0,
    memory_bandwidth_gb_s=900.0,
    link_bandwidth_gb_s=150.0,
    node_bandwidth_gb_s=50.0,
    network_source="DGX-1: four adapters of 100 Gb/s",
)
H100_SXM_80GB = _without_profile(
    "NVIDIA H100-SXM5-80GB",
    700.0,
    range(345, 1980 + 1, 15),
    peak_tflops=989.4,
    peak_fp32_tflops=66.9,
    memory_gib=80.0,
    memory_bandwidth_gb_s=3350.0,
    link_bandwidth_gb_s=450.0,
    peak_tf32_tflops=494.7,
    peak_fp8_tflops=1978.9,
    node_bandwidth_gb_s=400.0,
    network_source="DGX H100: eight adapters of 400 Gb/s",
)
TITAN_RTX_24GB = _without_profile(
    "NVIDIA TITAN RTX",
    280.0,
    range(300, 1770 + 1, 15),
    peak_tflops=130.5,
    peak_fp32_tflops=16.3,
    memory_gib=24.0,
    memory_bandwidth_gb_s=672.0,
    link_bandwidth_gb_s=_PCIE_3_GB_S,
    node_bandwidth_gb_s=12.5,
    network_source="Galvatron-BMW, Sec. VII: 100 Gb/s InfiniBand",
)

# Other sizes and systems of the same chips: the vendor's data sheets; power as of the chip above. The driver
# reports 143771 MiB of an H200.
A100_SXM_40GB = replace(
    A100_SXM_80GB, name="NVIDIA A100-SXM4-40GB", memory_gib=40.0, memory_bandwidth_gb_s=1555.0
)
V100_SXM_16GB = replace(V100_SXM_32GB, name="NVIDIA V100-SXM2-16GB", memory_gib=16.0)
H200_SXM_141GB = replace(
    H100_SXM_80GB,
    name="NVIDIA H200-SXM-141GB",
    memory_gib=140.4,
    memory_bandwidth_gb_s=4800.0,
    network_source="DGX H200: eight adapters of 400 Gb/s",
)
GH200_96GB = replace(
    H100_SXM_80GB,
    name="NVIDIA GH200-96GB-HBM3",
    memory_gib=96.0,
    memory_bandwidth_gb_s=4000.0,
    gpus_per_node=1,
    node_bandwidth_gb_s=50.0,
    network_source="one adapter of 400 Gb/s for each GPU",
)

# Blackwell: NVIDIA's data sheets of HGX B200, GB200 NVL72 and GB300 NVL72, whose peaks are divided by the
# number of GPUs and, where they are of sparse matrices, by two. The driver reports 183359 MiB of a B200 and a
# bus of 7680 bits at 3996 MHz, less than the 192 GB and 8 TB/s of the chip; 189471 MiB of a GB200; 284208 MiB
# of a GB300, whose clocks are taken to be a GB200's. The 72 GPUs of a rack are one NVLink domain, so they are
# a node here, with the adapters of all 72.
B200_SXM_180GB = _without_profile(
    "NVIDIA B200",
    1000.0,
    range(120, 1965 + 1, 15),
    peak_tflops=2250.0,
    peak_fp32_tflops=75.0,
    memory_gib=179.0,
    memory_bandwidth_gb_s=7672.0,
    link_bandwidth_gb_s=900.0,
    peak_tf32_tflops=1125.0,
    peak_fp8_tflops=4500.0,
    peak_fp4_tflops=9000.0,
    node_bandwidth_gb_s=400.0,
    network_source="DGX B200: eight adapters of 400 Gb/s",
)
GB200_NVL72 = _without_profile(
    "NVIDIA GB200",
    1200.0,
    _half_steps(120, 2062),
    peak_tflops=2500.0,
    peak_fp32_tflops=80.0,
    memory_gib=185.0,
    memory_bandwidth_gb_s=8000.0,
    link_bandwidth_gb_s=900.0,
    peak_tf32_tflops=1250.0,
    peak_fp8_tflops=5000.0,
    peak_fp4_tflops=10_000.0,
    gpus_per_node=72,
    node_bandwidth_gb_s=3600.0,
    network_source="GB200 NVL72: an adapter of 400 Gb/s for each of 72 GPUs",
)
GB300_NVL72 = _without_profile(
    "NVIDIA GB300",
    1400.0,
    _half_steps(120, 2062),
    peak_tflops=2500.0,
    peak_fp32_tflops=80.0,
    memory_gib=277.5,
    memory_bandwidth_gb_s=8000.0,
    link_bandwidth_gb_s=900.0,
    peak_tf32_tflops=1250.0,
    peak_fp8_tflops=5000.0,
    peak_fp4_tflops=15_000.0,
    gpus_per_node=72,
    node_bandwidth_gb_s=7200.0,
    network_source="GB300 NVL72: an adapter of 800 Gb/s for each of 72 GPUs",
)

# AMD: data sheets of MI300X and MI355X. Each GPU of a node has a link of 64 GB/s (76.8 GB/s) to each of the
# seven others. The bandwidth here is that of all seven, which collectives use; a pair alone has one of them.
# An MI355X makes TF32 products by others. Clocks can be set in steps of 1 MHz; those here are 25 MHz apart.
MI300X_192GB = _without_profile(
    "AMD Instinct MI300X",
    750.0,
    range(500, 2100 + 1, 25),
    peak_tflops=1307.4,
    peak_fp32_tflops=163.4,
    memory_gib=192.0,
    memory_bandwidth_gb_s=5300.0,
    link_bandwidth_gb_s=448.0,
    has_direct_links=True,
    peak_tf32_tflops=653.7,
    peak_fp8_tflops=2614.9,
    node_bandwidth_gb_s=400.0,
    network_source="eight adapters of 400 Gb/s, as most vendors build it",
)
MI355X_288GB = _without_profile(
    "AMD Instinct MI355X",
    1400.0,
    range(500, 2400 + 1, 25),
    peak_tflops=2516.6,
    peak_fp32_tflops=157.3,
    memory_gib=288.0,
    memory_bandwidth_gb_s=8000.0,
    link_bandwidth_gb_s=537.6,
    has_direct_links=True,
    peak_fp8_tflops=5033.2,
    peak_fp4_tflops=10_066.3,
    node_bandwidth_gb_s=400.0,
    network_source="eight adapters of 400 Gb/s, as most vendors build it",
)

# Cards: the vendor's data sheets; their link is PCIe with sixteen lanes. The clocks end at the boost clock,
# at which the peaks are meant. Half-precision and 8-bit products of GeForce cards are summed in 32 bits, as
# in training; sums in 16 bits are twice as fast. The driver reports 46068 MiB of an L40S, 24564 MiB of an
# RTX 4090 and 32607 MiB of an RTX 5090.
A100_PCIE_80GB = _without_profile(
    "NVIDIA A100 80GB PCIe",
    300.0,
    range(210, 1410 + 1, 15),
    peak_tflops=312.0,
    peak_fp32_tflops=19.5,
    memory_gib=80.0,
    memory_bandwidth_gb_s=1935.0,
    link_bandwidth_gb_s=_PCIE_4_GB_S,
    peak_tf32_tflops=156.0,
)
H100_PCIE_80GB = _without_profile(
    "NVIDIA H100 PCIe",
    350.0,
    range(210, 1755 + 1, 15),
    peak_tflops=756.0,
    peak_fp32_tflops=51.2,
    memory_gib=80.0,
    memory_bandwidth_gb_s=2039.0,
    link_bandwidth_gb_s=_PCIE_5_GB_S,
    peak_tf32_tflops=378.0,
    peak_fp8_tflops=1513.0,
)
L40S_48GB = _without_profile(
    "NVIDIA L40S",
    350.0,
    range(210, 2520 + 1, 15),
    peak_tflops=362.05,
    peak_fp32_tflops=91.6,
    memory_gib=45.0,
    memory_bandwidth_gb_s=864.0,
    link_bandwidth_gb_s=_PCIE_4_GB_S,
    peak_tf32_tflops=183.0,
    peak_fp8_tflops=733.0,
)
RTX_4090_24GB = _without_profile(
    "NVIDIA GeForce RTX 4090",
    450.0,
    range(210, 2520 + 1, 15),
    peak_tflops=165.2,
    peak_fp32_tflops=82.6,
    memory_gib=24.0,
    memory_bandwidth_gb_s=1008.0,
    link_bandwidth_gb_s=_PCIE_4_GB_S,
    peak_tf32_tflops=82.6,
    peak_fp8_tflops=330.3,
)
RTX_5090_32GB = _without_profile(
    "NVIDIA GeForce RTX 5090",
    575.0,
    _half_steps(180, 2407),
    peak_tflops=209.5,
    peak_fp32_tflops=104.8,
    memory_gib=31.8,
    memory_bandwidth_gb_s=1792.0,
    link_bandwidth_gb_s=_PCIE_5_GB_S,
    peak_tf32_tflops=104.8,
    peak_fp8_tflops=419.0,
    peak_fp4_tflops=1676.0,
)

GPUS = {
    "a100": A100_SXM_80GB,
    "a100_40gb": A100_SXM_40GB,
    "a100_pcie": A100_PCIE_80GB,
    "a40": A40,
    "b200": B200_SXM_180GB,
    "gb200": GB200_NVL72,
    "gb300": GB300_NVL72,
    "gh200": GH200_96GB,
    "h100": H100_SXM_80GB,
    "h100_pcie": H100_PCIE_80GB,
    "h200": H200_SXM_141GB,
    "l40s": L40S_48GB,
    "mi300x": MI300X_192GB,
    "mi355x": MI355X_288GB,
    "rtx_4090": RTX_4090_24GB,
    "rtx_5090": RTX_5090_32GB,
    "rtx_titan": TITAN_RTX_24GB,
    "v100": V100_SXM_32GB,
    "v100_16gb": V100_SXM_16GB,
}
"""The GPUs by the name that the command line uses."""


def clock_latency_of(name: str) -> ClockLatency:
    """Return what a change of clock takes on the GPU of a name, as its driver writes it.

    >>> clock_latency_of("NVIDIA A100-SXM4-80GB").source
    'Perseus, footnote 2: around 10 ms; dwell assumed'
    >>> clock_latency_of("another").source
    'assumed, as of the A100'
    """
    known = {gpu.name: gpu.clock_latency for gpu in GPUS.values()}
    return known.get(name, ASSUMED_LATENCY)
