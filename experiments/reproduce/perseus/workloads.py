"""The workloads of Perseus: a model in stages on a GPU, its 1F1B schedule, and what its blocks cost.

Costs are those that the authors measured, where a folder has their profiles; else those of layers by their
shapes, with the power model of the GPU. The module does not know what is saved, or what is published of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.reproduce.item import CaseOptions, Claim
from experiments.reproduce.perseus.imbalance import divided_layers
from experiments.reproduce.perseus.published import DIVISIONS, GPU_TITLES, TITLES
from placements import OperatingPoint, Profile
from placements.cluster import Cluster, Nodes
from placements.forms.meaning import Verbatim, option
from placements.gpus import GPUS
from placements.hardware import Gpu
from placements.models.costing.layer_costs import layer_cost
from placements.models.costing.options import CostOptions
from placements.models.parallel import LayerStrategy, Pass
from placements.models.rates import COPY_COMPUTE_SHARE
from placements.models.zoo import MODELS
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.schedule import Schedule

INPUTS = {"data": "perseus"}
"""The option that is the folder of the authors' data, and its place among all data."""

MEASURED, MODELLED = "measured profile", "power model"
"""Where costs are from."""

_POWER_MODEL_OF = {"a100": "the A100 SXM, where the paper has A100 PCIe", "a40": "the A40"}

_LINK_GB_S = 25.0
"""Between machines; no workload here shares a layer over several."""


class DataError(ValueError):
    """A folder of profiles is not what it should be."""


@dataclass(frozen=True)
class PerseusOptions(CaseOptions):
    """Options of the items that need profiles."""

    data: Verbatim | None = option(
        None, "folder of the authors' profiles: rebuilt/, stage_profile/; null: modelled costs"
    )
    only: tuple[str, ...] = option((), "cases to make, as [a100_bert_huge]; empty: all")


@dataclass(frozen=True)
class PerseusWorkload:
    """A training job of the paper.

    Attributes:
        model: One of `published.TITLES`.
        gpu: One of `published.GPU_TITLES`.
        num_stages: Number of stages of the pipeline, divided as in Table 7.
        micro_batch_size: Samples.
        num_micro_batches: Number of micro-batches of a pipeline.
        tensor_parallel: GPUs that share each stage.
        profile: File of the measured profile in the folder of data; empty where there is none.
        profile_scale: Factor on its times and energies.
        is_regressed: They were not measured themselves, but regressed from measured iterations.
    """

    model: str
    gpu: str
    num_stages: int
    micro_batch_size: int
    num_micro_batches: int
    tensor_parallel: int = 1
    profile: str = ""
    profile_scale: float = 1.0
    is_regressed: bool = False

    @property
    def case(self) -> str:
        """Its name among the cases of an item."""
        return f"{self.gpu}_{self.model}"

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{TITLES[self.model]}, {GPU_TITLES[self.gpu]}"


EXPERIMENTS = (
    PerseusWorkload(
        "gpt3_1.3b", "a100", 4, 8, 128, profile="rebuilt/gpt3-xl+A100+pp4+mbs8+nmb128.csv", is_regressed=True
    ),
    PerseusWorkload(
        "bert_huge",
        "a100",
        4,
        8,
        32,
        profile="rebuilt/bert-huge-uncased+A100+pp4+mbs8+nmb32.csv",
        is_regressed=True,
    ),
    PerseusWorkload(
        "t5_3b", "a100", 4, 4, 32, profile="rebuilt/t5-3b+A100+pp4+mbs4+nmb32.csv", is_regressed=True
    ),
    PerseusWorkload("bloom_3b", "a100", 4, 4, 128),
    PerseusWorkload("wide_resnet101_8", "a100", 4, 64, 24),
    PerseusWorkload(
        "gpt3_2.7b", "a40", 8, 4, 256, profile="rebuilt/gpt3-2.7b+A40+pp8+mbs4+nmb256.csv", is_regressed=True
    ),
    PerseusWorkload("bert_huge", "a40", 8, 8, 32),
    PerseusWorkload("t5_3b", "a40", 8, 4, 32),
    PerseusWorkload("bloom_3b", "a40", 8, 4, 128),
    PerseusWorkload("wide_resnet101_8", "a40", 8, 32, 48),
)
"""Those that ran on GPUs (Tables 9 and 10). The artifact has GPT-3 1.3B with 8 samples, the paper with 4."""

THREE_D = PerseusWorkload("gpt3_6.7b", "a40", 4, 4, 128, tensor_parallel=2)
"""One of the two pipelines of Fig. 9c (Table 8)."""

EMULATED = tuple(
    PerseusWorkload(model, gpu, 8, 1, 96, tensor_parallel=8, profile=profile, profile_scale=10.0)
    for gpu, model, profile in (
        ("a100", "gpt3_175b", "stage_profile/gpt3-175b+a100_sxm_bf16.csv"),
        ("a40", "gpt3_175b", "stage_profile/gpt3-175b+a40_bf16.csv"),
        ("a100", "bloom_176b", ""),
        ("a40", "bloom_176b", ""),
    )
)
"""Those of the emulation (Sec. 6.3). The profiles are of a tenth of each stage on one of its eight GPUs; the
paper does not say how many samples a micro-batch has. One is modelled, and the profiles are of six."""


@dataclass(frozen=True)
class Costed:
    """A workload's schedule and what its blocks cost.

    Attributes:
        schedule: 1F1B.
        profile: Profile of its blocks.
        source: `MEASURED` or `MODELLED`.
        note: The source in a few words, for people.
    """

    schedule: Schedule
    profile: Profile
    source: str
    note: str

    @property
    def is_measured(self) -> bool:
        """Whether its costs were measured."""
        return self.source == MEASURED

    @property
    def claim(self) -> Claim | None:
        """What is claimed of rows: that of the item where costs were measured, else trends only."""
        return None if self.is_measured else Claim.TREND


def cases_of(cases: Mapping[str, Any]) -> Callable[[PerseusOptions], Mapping[str, Any]]:
    """Return what returns the cases of an item, once the folder of data is seen to be right."""

    def known(options: PerseusOptions) -> Mapping[str, Any]:
        data_folder(options.data)
        return cases

    return known


def workloads_of(
    workloads: Iterable[PerseusWorkload],
) -> Callable[[PerseusOptions], Mapping[str, PerseusWorkload]]:
    """Return what returns the workloads of an item, a case each."""
    return cases_of({workload.case: workload for workload in workloads})


def data_folder(data: str | None) -> Path | None:
    """Return the folder of the authors' data; None where none is given.

    Raises:
        DataError: It is no folder, or has none of the profiles.
    """
    if data is None:
        return None
    folder = Path(data)
    if not folder.is_dir():
        raise DataError(f"data: {data} is not a folder; give one that has rebuilt/ and stage_profile/")
    known = [each.profile for each in (*EXPERIMENTS, *EMULATED) if each.profile]
    if not any((folder / profile).is_file() for profile in known):
        raise DataError(f"data: {data} has no profile such as {known[0]}; give a folder that has, or none")
    return folder


def costed(workload: PerseusWorkload, folder: Path | None, num_micro_batches: int | None = None) -> Costed:
    """Return a workload with the measured costs of a folder, or with modelled ones where it has none.

    Args:
        workload: The training job.
        folder: Of `data_folder`.
        num_micro_batches: To run; None for the workload's own.

    Raises:
        ProfileError: The file of the measured profile is wrong.
    """
    count = num_micro_batches or workload.num_micro_batches
    path = folder / workload.profile if folder and workload.profile else None
    placement = v_shape(workload.num_stages)
    if path is not None and path.is_file():
        profile = Profile.from_csv(
            path,
            device=GPUS[workload.gpu].name,
            blocking_power_w=GPUS[workload.gpu].blocking_power_w,
            time_scale=workload.profile_scale,
            energy_scale=workload.profile_scale,
        )
        source, note = MEASURED, "measured profile of the authors' artifact"
        if workload.is_regressed:
            note = "measured times and energies that were regressed from measured iterations"
    else:
        profile = _modelled(workload)
        source = MODELLED
        note = f"layers by their shapes and the power model of {_POWER_MODEL_OF[workload.gpu]}"
    placement = replace(
        profile.times_for(placement), num_gpus=(workload.tensor_parallel,) * workload.num_stages
    )
    return Costed(one_f_one_b(placement, count), profile, source, note)


def _modelled(workload: PerseusWorkload) -> Profile:
    """Return the profile of a workload by the cost of its layers; each block's share of products counts."""
    gpu, strategy = GPUS[workload.gpu], LayerStrategy(workload.tensor_parallel)
    group = Cluster((Nodes(gpu, 1, workload.tensor_parallel),), _LINK_GB_S).whole
    options = CostOptions(precision=MODELS[workload.model].precision)
    costs = [
        layer_cost(layer, strategy, workload.micro_batch_size, 1, group, options)
        for layer in divided_layers(workload.model)
    ]
    points, first = {}, 0
    for stage, count in enumerate(_stage_layers(workload)):
        own = costs[first : first + count]
        first += count
        points[f"F{stage}"] = _points(gpu, sum((cost.forward for cost in own), Pass()))
        points[f"B{stage}"] = _points(gpu, sum((cost.backward for cost in own), Pass()))
    return Profile(gpu.name, points, gpu.blocking_power_w)


def _stage_layers(workload: PerseusWorkload) -> tuple[int, ...]:
    layers = DIVISIONS[workload.gpu, workload.model, workload.num_stages].stage_layers
    assert layers is not None, "no workload has a division that the paper leaves out"
    return layers


def _points(gpu: Gpu, work: Pass) -> tuple[OperatingPoint, ...]:
    """Return what a block costs at each clock; copies depend less on the clock than products."""
    products = gpu.power.compute_share * work.product_ms + COPY_COMPUTE_SHARE * work.copy_ms
    return gpu.operating_points(work.time_ms, products / work.time_ms)
