"""A run as a model on a cluster under a layout, with the work that its software overlaps.

The module predicts nothing: times and memory are those of `schedsearch.planning.uniform_run`.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.predict.run_table import RunFolder
from experiments.predict.runs.run import Run
from experiments.predict.runs.table_forms import RunTableError
from placements.models.chain import ModelShape
from placements.models.costing.options import CostOptions
from placements.models.layers import SIXTEEN_BITS
from placements.models.memory import FRAMEWORKS, Framework
from placements.planners.hybrid.search.layout_search import LayoutSearch
from placements.planners.hybrid.uniform import Layout
from placements.trainers import megatron_layout as megatron
from placements.trainers.layout import MTP, LayoutError
from schedsearch.planning.uniform_run import UniformRun


def as_modelled(folder: RunFolder, run: Run, framework: Framework) -> UniformRun:
    """Return a run as it is modelled: by measured rates where its machine was measured in its precision.

    Raises:
        ValueError: A name is not known, a degree does not divide, or the run has what is not modelled.
    """
    if run.refused:
        raise RunTableError(run.refused)
    if run.offload:
        raise RunTableError(f"offload: tensors on the host ({run.offload}) are not modelled")
    model, cluster = folder.model(run), run.cluster()
    if not model.precision.is_on(cluster.whole.gpu):
        raise RunTableError(f"precision: {run.gpu} has no products in {run.precision_name}")
    options = CostOptions(
        None,
        precision=model.precision,
        machine=folder.machines.get(run.gpu) if model.precision.name in SIXTEEN_BITS else None,
        framework=_framework(run, framework),
        graphs=run.graphs,
        is_compiled=run.compile,
        overlap_tensor_parallel=run.async_tp,
        sends_tokens_once=run.sends_tokens_once,
        overlap_weights=run.zero == 3,
        compute_factor=run.clock_factor(cluster.whole.gpu),
    )
    groups = run.data_parallel, run.data_parallel * run.cp
    layout = Layout(
        run.degrees,
        run.micro_batch,
        run.num_micro_batches or 1,
        run.zero,
        "none" if run.recompute == "fitting" else run.recompute,
        run.recompute_layers,
        _chunk_layers(run, model),
        sequence_parallel=run.sequence_parallel,
        shard_gpus=None if run.shard_gpus in groups else run.shard_gpus,
        reshards=run.reshard,
        recompute_modules=run.modules,
    )
    if run.recompute == "fitting":
        batch = run.micro_batch * run.data_parallel * layout.num_micro_batches
        search = LayoutSearch(model, cluster, batch, replace(options, exchanges_apart=True))
        layout = search.least_recomputed(layout).layout
    return UniformRun(model, cluster, layout, options, run.overlap, run.schedule_name)


def _framework(run: Run, usual: Framework) -> Framework:
    """Return the framework of a run with its loss, or the usual one."""
    framework = FRAMEWORKS.get(run.framework, usual)
    if run.loss:
        framework = replace(framework, loss=run.loss)
    if not run.sums_in_products:
        framework = replace(framework, has_placeholders=False)
    if run.deterministic and framework.workspaces:
        framework = replace(framework, workspaces=f"{framework.workspaces} deterministic")
    return framework


def _chunk_layers(run: Run, model: ModelShape) -> tuple[int, ...] | None:
    """Return the layers of each chunk, the ends too, where a run says them; None for an even division.

    Raises:
        PlanError: Megatron-LM would refuse the layout, or layers of MTP are apart from the loss.
    """
    if not (run.layout or run.first_stage_layers or run.last_stage_layers):
        return None
    # Embedding and output layer are a layer each, and a module of MTP three, behind the output layer.
    num_layers, num_mtp = len(model.layers), run.predict_layers or 0
    said: list[tuple[str, str, object]] = [
        ("layers", megatron.LAYERS, num_layers - 2 - 3 * num_mtp),
        ("pp", megatron.RANKS, run.pp),
        ("predict_layers", megatron.MTP_LAYERS, num_mtp),
        ("layout", megatron.LAYOUT, run.layout),
        ("first_stage_layers", megatron.FIRST, run.first_stage_layers),
        ("last_stage_layers", megatron.LAST, run.last_stage_layers),
        ("vp", megatron.CHUNKS, run.vp if run.vp > 1 and not run.layout else None),
    ]
    try:
        words = [str(word) for _, *pair in said if pair[1] for word in pair]
        stages = megatron.pipeline_of(words).layout.stages
    except LayoutError as why:
        text = str(why)
        for column, argument, _ in said:
            text = text.replace(argument, column)
        raise LayoutError(text) from None
    if MTP in "".join(stages[:-1]):
        raise LayoutError("layout: layers of MTP apart from the loss are not modelled; move m to its stage")
    before = tuple(map(len, stages[:-1]))
    return (*before, num_layers - sum(before))
