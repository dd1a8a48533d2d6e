"""What `experiments.plan` plans by measurements: model, cluster and costs of a profile; rates of a machine.

The module does not plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from experiments.config.option_list import default_of
from experiments.config.options import OptionError, require
from experiments.plan.options import PlanCommandOptions
from placements.cluster import Cluster, read_cluster
from placements.measured.galvatron_profile import (
    GalvatronProfile,
    is_galvatron_folder,
    read_galvatron_profile,
)
from placements.measured.profile_folder import read_profiled_model
from placements.models.chain import ModelShape
from placements.models.costing.options import CostOptions
from placements.models.layers import SIXTEEN_BITS, Precision
from placements.models.machine.machine_file import read_machine
from placements.models.machine.measured_rates import MeasuredRates
from placements.models.transformer import TransformerLayer
from placements.models.zoo import MODELS, read_model
from placements.planners.hybrid.profiled.galvatron_costs import GalvatronCosts
from placements.planners.hybrid.profiled.layer_profile_costs import LayerProfileCosts
from placements.planners.hybrid.profiled.measured_cluster import read_measured_cluster
from placements.planners.hybrid.stage_tables import LayerCosts

_COMPUTED = (
    *("layer_times", "machine", "vocab_size", "node_bandwidth_gb_s", "link_bandwidth_gb_s"),
    *("model_flops_utilisation", "output_layer_utilisation", "memory_efficiency"),
)
"""Options of computed costs, which a profile has in their place."""

_OF_LAYOUTS = ("framework", "micro_batch_sizes", "max_chunks", "explain", "overlap_tensor_parallel")


class PlanInputs(NamedTuple):
    """What a planner needs, and where it is from.

    Attributes:
        model: The layers.
        cluster: The GPUs.
        costs: Costs of the layers on them.
        in_words: Where the costs are from.
        is_sequence_parallel: Layers that GPUs share were measured with sequence parallelism alone.
    """

    model: ModelShape
    cluster: Cluster
    costs: LayerCosts
    in_words: str
    is_sequence_parallel: bool = False


def profiled_inputs(options: PlanCommandOptions) -> PlanInputs:
    """Return the model and the cluster of a profile, and what layers cost by it.

    Raises:
        OptionError: An option is missing, or is of computed costs.
        ValueError: The profile is wrong, or lacks the model, the GPUs or a link.
    """
    folder = Path(str(options.profiles))
    if not folder.is_dir():
        raise OptionError(
            f"profiles: {options.profiles!r} is not a folder; give one of measured layers and links, or "
            "planner=pipedream for a CSV file of nodes"
        )
    why = "with a profile gradients are summed after the last backward; leave it out"
    refuse_given(options, ("overlap_gradients",), why)
    refuse_given(options, _OF_LAYOUTS, "a profile has no layouts; leave it out")
    model = required_model(options)
    if is_galvatron_folder(folder):
        refuse_given(options, (*_COMPUTED, "overlap_slowdown"), "the profile has it; leave it out")
        return _of_galvatron(options, folder, model)
    others = (*_COMPUTED, "num_layers", "sequence_length")
    refuse_given(options, others, "the profile has it; leave it out")
    known = read_profiled_model(folder, model)
    where = read_measured_cluster(options.cluster, known, gpus_per_node=options.gpus_per_node)
    costs = LayerProfileCosts(known, where, CostOptions(overlap_slowdown=options.overlap_slowdown))
    gpus = " and ".join(where.names.values())
    said = f"costs: as measured, layers of {model} on {gpus} and links of {folder}; data parallelism computed"
    return PlanInputs(costs.model, where.cluster, costs, said)


def required_model(options: PlanCommandOptions) -> str:
    """Return the name of the model.

    Raises:
        OptionError: There is none.
    """
    if options.model is None:
        raise OptionError("model: has no value; give one, as in model=VALUE")
    return options.model


def refuse_given(options: PlanCommandOptions, names: Sequence[str], why: str) -> None:
    """Reject options that do not apply, where they are not as by default.

    Raises:
        OptionError: One was given.
    """
    for name in names:
        value = getattr(options, name)
        if value != default_of("plan", name):
            raise OptionError(f"{name}: {value} does not apply here: {why}")


def require_sizes(options: PlanCommandOptions) -> None:
    """Reject sizes of micro-batches that are none.

    Raises:
        OptionError: There is no size, or one is not a whole number above 0.
    """
    sizes = options.micro_batch_sizes
    require(
        bool(sizes) and all(type(size) is int and size > 0 for size in sizes),
        *("micro_batch_sizes", sizes, "a list of whole numbers above 0", "give some, as [1,2,4]"),
    )


def measured_rates(
    options: PlanCommandOptions, cluster: Cluster, precision: Precision
) -> MeasuredRates | None:
    """Return the rates of the file of a machine; None where none is given.

    Raises:
        OptionError: They are of another precision, or the cluster has several kinds of GPUs.
        MachineFileError: The file is wrong.
    """
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


def experts_in_words(model: ModelShape) -> str:
    """Return how layers with experts are priced without measured rates; nothing where there are none."""
    has_experts = any(layer.num_routes for _, layer in model.runs)
    return ", those with experts operator by operator, none of it measured" if has_experts else ""


def _of_galvatron(options: PlanCommandOptions, folder: Path, model: str) -> PlanInputs:
    profile = read_galvatron_profile(folder, model, options.sequence_length)
    cluster = read_cluster(
        options.cluster,
        gpus_per_node=options.gpus_per_node,
        node_bandwidth_gb_s=_between_nodes_gb_s(profile),
    )
    if len(cluster.nodes) > 1:
        raise OptionError(f"cluster: {options.cluster} has several kinds of GPUs, the profile one; use one")
    cluster = replace(cluster, source="the most to the next stage that was measured")
    num_layers, output_numbers = _shape_of(profile)
    if options.num_layers is not None:
        num_layers = options.num_layers
    if num_layers is None:
        raise OptionError(
            f"num_layers: is not in the profile, and {model!r} is not a model that is known by name; give it"
        )
    costs = GalvatronCosts(profile, cluster, num_layers, output_numbers)
    said = (
        f"costs: as measured, layers of {model} at {profile.sequence_length} tokens and bandwidths of "
        f"{folder}; exchanges computed of these"
    )
    return PlanInputs(costs.model, cluster, costs, said, costs.is_sequence_parallel)


def _between_nodes_gb_s(profile: GalvatronProfile) -> float:
    """Return the most that was measured, with 2^20 bytes as Galvatron counts; 1 where nothing was."""
    machines = (found for (nodes, _), found in profile.machines.items() if nodes > 1)
    return max((each * 2**20 / 1e6 for found in machines for each in found.to_next.values()), default=1.0)


def _shape_of(profile: GalvatronProfile) -> tuple[int | None, int | None]:
    """Return the layers of a model that is known by name, and the numbers between two of a sample."""
    name = profile.name.lower().replace("-", "_")
    if name not in MODELS:
        return None, None
    shape = read_model(name, sequence_length=profile.sequence_length)
    runs = [(count, layer) for count, layer in shape.runs if isinstance(layer, TransformerLayer)]
    if len(runs) != 1:
        return None, None
    return runs[0][0], runs[0][1].output_elements()
