"""A run as a model on a cluster under a layout, calibrated by runs that were measured on the same GPU.

The module predicts nothing: times and memory are those of `schedsearch.planning.uniform_run`. A calibration
has two factors at most: on computing, which stands for clocks and kernels, and on communication, which stands
for the network. One run cannot tell them apart, so that both are then the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.predict.run_table import NO_TABLES, RunFolder, is_table, read_run_table, shape_of
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

MIN_SPREAD = 0.05
"""Difference of the runs' shares of communication from which the two factors are told apart."""

MAX_FACTOR = 10.0
"""Factor on times, or one over it, beyond which a run is taken to be in another unit."""

_ROUNDS = 6
"""Most linear fits, each around the factors of the one before: overlaps make times not quite linear."""

_SETTLED = 1e-3
"""Relative change of the factors from which they count as found."""

_STEP = 0.02
"""Relative change of the communication factor by which its share of an iteration is measured."""


def as_modelled(folder: RunFolder, run: Run, framework: Framework) -> UniformRun:
    """Return a run as it is modelled: by measured rates where its machine was measured in its precision.

    Raises:
        ValueError: A name is not known, a degree does not divide, or the run cannot be modelled.
    """
    if run.refused:
        raise RunTableError(run.refused)
    if run.offload:
        raise RunTableError(f"offload: tensors on the host ({run.offload}) are not modelled")
    model, cluster = shape_of(run, folder.models), run.cluster()
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


@dataclass(frozen=True)
class Calibration:
    """Factors on a GPU's modelled times.

    Attributes:
        gpu: Name of the GPU.
        compute: Factor on times of products, cores and kernels.
        communication: Factor on times of collectives and transfers.
        in_words: Explanation of the factors in one line.
        runs: Runs by which they were found.
    """

    gpu: str
    compute: float
    communication: float
    in_words: str = ""
    runs: frozenset[Run] = frozenset()

    def of(self, options: CostOptions) -> CostOptions:
        """Return options of costs with their factors multiplied by these."""
        compute = self.compute * options.compute_factor
        communication = self.communication * options.communication_factor
        return replace(options, compute_factor=compute, communication_factor=communication)


def calibration_of(
    name: str, folder: RunFolder = NO_TABLES, framework: Framework = FRAMEWORKS["megatron"]
) -> Calibration:
    """Return the factors that a run of a folder, or a table of runs, gives.

    Args:
        name: Name of a run of the folder; or path of a table whose runs are all on one GPU.
        folder: Tables, sizes of models, and measured rates; for a path it may have no tables.
        framework: Framework of runs that do not say theirs.

    Raises:
        RunTableError: There is no such run or table, no time was measured, or GPUs differ.
    """
    is_path = is_table(Path(name))
    runs = read_run_table(Path(name)) if is_path else [run for run in folder.runs if run.run == name]
    measured = [run for run in runs if run.measured_ms is not None and not run.refused]
    gpus = sorted({run.gpu for run in measured})
    if len(gpus) != 1:
        why = next((run.refused for run in runs if run.refused), "has no measured_ms")
        why = why if runs else "is no run of the tables, and no table of runs"
        why = f"has runs on {' and '.join(gpus)}, and a calibration is of one GPU" if gpus else why
        raise RunTableError(f"calibrate: {name!r} {why}; name a measured run, or a CSV file of measured runs")
    modelled = list[UniformRun]()
    for run in measured:
        try:
            modelled.append(as_modelled(folder, run, framework))
            modelled[-1].schedule  # noqa: B018  says what is wrong
        except ValueError as why:
            raise RunTableError(f"calibrate: {run.run}: {str(why).splitlines()[0]}") from None
    compute, communication = _factors(modelled, np.array([run.measured_ms for run in measured]))
    if not 1 / MAX_FACTOR <= compute <= MAX_FACTOR:
        wrong = f"calibrate: {name!r} takes {compute:.3g} times as long as predicted"
        raise RunTableError(f"{wrong}; check the unit of measured_ms, and the columns")
    words = (
        f"computing on {gpus[0]} takes {compute:.3f} times as long as its rates say (clocks, kernels), "
        f"communication {communication:.3f} times (network)"
    )
    if compute == communication:
        words = f"all times on {gpus[0]} are multiplied with {compute:.3f}: one figure for clocks and network"
    words += f"; by {len(measured)} run{'s' if len(measured) > 1 else ''} of {name}"
    if len(measured) > 1:
        left = abs(_times_ms(modelled, compute, communication) / [run.measured_ms for run in measured] - 1)
        words += f", which are then off by {left.mean():.1%} on average, {left.max():.1%} at most"
    return Calibration(gpus[0], compute, communication, words, frozenset(measured))


def _factors(runs: Sequence[UniformRun], measured_ms: NDArray[np.float64]) -> tuple[float, float]:
    """Return the factors on computing and communication with least squares of the relative errors.

    Times are taken to be of the first degree in both, so that a time is the sum of each factor's share. Both
    factors are the same where runs hardly differ in their shares of communication, or contradict the model
    so that one factor would be beyond `MAX_FACTOR`.
    """
    factors, are_two = np.ones(2), True
    for _ in range(_ROUNDS):
        now_ms = _times_ms(runs, *factors)
        exchanged_ms = (_times_ms(runs, factors[0], (1 + _STEP) * factors[1]) - now_ms) / _STEP
        share = now_ms / measured_ms
        change = np.full(2, share.sum() / (share**2).sum())
        if are_two and np.ptp(exchanged_ms / now_ms) >= MIN_SPREAD:
            shares = np.stack([now_ms - exchanged_ms, exchanged_ms], axis=1) / measured_ms[:, None]
            change = np.linalg.lstsq(shares, np.ones(len(runs)), rcond=None)[0]
            are_two = all(1 / MAX_FACTOR <= factor <= MAX_FACTOR for factor in factors * change)
            if not are_two:
                factors = np.ones(2)
                continue
        factors = factors * change
        if abs(change - 1).max() < _SETTLED:
            break
    return float(factors[0]), float(factors[1])


def _times_ms(runs: Sequence[UniformRun], compute: float, communication: float) -> NDArray[np.float64]:
    factors = Calibration("", compute, communication)
    return np.array([replace(run, options=factors.of(run.options)).iteration_ms for run in runs])
