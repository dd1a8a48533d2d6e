"""The inputs of `experiments.plan`: model, cluster and costs, computed or of a measured profile.

The module does not plan.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

from experiments.config.option_list import default_of
from experiments.config.options import OptionError, require
from experiments.plan.options import PlanCommandOptions
from placements.cluster import Cluster, read_cluster
from placements.measured.galvatron_profile import is_galvatron_folder, read_galvatron_profile
from placements.measured.profile_folder import read_profiled_model
from placements.models.calibration import Calibration
from placements.models.chain import ModelShape
from placements.models.costing.options import CostOptions
from placements.models.layers import SIXTEEN_BITS, Precision
from placements.models.machine.machine_file import read_machine
from placements.models.machine.measured_rates import MeasuredRates
from placements.models.memory import FRAMEWORKS
from placements.models.transformer import TransformerLayer
from placements.models.zoo import MODELS, read_model
from placements.planners.hybrid.profiled.galvatron_costs import GalvatronCosts
from placements.planners.hybrid.profiled.layer_profile_costs import LayerProfileCosts
from placements.planners.hybrid.profiled.measured_cluster import read_measured_cluster
from placements.planners.hybrid.shape_costs import FrameworkCosts
from placements.planners.hybrid.stage_tables import LayerCosts
from schedsearch.planning.planner import in_bf16

_COMPUTED = (
    *("layer_times", "machine", "vocab_size", "node_bandwidth_gb_s", "link_bandwidth_gb_s"),
    *("model_flops_utilisation", "output_layer_utilisation", "memory_efficiency", "overlap_gradients"),
    *("framework", "micro_batch_sizes", "max_chunks", "explain", "overlap_tensor_parallel"),
)
"""Options of computed costs, which a profile has in their place, and of layouts, which it does not have."""

_OF_NODES = (
    *("planner", "cluster", "batch", "gpus_per_node", "node_bandwidth_gb_s", "link_bandwidth_gb_s"),
    "memory_gib",
)
_OF_PIPEDREAM = (*_OF_NODES, "profiles", "flat")
_OF_TWO_BW = (
    *(*_OF_NODES, "model", "micro_batch_sizes", "num_layers", "sequence_length", "vocab_size", "precision"),
    *("machine", "layer_times", "model_flops_utilisation", "memory_efficiency"),
)
"""Options that these planners have."""

_NOT_OF_HYBRID = ("flat", "micro_batch_sizes", "max_chunks", "explain")
_NOT_OF_LAYOUTS = (
    *("flat", "profiles", "layer_times", "sequence_parallel", "method", "stage_method"),
    *("pipeline", "idle_gpus", "shapes", "num_chunks", "seed", "overlap_gradients"),
)
"""Options that these do not have."""


class PlanInputs(NamedTuple):
    """The inputs of a planner, and their sources.

    Attributes:
        model: The layers.
        cluster: The GPUs.
        costs: Costs of the layers on them.
        in_words: Where the costs are from.
        is_sequence_parallel: Tensor-parallel GPUs may share tokens of norms too; of Galvatron's layers, these
            were measured so.
    """

    model: ModelShape
    cluster: Cluster
    costs: LayerCosts
    in_words: str
    is_sequence_parallel: bool


def refuse_not_of_planner(options: PlanCommandOptions) -> None:
    """Refuse what the planner that is asked for does not have, and sizes of micro-batches that are none.

    Raises:
        OptionError: An option is of another planner, or wrong.
    """
    names = [field.name for field in fields(options)]
    others = {
        "hybrid": _NOT_OF_HYBRID,
        "layouts": _NOT_OF_LAYOUTS,
        "pipedream": [name for name in names if name not in _OF_PIPEDREAM],
        "pipedream_2bw": [name for name in names if name not in _OF_TWO_BW],
    }
    why = f"it is not of planner={options.planner or 'null'}; leave it out"
    _refuse(options, others.get(options.planner or "", ("flat",)), why)
    sizes = options.micro_batch_sizes
    require(
        bool(sizes) and all(type(size) is int and size > 0 for size in sizes),
        *("micro_batch_sizes", sizes, "a list of whole numbers above 0", "give some, as [1,2,4]"),
    )


def _refuse(options: PlanCommandOptions, names: Collection[str], why: str) -> None:
    """Reject options that do not apply, where they are not as by default."""
    for name in (field.name for field in fields(options) if field.name in names):
        value = getattr(options, name)
        if value != default_of("plan", name):
            raise OptionError(f"{name}: {value} does not apply here: {why}")


def plan_inputs(options: PlanCommandOptions) -> PlanInputs:
    """Return the model, the cluster and what layers cost.

    Raises:
        OptionError: An option is missing, or is of computed costs where there is a profile.
        ValueError: A name is not known, or a profile is wrong, or lacks the model, the GPUs or a link.
    """
    if options.profiles is not None:
        return _profiled(options)
    model, cluster = model_of(options), cluster_of(options)
    model = in_bf16(model) if options.precision is None else model
    costs = computed_costs(options, model, cluster)
    said = _in_words(options, costs, cluster)
    return PlanInputs(model, cluster, costs, said, options.sequence_parallel)


def model_of(options: PlanCommandOptions) -> ModelShape:
    """Return the model by its name, with the sizes that are given."""
    names = ("num_layers", "sequence_length", "vocab_size", "imbalance", "precision")
    sizes = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return read_model(_required_model(options), **sizes)


def _required_model(options: PlanCommandOptions) -> str:
    if options.model is None:
        raise OptionError("model: has no value; give one, as in model=VALUE")
    return options.model


def cluster_of(options: PlanCommandOptions) -> Cluster:
    """Return the cluster by its name, with the bandwidths that are given."""
    return read_cluster(
        options.cluster,
        gpus_per_node=options.gpus_per_node,
        node_bandwidth_gb_s=options.node_bandwidth_gb_s,
        link_bandwidth_gb_s=options.link_bandwidth_gb_s,
    )


def computed_costs(options: PlanCommandOptions, model: ModelShape, cluster: Cluster) -> FrameworkCosts:
    """Return what layers cost by their shapes, and by what was measured of a machine or of layers."""
    if options.machine is not None:
        _refuse(options, ("layer_times",), "machine has rates for all layers; leave out one of them")
    calibration = None if options.layer_times is None else Calibration.from_csv(options.layer_times)
    return FrameworkCosts(
        model,
        CostOptions(
            options.model_flops_utilisation,
            options.output_layer_utilisation,
            options.memory_efficiency,
            options.overlap_slowdown,
            precision=model.precision,
            overlap_gradients=options.overlap_gradients,
            overlap_tensor_parallel=options.overlap_tensor_parallel,
            overlap_weights=True,
            sends_tokens_once=options.sends_tokens_once,
            calibration=calibration,
            machine=_measured_rates(options, cluster, model.precision),
            framework=FRAMEWORKS[options.framework],
        ),
    )


def _measured_rates(
    options: PlanCommandOptions, cluster: Cluster, precision: Precision
) -> MeasuredRates | None:
    """Return the rates of the file of a machine; None where none is given."""
    if options.machine is None:
        return None
    if len({nodes.gpu for nodes in cluster.nodes}) > 1:
        raise OptionError(
            f"machine: its rates are of one kind of GPU, not of several as in {options.cluster}; leave it out"
        )
    if precision.name not in SIXTEEN_BITS:
        raise OptionError(
            f"machine: its rates were measured in 16 bits, not in {precision.name}; leave it out, or "
            "use precision=bf16"
        )
    return read_machine(options.machine, cluster.whole.gpu)


def _in_words(options: PlanCommandOptions, costs: FrameworkCosts, cluster: Cluster) -> str:
    """Return where computed costs are from."""
    if options.machine is not None:
        return f"costs: computed from shapes, and rates measured, of {options.machine}"
    measured = f"; measured layer times of {options.layer_times}" if options.layer_times else ""
    has_experts = any(layer.num_routes for _, layer in costs.model.runs)
    experts = ", those with experts operator by operator, none of it measured" if has_experts else ""
    share = f"{options.model_flops_utilisation:.0%}"
    return f"costs: computed from shapes and data sheets, layers at {share} of the peak{experts}{measured}"


def _profiled(options: PlanCommandOptions) -> PlanInputs:
    """Return the model and the cluster of a profile, and what layers cost by it."""
    folder = Path(str(options.profiles))
    if not folder.is_dir():
        raise OptionError(
            f"profiles: {options.profiles!r} is not a folder; give one of measured layers and links, or "
            "planner=pipedream for a CSV file of nodes"
        )
    model, is_galvatron = _required_model(options), is_galvatron_folder(folder)
    others = ("overlap_slowdown",) if is_galvatron else ("num_layers", "sequence_length")
    _refuse(options, (*_COMPUTED, *others), "the profile has it, or has none; leave it out")
    if is_galvatron:
        return _of_galvatron(options, folder, model)
    known = read_profiled_model(folder, model)
    where = read_measured_cluster(options.cluster, known, gpus_per_node=options.gpus_per_node)
    costs = LayerProfileCosts(known, where, CostOptions(overlap_slowdown=options.overlap_slowdown))
    gpus = " and ".join(where.names.values())
    said = f"costs: as measured, layers of {model} on {gpus} and links of {folder}; data parallelism computed"
    return PlanInputs(costs.model, where.cluster, costs, said, False)


def _of_galvatron(options: PlanCommandOptions, folder: Path, model: str) -> PlanInputs:
    profile = read_galvatron_profile(folder, model, options.sequence_length)
    # Galvatron counts 2^20 bytes; 1 GB/s where nothing was measured between nodes.
    between = [found.to_next for (nodes, _), found in profile.machines.items() if nodes > 1]
    rate = max((each * 2**20 / 1e6 for found in between for each in found.values()), default=1.0)
    cluster = read_cluster(options.cluster, gpus_per_node=options.gpus_per_node, node_bandwidth_gb_s=rate)
    if len(cluster.nodes) > 1:
        raise OptionError(f"cluster: {options.cluster} has several kinds of GPUs, the profile one; use one")
    cluster = replace(cluster, source="the most to the next stage that was measured")
    num_layers, elements = options.num_layers, None
    name = profile.name.lower().replace("-", "_")
    runs = read_model(name, sequence_length=profile.sequence_length).runs if name in MODELS else ()
    inner = [(count, layer) for count, layer in runs if isinstance(layer, TransformerLayer)]
    if len(inner) == 1:
        num_layers, elements = num_layers or inner[0][0], inner[0][1].output_elements()
    if num_layers is None:
        raise OptionError(
            f"num_layers: is not in the profile, and {model!r} is not a model that is known by name; give it"
        )
    costs = GalvatronCosts(profile, cluster, num_layers, elements)
    said = (
        f"costs: as measured, layers of {model} at {profile.sequence_length} tokens and bandwidths of "
        f"{folder}; exchanges computed of these"
    )
    return PlanInputs(costs.model, cluster, costs, said, costs.is_sequence_parallel)
