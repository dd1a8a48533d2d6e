"""Model, cluster and costs of layers for a planner, computed or of a measured profile.

The module does not plan.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config.declaring import own_options
from experiments.config.options import OptionError
from experiments.plan.options import PlanQuestion
from experiments.predict.modelled_run import Calibration, calibration_of
from experiments.predict.run_table import NO_TABLES
from placements.cluster import Cluster, read_cluster
from placements.forms.meaning import REQUIRED
from placements.gpus import GPUS
from placements.measured.galvatron_profile import is_galvatron_folder, read_galvatron_profile
from placements.measured.profile_folder import read_profiled_model
from placements.models.chain import ModelShape
from placements.models.costing.options import CostOptions
from placements.models.layers import SIXTEEN_BITS
from placements.models.machine.machine_file import read_machine
from placements.models.machine.machine_rates import MachineRates
from placements.models.memory import FRAMEWORKS
from placements.models.transformer import TransformerLayer
from placements.models.zoo import MODELS, read_model
from placements.planners.hybrid.profiled.galvatron_costs import GalvatronCosts
from placements.planners.hybrid.profiled.layer_profile_costs import LayerProfileCosts
from placements.planners.hybrid.profiled.measured_cluster import read_measured_cluster
from placements.planners.hybrid.shape_costs import FrameworkCosts
from placements.planners.hybrid.stage_tables import LayerCosts
from schedsearch.planning.planner import in_bf16

_SIZES = ("num_layers", "sequence_length", "vocab_size", "imbalance", "precision")
"""Options that change a model."""

_COMPUTED = (
    *("machine", "calibrate", "vocab_size", "node_bandwidth_gb_s", "link_bandwidth_gb_s"),
    *("model_flops_utilisation", "output_layer_utilisation", "memory_efficiency", "framework"),
    *("overlap_tensor_parallel", "sends_tokens_once"),
)
"""Options of computed costs, which a profile has in their place."""


class PlanInputs(NamedTuple):
    """The inputs of a planner, and their sources.

    Attributes:
        model: The layers.
        cluster: The GPUs.
        costs: Costs of the layers on them.
        in_words: Where the costs are from.
        is_sequence_parallel: Tensor-parallel GPUs may share tokens of norms too; None where costs do not say
            so.
    """

    model: ModelShape
    cluster: Cluster
    costs: LayerCosts
    in_words: str
    is_sequence_parallel: bool | None = None


def refuse(options: object, names: Collection[str], why: str) -> None:
    """Reject options of a record that do not apply, where they are not as by default.

    Raises:
        OptionError: One is given.
    """
    for known in own_options(type(options)):
        value = getattr(options, known.name)
        if known.name in names and value != (None if known.default == REQUIRED else known.default):
            raise OptionError(f"{known.name}: {value} does not apply here: {why}; leave it out")


def shared_fields(record: type, *options: object) -> dict[str, Any]:
    """Return the fields of a record that some options have too, by name."""
    known = ChainMap(*map(vars, options))
    return {field.name: known[field.name] for field in fields(record) if field.name in known}


def refuse_all_but(question: PlanQuestion, names: Collection[str], planner: str) -> None:
    """Reject options that a planner does not have."""
    others = {field.name for field in fields(PlanQuestion)}.difference(names)
    refuse(question, others, f"it is not of planner={planner}")


def one_batch(question: PlanQuestion, wanted: str) -> int:
    """Return the batch, which is to be one number."""
    if not isinstance(question.batch, int):
        raise OptionError(f"batch: {list(question.batch)} is not {wanted}; give one number")
    return question.batch


def plan_model(question: PlanQuestion) -> ModelShape:
    """Return the model by its name, with the sizes that are given.

    Raises:
        OptionError: None is given.
        ValueError: A name is not known.
    """
    sizes = {name: value for name in _SIZES if (value := getattr(question, name)) is not None}
    return read_model(_model_name(question), **sizes)


def _model_name(question: PlanQuestion) -> str:
    if question.model is None:
        raise OptionError("model: has no value; give one, as in model=VALUE")
    return question.model


def plan_cluster(question: PlanQuestion) -> Cluster:
    """Return the cluster by its name, with the sizes that are given."""
    names = ("gpus_per_node", "node_bandwidth_gb_s", "link_bandwidth_gb_s")
    return read_cluster(question.cluster, **{name: getattr(question, name) for name in names})


def plan_inputs(question: PlanQuestion) -> PlanInputs:
    """Return the model, the cluster and the costs of layers.

    Raises:
        OptionError: An option is missing, or is of computed costs where there is a profile.
        ValueError: A name is not known, or a profile is wrong, or lacks the model, the GPUs or a link.
    """
    if question.profiles is not None:
        return _profiled(question, Path(question.profiles))
    model, cluster = plan_model(question), plan_cluster(question)
    model = in_bf16(model) if question.precision is None else model
    if wrong := [nodes.gpu.name for nodes in cluster.nodes if not model.precision.is_on(nodes.gpu)]:
        raise OptionError(f"precision: {wrong[0]} has no products in {model.precision.name}; use bf16")
    return PlanInputs(model, cluster, *computed_costs(question, model, cluster))


def computed_costs(question: PlanQuestion, model: ModelShape, cluster: Cluster) -> tuple[FrameworkCosts, str]:
    """Return the costs of layers by their shapes and measured rates, and their source in words.

    Raises:
        OptionError: The rates or runs that are given are of other GPUs or another precision.
    """
    gpu, machine = cluster.whole.gpu, None
    if question.machine is not None:
        if len({nodes.gpu for nodes in cluster.nodes}) > 1:
            wrong = f"its rates are of one kind of GPU, not of several as in {question.cluster}"
            raise OptionError(f"machine: {wrong}; leave it out")
        if model.precision.name not in SIXTEEN_BITS:
            wrong = f"its rates were measured in 16 bits, not in {model.precision.name}"
            raise OptionError(f"machine: {wrong}; leave it out, or use precision=bf16")
        machine = read_machine(question.machine, gpu)
    given = shared_fields(CostOptions, question)
    given |= {"precision": model.precision, "machine": machine, "framework": FRAMEWORKS[question.framework]}
    options = CostOptions(**given, overlap_weights=True)
    rates = options.rates_on(gpu)
    source = f"data sheets, layers at {options.share_of_peak:.0%} of the peak"
    if rates.is_measured:
        where = f", of {question.machine}" if machine else f" by shape on {rates.name}"
        source = f"rates measured{where}"
    elif any(layer.num_routes for _, layer in model.runs):
        source += ", those with experts operator by operator, none of it measured"
    if question.calibrate is not None:
        factors = _calibration(question, cluster, machine)
        options, source = factors.of(options), f"{source}; {factors.in_words}"
    return FrameworkCosts(model, options), f"costs: computed from shapes, and {source}"


def _calibration(question: PlanQuestion, cluster: Cluster, machine: MachineRates | None) -> Calibration:
    """Return the factors on modelled times by the table of runs that is given.

    Raises:
        OptionError: The runs are on another GPU than the cluster's.
    """
    assert question.calibrate is not None, "given"
    gpu_keys = [key for key, gpu in GPUS.items() if {gpu} == {nodes.gpu for nodes in cluster.nodes}]
    folder = replace(NO_TABLES, machines=dict.fromkeys(gpu_keys, machine) if machine is not None else {})
    factors = calibration_of(question.calibrate, folder, FRAMEWORKS[question.framework])
    if factors.gpu not in gpu_keys:
        wrong = f"the runs of {question.calibrate} are on {factors.gpu}, not on the GPU of {question.cluster}"
        raise OptionError(f"calibrate: {wrong}; give runs on it")
    return factors


def _profiled(question: PlanQuestion, folder: Path) -> PlanInputs:
    """Return the model and the cluster of a profile, and the costs of its layers."""
    if not folder.is_dir():
        wrong = f"{question.profiles!r} is not a folder; give one of measured layers and links"
        raise OptionError(f"profiles: {wrong}, or planner=pipedream for a CSV file of nodes")
    name, is_galvatron = _model_name(question), is_galvatron_folder(folder)
    others = ("overlap_slowdown",) if is_galvatron else ("num_layers", "sequence_length")
    refuse(question, (*_COMPUTED, *others), "the profile has it, or has none")
    if is_galvatron:
        return _of_galvatron(question, folder, name)
    known = read_profiled_model(folder, name)
    where = read_measured_cluster(question.cluster, known, gpus_per_node=question.gpus_per_node)
    options = CostOptions(overlap_slowdown=question.overlap_slowdown)
    costs = LayerProfileCosts(known, where, options=options)
    gpus = " and ".join(where.names.values())
    source = f"layers of {name} on {gpus} and links of {folder}; data parallelism computed"
    return PlanInputs(costs.model, where.cluster, costs, f"costs: as measured, {source}", False)


def _of_galvatron(question: PlanQuestion, folder: Path, model: str) -> PlanInputs:
    profile = read_galvatron_profile(folder, model, question.sequence_length)
    # Galvatron counts 2^20 bytes; 1 GB/s where nothing was measured between nodes.
    between = (machine.to_next.values() for (nodes, _), machine in profile.machines.items() if nodes > 1)
    rate = max((bandwidth * 2**20 / 1e6 for rates in between for bandwidth in rates), default=1.0)
    cluster = read_cluster(question.cluster, gpus_per_node=question.gpus_per_node, node_bandwidth_gb_s=rate)
    if len(cluster.nodes) > 1:
        raise OptionError(f"cluster: {question.cluster} has several kinds of GPUs, the profile one; use one")
    cluster = replace(cluster, source="the most to the next stage that was measured")
    num_layers, elements = question.num_layers, None
    name = profile.name.lower().replace("-", "_")
    runs = read_model(name, sequence_length=profile.sequence_length).runs if name in MODELS else ()
    inner = [(count, layer) for count, layer in runs if isinstance(layer, TransformerLayer)]
    if len(inner) == 1:
        num_layers, elements = num_layers or inner[0][0], inner[0][1].output_elements()
    if num_layers is None:
        wrong = f"is not in the profile, and {model!r} is not a model that is known by name"
        raise OptionError(f"num_layers: {wrong}; give it")
    costs = GalvatronCosts(profile, cluster, num_layers, elements)
    source = f"layers of {model} at {profile.sequence_length} tokens and bandwidths of {folder}"
    source = f"costs: as measured, {source}; exchanges computed of these"
    return PlanInputs(costs.model, cluster, costs, source, costs.is_sequence_parallel)
