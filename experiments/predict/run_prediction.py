"""Time and memory of a run by its model, its GPUs and its degrees, from a schedule of its stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

from experiments.predict.measured_folder import MeasuredFolderError
from experiments.predict.run_table import Run, RunFolder
from placements import Kind, Placement
from placements.cluster import DeviceGroup
from placements.models.costs import CostOptions
from placements.models.layers import Layer
from placements.models.memory import Framework
from placements.models.parallel import Cost, LayerStrategy, Pass
from placements.models.piece_placement import PieceCost
from placements.planners.hybrid.placing.planned_placement import chunk_pieces, placement_of_pieces
from placements.planners.hybrid.plan import Plan, layers_of_stage
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.hybrid.uniform import chunk_sizes, uniform_plan
from schedsearch.baselines import HAND_MADE
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule
from schedsearch.validate import validate

_MAX_BLOCKS = 2_000_000
"""Blocks of a schedule that is made; more would take minutes and gigabytes."""


_UNLIMITED = 100.0
"""Memory of a device, of its GPU's: what does not fit is predicted too."""


@dataclass(frozen=True)
class Factors:
    """What modelled times are multiplied with, from a run of the user's.

    Attributes:
        compute: Factor of products and what runs between them.
        communication: Factor of what GPUs exchange.
    """

    compute: float = 1.0
    communication: float = 1.0

    def of(self, cost: Cost) -> Cost:
        """Return a cost with longer or shorter times."""
        return replace(
            cost,
            forward=self._of_pass(cost.forward),
            backward=self._of_pass(cost.backward),
            update_ms=self.communication * cost.update_ms,
            scatter_ms=self.communication * cost.scatter_ms,
            gather_ms=self.communication * cost.gather_ms,
        )

    def _of_pass(self, one: Pass) -> Pass:
        return Pass(self.compute * one.product_ms, self.communication * one.copy_ms)


@dataclass(frozen=True)
class _FactoredCosts(ShapeCosts):
    """Costs by shape, multiplied."""

    factors: Factors = Factors()

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        """Return what a layer costs."""
        return self.factors.of(super().cost(layer, strategy, samples, num_micro_batches, group))


@dataclass(frozen=True)
class RunPrediction:
    """What is said of one run.

    Attributes:
        run: The run, with what was measured.
        predicted_ms: Time of an iteration; None where it cannot be predicted, as the note says.
        gib_by_stage: The most that a GPU of each stage holds.
        note: What stands beside the run in its table, then what we have to say.
    """

    run: Run
    predicted_ms: float | None
    gib_by_stage: tuple[float, ...]
    note: str

    @property
    def predicted_gib(self) -> float | None:
        """The most that a GPU holds."""
        return max(self.gib_by_stage, default=None)

    @property
    def time_error(self) -> float | None:
        """How much of the measured time the prediction is above it; below where negative."""
        return _error(self.predicted_ms, self.run.measured_ms)

    @property
    def memory_error(self) -> float | None:
        """Likewise of memory."""
        return _error(self.predicted_gib, self.run.measured_gib)


@dataclass(frozen=True)
class RunModel:
    """A run as blocks, whose schedule says how long an iteration takes.

    Attributes:
        folder: Models and machines.
        run: The run.
        framework: What holds memory besides states and activations.
        factors: What times are multiplied with.
    """

    folder: RunFolder
    run: Run
    framework: Framework
    factors: Factors = Factors()

    @cached_property
    def plan(self) -> Plan:
        """Its layers on its GPUs.

        Raises:
            ValueError: A name is not known, or a degree does not divide.
        """
        run = self.run
        if run.recompute not in ("none", "selective", "full", ""):
            raise MeasuredFolderError(
                f"recompute: {run.recompute!r} is not known; use none, selective or full"
            )
        return uniform_plan(
            self.folder.model(run),
            run.cluster(),
            run.degrees,
            run.micro_batch,
            run.num_micro_batches,
            recompute=run.recompute or "none",  # type: ignore[arg-type]
        )

    @cached_property
    def costs(self) -> ShapeCosts:
        """What its layers cost: by measured rates where the machine was measured in this precision."""
        model = self.plan.model
        machine = self.folder.machines.get(self.run.gpu)
        measured = machine if model.precision.name in ("half", "bf16") else None
        options = CostOptions(
            machine=measured, framework=self.framework, exchanges_apart=self.overlaps_exchanges
        )
        return _FactoredCosts(model, options, self.factors)

    @cached_property
    def pieces(self) -> list[PieceCost]:
        """What its stages cost, or their chunks, which go around the devices."""
        devices = [i % self.run.pp for i in range(len(self.chunks))]
        return chunk_pieces(self.plan, self.costs, self.chunks, devices)

    @cached_property
    def chunks(self) -> tuple[range, ...]:
        """The layers of each chunk."""
        sizes = chunk_sizes(self.plan.model, self.run.pp * self.run.vp)
        return tuple(range(first, end) for first, end in pairwise(accumulate(sizes, initial=0)))

    def layers_of(self, chunk: range) -> list[tuple[Layer, LayerStrategy]]:
        """Return the layers of a chunk and how each is shared."""
        layers = layers_of_stage(self.plan.model.layers, chunk.start, chunk.stop)
        return list(zip(layers, self.plan.strategies[chunk.start : chunk.stop], strict=True))

    def at_peak(self, stage: int) -> tuple[dict[int, int], bool]:
        """Return of how many micro-batches each chunk keeps tensors when its stage holds most.

        Returns:
            Micro-batches by chunk, and whether a backward runs then.
        """
        placement, held = self.placement, Counter[int]()
        most, found = -1.0, (dict[int, int](), False)
        for name, _ in self.schedule.order(stage):
            block, chunk = placement.by_name[name], int(name[1:])
            if block.kind is Kind.F:
                held[chunk] += 1
            if block.kind in (Kind.F, Kind.B):
                kept = sum(count * self.pieces[i].cost.kept_bytes for i, count in held.items())
                cost = self.pieces[chunk].cost
                total = kept + (cost.forward_bytes if block.kind is Kind.F else cost.backward_bytes)
                if total > most:
                    most, found = total, (dict(held), block.kind is Kind.B)
            if block.kind is Kind.B:
                held[chunk] -= 1
        return found

    @cached_property
    def placement(self) -> Placement:
        """Its pieces as blocks, on devices that have any memory."""
        plan = self.plan
        gib = [_UNLIMITED * plan.group(0).memory_gib] * plan.num_stages
        return placement_of_pieces(f"{plan.model.name} run", plan, self.pieces, gib)

    @cached_property
    def schedule(self) -> Schedule:
        """1F1B, interleaved where stages have several chunks.

        Raises:
            MeasuredFolderError: It has too many blocks.
            UnsuitablePlacementError: There are fewer micro-batches than stages with chunks.
        """
        number = self.run.num_micro_batches
        if (count := len(self.placement.blocks) * number) > _MAX_BLOCKS:
            raise MeasuredFolderError(f"{count} blocks are more than the {_MAX_BLOCKS} that are simulated")
        name = "one_f_one_b" if self.run.vp == 1 or self.run.pp == 1 else "interleaved_one_f_one_b"
        return validate(HAND_MADE[name](self.placement, number))

    @property
    def overlaps_exchanges(self) -> bool:
        """Gradients are summed, and new weights gathered, beside the pipeline.

        As the table says; where it does not, this is so where the GPUs that hold the same weights are in
        several nodes, as runs are configured: Megatron-LM does it only when asked.
        """
        if self.run.overlap is not None:
            return self.run.overlap
        group = self.plan.group(0)
        return not group.fits_in_nodes(group.count)

    @property
    def iteration_ms(self) -> float:
        """Time of an iteration: the last of its devices' updates, and what no pipeline hides of exchanges.

        A chunk's gradients are summed when its last backward has run, one chunk after the other. A device's
        weights are updated when all are, and the next iteration begins when those of its first chunk are
        gathered. What runs beside products slows them down (Galvatron-BMW, Sec. V).
        """
        if not self.overlaps_exchanges:
            return self.placement.ms(self.schedule.makespan)
        placement, starts = self.placement, self.schedule.start_of
        last = self.run.num_micro_batches - 1
        backwards = [placement.by_name[f"B{i}"] for i in range(len(self.pieces))]
        ends_ms = [placement.ms(starts[block.name, last] + block.time) for block in backwards]
        slowdown = self.costs.options.overlap_slowdown - 1
        finished = []
        for update in placement.optimizer_blocks:
            own = [(ends_ms[i], i) for i, piece in enumerate(self.pieces) if piece.devices == update.devices]
            now_ms = 0.0
            for end_ms, i in sorted(own):
                now_ms = max(now_ms, end_ms) + self.pieces[i].cost.scatter_ms
            costs = [self.pieces[i].cost for _, i in sorted(own, key=lambda each: each[1])]
            seen_ms = now_ms - max(end_ms for end_ms, _ in own) + costs[0].gather_ms
            hidden_ms = sum(cost.scatter_ms + cost.gather_ms for cost in costs) - seen_ms
            finished.append(
                now_ms + placement.ms(update.time) + costs[0].gather_ms + slowdown * max(hidden_ms, 0.0)
            )
        return max(finished)

    @property
    def gib_by_stage(self) -> tuple[float, ...]:
        """The most that a GPU of each stage holds."""
        return tuple(self.placement.mib(int(most)) / 1024 for most in peak_memory(self.schedule))


def predict_run(
    folder: RunFolder, run: Run, framework: Framework, factors: Factors = Factors()
) -> RunPrediction:
    """Predict one run; where it cannot be, the note says why.

    Args:
        folder: Models and machines.
        run: The run.
        framework: What holds memory besides states and activations.
        factors: What times are multiplied with.
    """
    model = RunModel(folder, run, framework, factors)
    try:
        time_ms, gib = model.iteration_ms, model.gib_by_stage
    except ValueError as why:
        return RunPrediction(run, None, (), _joined([run.note, f"not predicted: {why}"]))
    return RunPrediction(run, time_ms, gib, _joined([run.note, *_remarks(model)]))


def calibrated(folder: RunFolder, runs: Iterable[Run], name: str, framework: Framework) -> Factors:
    """Return the factors with which a run takes as long as it was measured.

    What GPUs exchange is multiplied alike: one time does not tell it from computing.

    Args:
        folder: Models and machines.
        runs: All runs.
        name: Name of the run.
        framework: See `predict_run`.

    Raises:
        MeasuredFolderError: There is no such run, or its time was not measured.
    """
    found = next((run for run in runs if run.run == name), None)
    if found is None or found.measured_ms is None:
        why = "is no run of the tables" if found is None else "has no measured_ms"
        raise MeasuredFolderError(f"calibrate: {name!r} {why}; name a run that was measured")
    factor = 1.0
    for _ in range(4):
        # Times are rounded to ticks and streams overlap, so that one step is not exact.
        model = RunModel(folder, found, framework, Factors(factor, factor))
        factor *= found.measured_ms / model.iteration_ms
    return Factors(factor, factor)


def _remarks(model: RunModel) -> list[str]:
    gpu = model.run.gpu
    if model.costs.options.machine is not None:
        return []
    known = gpu in model.folder.machines
    return [f"rates of {gpu} {'in ' + model.run.precision + ' ' if known else ''}assumed, not measured"]


def _joined(notes: Iterable[str]) -> str:
    return "; ".join(note for note in notes if note)


def _error(predicted: float | None, measured: float | None) -> float | None:
    return None if predicted is None or measured is None else predicted / measured - 1
