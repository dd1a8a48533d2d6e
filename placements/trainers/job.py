"""A trainer's job: a decoder, and how GPUs share its layers. The module knows no trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from inspect import signature
from typing import Any, Literal, NamedTuple

from placements.models.chain import ModelDetails, ModelShape
from placements.models.end_layers import EmbeddingLayer, OutputLayer, ProjectionLayer
from placements.models.parallel import Recompute
from placements.models.transformer import TransformerLayer
from placements.models.zoo.shapes import decoder, sizes_of
from placements.planners.hybrid.plan import Plan, PlanError
from placements.planners.hybrid.uniform import Degrees, Layout
from placements.trainers.layout import EMBEDDING, LAYER, LOSS, MTP, PipelineLayout

ModeKind = Literal["keep", "recompute", "selective", "offload"]
"""Activations are kept, computed again from a layer's input, in part computed again, or on the host."""


class StageMode(NamedTuple):
    """Mode of the first transformer layers of a stage, of which other layers keep their activations."""

    kind: ModeKind = "keep"
    layers: int = 0


@dataclass(frozen=True, kw_only=True)
class TrainerJob:
    """A job of a trainer.

    Attributes:
        stages: Parts of the model on virtual stages.
        group: Micro-batches that go through a chunk before the next chunk; None for as many as ranks.
        sizes: The model, as arguments of `placements.models.zoo.decoder` without its defaults, and fields of
            `placements.models.chain.ModelDetails`; empty where nothing is known of it.
        layout: Degrees by which GPUs share it; None where not known.
        overlap_exchanges: Gradients are summed, and weights gathered, beside the pipeline.
        overlap_tensor_parallel: Tokens are gathered and scattered beside products.
        sends_tokens_once: A token goes once to each GPU that has any of its experts.
        modes: Mode of each micro-batch, or of all, for each virtual stage; empty: the layout's recomputation.
    """

    stages: PipelineLayout
    group: int | None = None
    sizes: Mapping[str, Any] = field(default_factory=dict)
    layout: Layout | None = None
    overlap_exchanges: bool = False
    overlap_tensor_parallel: bool = False
    sends_tokens_once: bool = False
    modes: tuple[tuple[StageMode, ...], ...] = ()

    @property
    def num_layers(self) -> tuple[int, ...]:
        """Transformer layers of each virtual stage."""
        return tuple(stage.count(LAYER) for stage in self.stages.stages)

    @property
    def stage_modes(self) -> tuple[tuple[StageMode, ...], ...]:
        """The modes, or the layout's recomputation as modes."""
        recompute = self.layout.recompute if self.layout else "none"
        most = self.layout and self.layout.recomputed_layers
        kind: ModeKind = "recompute" if recompute == "full" else "selective"
        counts = [0 if recompute == "none" else min(most or count, count) for count in self.num_layers]
        return self.modes or tuple((StageMode(kind, count) if count else StageMode(),) for count in counts)

    @property
    def fields(self) -> dict[str, Any]:
        """All fields by name: sizes with their defaults, degrees and flags."""
        how = asdict(layout) | {"batch": layout.batch} if (layout := self.layout) else {}
        if layout:
            how["sequence_parallel"] = layout.sequence_parallel and layout.degrees.tensor > 1
        return {**_DEFAULTS, **self.sizes, **how.pop("degrees", {}), **how, **vars(self)}


_DEFAULTS = asdict(ModelDetails()) | sizes_of(decoder)


def without_defaults(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `decoder` that differ from its defaults."""
    return {name: value for name, value in sizes.items() if value != _DEFAULTS.get(name)}


def decoder_layers(model: ModelShape, system: str) -> tuple[TransformerLayer, ...]:
    """Return the layers of a decoder: equal but for windows, and but for experts in the first.

    Raises:
        PlanError: The model is another one.
    """
    last = next((i for i, layer in enumerate(model.layers) if isinstance(layer, OutputLayer)), 0)
    inner = tuple(layer for layer in model.layers[1:last] if isinstance(layer, TransformerLayer))
    kinds = list(dict.fromkeys(replace(layer, window=None, name="") for layer in inner))
    routed = [layer.has_experts for layer in inner]
    if len(kinds) == 2 and kinds[1].has_experts:
        sizes = ("feed_forward_size", "num_experts", "experts_per_token", "shared_expert_size", "imbalance")
        kinds[1] = replace(kinds[1], **{name: getattr(kinds[0], name) for name in sizes})
    if (
        not isinstance(model.layers[0], EmbeddingLayer)
        or len(set(kinds)) != 1
        or len(inner) != last - 1
        or routed != sorted(routed)
        or kinds[0].cross_length
        or kinds[0].parts != "both"
    ):
        raise PlanError(
            f"model: {model.name} is not an embedding, equal transformer layers and an output layer, "
            f"of which the arguments of {system} are"
        )
    return inner


_SAME = (
    *("hidden_size", "num_heads", "num_kv_heads", "sequence_length", "gated", "dropout", "biases"),
    *("query_key_norms", "kv_rank", "query_rank", "rope_width", "num_experts", "experts_per_token"),
    "shared_expert_size",
)
"""Arguments of `decoder` that each of its layers has by the same name."""


def model_sizes(model: ModelShape, system: str) -> dict[str, Any]:
    """Return the sizes of a model; see `TrainerJob`.

    Raises:
        PlanError: The model is no decoder, or its windows have no period.
    """
    layers = decoder_layers(model, system)
    first, layer = layers[0], layers[-1]
    embedding, output = model.layers[0], model.layers[len(layers) + 1]
    assert isinstance(embedding, EmbeddingLayer) and isinstance(output, OutputLayer), "a decoder"
    num_dense = sum(not layer.has_experts for layer in layers) if layer.has_experts else 0
    windows = [layer.window for layer in layers]
    window = max((size for size in windows if size is not None), default=None)
    every = windows.index(None) + 1 if window is not None and None in windows else 0
    if windows != [None if every and i % every == every - 1 else window for i in range(len(layers))]:
        raise PlanError(f"model: the windows of {model.name} have no period, which {system} needs")
    head_width = layer.query_width // layer.num_heads - layer.rope_width
    return without_defaults(
        {name: getattr(layer, name) for name in _SAME}
        | asdict(model.details)
        | {
            "num_layers": len(layers),
            "vocab_size": embedding.vocab_size,
            "feed_forward_size": layer.ffn_size,
            "head_width": head_width,
            "value_width": layer.value_width if layer.kv_rank is None else layer.value_width or head_width,
            "learned_positions": embedding.num_positions > 0,
            "tied": output.tied,
            "window": window,
            "window_every": every,
            "num_dense_layers": num_dense,
            "dense_feed_forward_size": first.ffn_size if num_dense else None,
            "num_predict_layers": plan_letters(model).count(MTP),
            "precision": model.precision.name,
        }
    )


def layout_from_fields(fields: Mapping[str, Any], stages: PipelineLayout) -> Layout:
    """Return the layout of fields by their names, which have the data-parallel size and the batch."""
    of_layout = {name: fields[name] for name in signature(Layout).parameters if name in fields}
    shared = {name: fields[name] for name in signature(Degrees).parameters if name in fields}
    degrees = Degrees(**shared, pipeline=stages.num_devices, chunks=stages.num_chunks)
    of_layout["num_micro_batches"] = fields["batch"] // (degrees.data * fields["micro_batch_size"])
    of_layout["sequence_parallel"] = fields["sequence_parallel"] or degrees.tensor == 1
    return Layout(degrees, **of_layout)


def plan_letters(model: ModelShape) -> list[str]:
    """Return the letter of each layer of a decoder; an empty one for all but the first of a module of MTP."""
    kinds = {EmbeddingLayer: EMBEDDING, TransformerLayer: LAYER, OutputLayer: LOSS}
    letters = [kinds.get(type(layer), "") for layer in model.layers]
    last = letters.index(LOSS) + 1
    after = (MTP if isinstance(layer, ProjectionLayer) else "" for layer in model.layers[last:])
    return [*letters[:last], *after]


def plan_stages(plan: Plan, chunks: Sequence[range] | None = None) -> PipelineLayout:
    """Return the parts of a decoder on the stages of a plan, or on its chunks."""
    letters = plan_letters(plan.model)
    parts = ("".join(letters[i] for i in part) for part in chunks or [stage.layers for stage in plan.stages])
    # Trainers put the loss behind the layers of MTP.
    return PipelineLayout(plan.num_stages, tuple("".join(sorted(part, key=LOSS.__eq__)) for part in parts))


def plan_job(plan: Plan, num_micro_batches: int, system: str) -> TrainerJob:
    """Return the job of a plan of stages, with as many micro-batches, and its recomputation as modes.

    Raises:
        PlanError: The model is no decoder, or its windows have no period.
    """
    modes = []
    for stage in plan.stages:
        kinds = [plan.strategies[i].recompute for i in plan.inner_layers(stage.layers)]
        kind: ModeKind = "selective" if "selective" in kinds else "recompute"
        count = len(kinds) if kind == "selective" else kinds.count("full")
        modes.append((StageMode(kind, count) if count else StageMode(),))
    layout = replace(plan_uniform(plan).plain, num_micro_batches=num_micro_batches)
    sizes, stages = model_sizes(plan.model, system), plan_stages(plan)
    return TrainerJob(stages=stages, sizes=sizes, layout=layout, modes=tuple(modes))


def most_recomputed(plan: Plan, parts: Sequence[range]) -> int:
    """Return the most layers of one part that are recomputed as a whole."""
    return max(sum(plan.strategies[i].recompute == "full" for i in part) for part in parts)


def plan_uniform(plan: Plan, chunks: Sequence[range] | None = None) -> Layout:
    """Return the layout of a plan whose layers are all shared as most of them."""
    common, parts = plan.common, chunks or [stage.layers for stage in plan.stages]
    most = most_recomputed(plan, parts)
    is_selective = any(how.recompute == "selective" for how in plan.strategies)
    is_ring = common.sequence != "ulysses" and common.token_parallel > 1 and common.context == "ring"
    degrees = Degrees(
        tensor=common.matrix_parallel,
        pipeline=plan.num_stages,
        data=common.data_parallel,
        context=common.token_parallel,
        expert=common.expert_parallel,
        chunks=len(parts) // plan.num_stages,
        whole_experts=common.whole_experts,
        context_sharing="ring" if is_ring else "all_to_all",
    )
    size = plan.micro_batch_size // common.data_parallel
    recompute: Recompute = "full" if most else "selective" if is_selective else "none"
    return Layout(
        degrees,
        size,
        plan.num_micro_batches,
        common.zero,
        recompute,
        most or None,
        sequence_parallel=common.sequence == "megatron" or common.matrix_parallel == 1,
        shard_gpus=common.shard_gpus,
        reshards=common.reshards,
        recompute_modules=common.recompute_modules,
    )
