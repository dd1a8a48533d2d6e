"""The workloads of Perseus: a model in stages on a GPU, its 1F1B schedule, and costs of its blocks.

Costs are those that the authors measured, where a folder has their profiles; else those of layers by their
shapes, with the power model of the GPU. The module knows no plan, and no published saving.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from experiments.config.options import OptionError
from experiments.reproduce.item import Claim
from experiments.reproduce.perseus.divisions import DIVISIONS, divided_layers
from experiments.reproduce.rows import published_table
from placements import OperatingPoint, Profile
from placements.cluster import Cluster, Nodes
from placements.gpus import GPUS
from placements.hardware import COPY_COMPUTE_SHARE, Gpu
from placements.models.costing.layer_costs import layer_cost
from placements.models.costing.options import CostOptions
from placements.models.parallel import LayerStrategy, Pass
from placements.models.zoo import MODELS
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.schedule import Schedule

_LINK_GB_S = 25.0
"""Between machines; no workload here shares a layer over several."""


class Workload(NamedTuple):
    """A training job of the paper, a row of ``workloads.csv``.

    Attributes:
        model: A model of `placements.models.zoo`.
        gpu: ``a100`` or ``a40``.
        num_stages: Stages of the pipeline, divided as in Table 7.
        micro_batch_size: Samples. The artifact has GPT-3 1.3B with 8, the paper 4. Of the emulation the
            paper does not say it: one is modelled, and the measured profiles are of six.
        num_micro_batches: Micro-batches of a pipeline.
        tensor_parallel: GPUs that share each stage.
        authors_model: The model's name in the authors' files.
        profile: File of the measured profile in the folder of data; empty where there is none. Those in
            ``rebuilt`` are regressed from measured iterations.
        profile_scale: Factor on the times and energies of the measured profile. In the emulation it is of a
            tenth of each stage, on one of its eight GPUs.
    """

    model: str
    gpu: str
    num_stages: int
    micro_batch_size: int
    num_micro_batches: int
    tensor_parallel: int
    authors_model: str
    profile: str = ""
    profile_scale: float = 1.0

    @property
    def case(self) -> str:
        """Its name among the cases of an item."""
        return f"{self.gpu}_{self.model}"


WORKLOADS = {row.case: row for row in published_table(__file__, "workloads.csv", Workload)}
"""All workloads by the names of their cases."""

EMULATED = {case: workload for case, workload in WORKLOADS.items() if workload.tensor_parallel > 1}
"""Workloads of the emulation (Sec. 6.3)."""

EXPERIMENTS = {case: workload for case, workload in WORKLOADS.items() if case not in EMULATED}
"""Workloads that ran on GPUs with one GPU for each stage (Tables 9 and 10)."""


@dataclass(frozen=True)
class Costed:
    """A workload's 1F1B, the profile of its blocks, and the profile's origin.

    It is ``measured``, ``regressed`` from measured iterations, or ``modelled`` from the layers' shapes and
    the power model of the GPU (on A100 of SXM, where the paper has PCIe).

    Rows claim what the item does where costs were measured, else trends only.
    """

    schedule: Schedule
    profile: Profile
    note: str
    claim: Claim | None


def data_folder(data: str | Path | None) -> Path | None:
    """Return the folder of the authors' data; None where none is given.

    Raises:
        OptionError: It has none of the profiles.
    """
    known = [workload.profile for workload in WORKLOADS.values() if workload.profile]
    if data is not None and not any(Path(data, profile).is_file() for profile in known):
        raise OptionError(f"data: {data} has no profile such as {known[0]}; give a folder that has, or none")
    return None if data is None else Path(data)


def costed(workload: Workload, data: str | Path | None, num_micro_batches: int | None = None) -> Costed:
    """Return a workload with the measured costs of a folder, or with modelled ones where it has none.

    It runs so many micro-batches; None for the workload's own number.

    Raises:
        OptionError: The folder is wrong.
        ProfileError: The file of the measured profile is wrong.
    """
    folder, gpu = data_folder(data), GPUS[workload.gpu]
    path = folder / workload.profile if folder and workload.profile else None
    if path is not None and path.is_file():
        scale, watts, claim = workload.profile_scale, gpu.blocking_power_w, None
        profile = Profile.from_csv(
            path, device=gpu.name, blocking_power_w=watts, time_scale=scale, energy_scale=scale
        )
        note = "regressed" if workload.profile.startswith("rebuilt/") else "measured"
    else:
        profile, claim = _modelled(workload), Claim.TREND
        note = "modelled"
    num_gpus = (workload.tensor_parallel,) * workload.num_stages
    placement = replace(profile.times_for(v_shape(workload.num_stages)), num_gpus=num_gpus)
    schedule = one_f_one_b(placement, num_micro_batches or workload.num_micro_batches)
    return Costed(schedule, profile, note, claim)


def _modelled(workload: Workload) -> Profile:
    """Return the profile of a workload by the cost of its layers; each block's share of products counts."""
    gpu, strategy = GPUS[workload.gpu], LayerStrategy(workload.tensor_parallel)
    group = Cluster((Nodes(gpu, 1, workload.tensor_parallel),), _LINK_GB_S).whole
    options = CostOptions(precision=MODELS[workload.model].precision)
    costs = [
        layer_cost(layer, strategy, workload.micro_batch_size, 1, group, options)
        for layer in divided_layers(workload.model)
    ]
    points, ends = {}, DIVISIONS[workload.gpu, workload.model, workload.num_stages].first_layers
    for stage in range(workload.num_stages):
        layers = costs[ends[stage] : ends[stage + 1]]
        points[f"F{stage}"] = _points(gpu, sum((cost.forward for cost in layers), Pass()))
        points[f"B{stage}"] = _points(gpu, sum((cost.backward for cost in layers), Pass()))
    return Profile(gpu.name, points, gpu.blocking_power_w)


def _points(gpu: Gpu, work: Pass) -> tuple[OperatingPoint, ...]:
    """Return a block's cost at each clock; copies depend less on the clock than products."""
    products = gpu.power.compute_share * work.product_ms + COPY_COMPUTE_SHARE * work.copy_ms
    return gpu.operating_points(work.time_ms, products / work.time_ms)
