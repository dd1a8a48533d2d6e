"""A run: a row of a table, with its model, GPUs, layout, software and measurements.

The module reads no file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args

from experiments.predict.runs.table_forms import RunTableError
from placements.cluster import Cluster, read_cluster
from placements.forms.meaning import Meaning
from placements.gpus import GPUS
from placements.hardware import Gpu
from placements.models.costing.options import Graphs
from placements.models.layers import PRECISIONS
from placements.models.memory import FRAMEWORKS, LOSSES
from placements.models.parallel import ContextSharing, RecomputedModule
from placements.models.transformer import AttentionKind
from placements.models.zoo.shapes import suggestion
from placements.planners.hybrid.uniform import Degrees
from placements.trainers.megatron_layout import read_notation
from schedsearch.baselines import NEEDS

_VARIANT = re.compile(r"(\w+?)(?:_([1-9][0-9]*)gb)?(?:_([1-9][0-9]*)w)?")
"""Name of a GPU with its memory in GB and its power limit in W, such as h100_96gb_500w."""

_PRECISIONS = {"fp16": "half", "fp32": "single"}
"""Names of precisions that are not ours."""


@dataclass(frozen=True)
class Run:
    """A row of a table: a run and its measurements."""

    run: Annotated[str, Meaning("name of the run")]
    gpu: Annotated[str, Meaning("name of a GPU, such as b200; also with memory and power, h100_96gb_500w")]
    gpus: Annotated[int, Meaning("GPUs", min=1, max=100_000)]
    sequence_length: Annotated[int, Meaning("tokens of a sample", min=1)]
    model: Annotated[str, Meaning("name, in models.json or of `schedsearch plan model=all`; or a label")] = ""
    num_micro_batches: Annotated[int | None, Meaning("micro-batches of a data-parallel group", min=1)] = None
    global_batch: Annotated[int | None, Meaning("samples of an iteration, in its place", min=1)] = None
    layers: Annotated[int | None, Meaning("layers; empty: the model's own, as for all sizes", min=1)] = None
    hidden: Annotated[int | None, Meaning("width of the layers", min=1)] = None
    heads: Annotated[int | None, Meaning("attention heads", min=1)] = None
    kv_heads: Annotated[int | None, Meaning("heads of keys and values", min=1)] = None
    head_width: Annotated[int | None, Meaning("width of a head; empty: hidden / heads", min=1)] = None
    feed_forward: Annotated[int | None, Meaning("width of feed-forward parts; empty: 4 hidden", min=1)] = None
    vocab: Annotated[int | None, Meaning("tokens of the vocabulary", min=1)] = None
    vocab_multiple: Annotated[int, Meaning("divides each GPU's rows of the vocabulary, padded", min=1)] = 128
    experts: Annotated[int | None, Meaning("experts of a layer", min=1)] = None
    top_k: Annotated[int | None, Meaning("experts that a token takes", min=1)] = None
    expert_feed_forward: Annotated[int | None, Meaning("width of an expert", min=1)] = None
    shared_expert: Annotated[int | None, Meaning("width of the shared experts together", min=0)] = None
    dense_layers: Annotated[int | None, Meaning("first layers, without experts", min=0)] = None
    predict_layers: Annotated[int | None, Meaning("modules of multi-token prediction", min=0)] = None
    kv_rank: Annotated[int | None, Meaning("rank of keys and values of latent attention", min=1)] = None
    query_rank: Annotated[int | None, Meaning("rank of its queries", min=1)] = None
    rope_width: Annotated[int | None, Meaning("width of its heads' part with positions", min=1)] = None
    value_width: Annotated[int | None, Meaning("width of its heads' values", min=1)] = None
    query_key_norms: Annotated[bool | None, Meaning("queries and keys are normed")] = None
    gated: Annotated[bool | None, Meaning("feed-forward parts have a gate (SwiGLU)")] = None
    biases: Annotated[bool | None, Meaning("matrices have biases")] = None
    tied: Annotated[bool | None, Meaning("the output layer's table is the embedding's")] = None
    learned_positions: Annotated[bool | None, Meaning("positions are learned")] = None
    dropout: Annotated[bool | None, Meaning("activations are dropped out")] = None
    attention: Annotated[AttentionKind | None, Meaning("kernels of the attention's core")] = None
    causal: Annotated[bool, Meaning("attention leaves out the scores of later tokens")] = True
    tp: Annotated[int, Meaning("GPUs that share each matrix", min=1)] = 1
    pp: Annotated[int, Meaning("stages", min=1)] = 1
    vp: Annotated[int, Meaning("chunks of a stage", min=1)] = 1
    cp: Annotated[int, Meaning("GPUs that share the tokens of a sample", min=1)] = 1
    ep: Annotated[int, Meaning("GPUs that share the experts", min=1)] = 1
    etp: Annotated[int | None, Meaning("GPUs that share each expert, 1 or tp; empty: tp", min=1)] = None
    dp: Annotated[int | None, Meaning("data-parallel groups; empty: all other GPUs", min=1)] = None
    micro_batch: Annotated[int, Meaning("samples of a micro-batch", min=1)] = 1
    sequence_parallel: Annotated[bool, Meaning("tensor-parallel GPUs share the tokens of norms")] = True
    context_sharing: Annotated[ContextSharing | None, Meaning("empty: all_to_all in a node, else ring")] = (
        None
    )
    zero: Annotated[int, Meaning("stage of ZeRO; FSDP is 3, or 2 without resharding", min=0, max=3)] = 1
    shard_gpus: Annotated[int | None, Meaning("GPUs that ZeRO shards over; empty: all", min=1)] = None
    reshard: Annotated[bool, Meaning("ZeRO-3 drops weights between forward and backward")] = True
    layout: Annotated[str, Meaning("layout of the stages in Megatron-LM's notation, such as Ett\\|ttL")] = ""
    first_stage_layers: Annotated[int | None, Meaning("layers of the first stage", min=1)] = None
    last_stage_layers: Annotated[int | None, Meaning("layers of the last stage", min=1)] = None
    chunk_layers: Annotated[int | None, Meaning("layers of a chunk, in place of vp", min=1)] = None
    schedule: Annotated[str, Meaning("1f1b, interleaved 1f1b, zb_v or others; empty: the first two")] = ""
    precision: Annotated[str, Meaning("half, bf16, fp8, fp8_blockwise, mxfp8, nvfp4 or single")] = "bf16"
    weights_16_bit: Annotated[bool, Meaning("16-bit weights stand beside those of 8 or 4 bits")] = False
    gradient_bytes: Annotated[float | None, Meaning("of a parameter", "bytes", above=0)] = None
    optimizer_bytes: Annotated[float | None, Meaning("optimizer states of it", "bytes", above=0)] = None
    frozen: Annotated[bool, Meaning("adapters are trained, and not the weights (LoRA)")] = False
    recompute: Annotated[
        Literal["none", "selective", "full", "fitting"],
        Meaning("modules that backwards compute again; empty: none; fitting: as few layers as fit"),
    ] = "none"
    recompute_layers: Annotated[int | None, Meaning("layers of a chunk that do so; empty: all", min=1)] = None
    recompute_modules: Annotated[str, Meaning("modules computed again with selective; empty: core_attn")] = ""
    offload: Annotated[str, Meaning("tensors held by the host; such a run is not predicted")] = ""
    overlap: Annotated[bool | None, Meaning("gradients and weights go beside the pipeline")] = None
    async_tp: Annotated[bool, Meaning("tensor-parallel exchanges run beside products")] = False
    sends_tokens_once: Annotated[bool, Meaning("tokens go once to each GPU and node (DeepEP)")] = False
    graphs: Annotated[Graphs, Meaning("kernels that run as CUDA graphs")] = "none"
    compile: Annotated[bool, Meaning("torch.compile joins small kernels")] = False
    loss: Annotated[str, Meaning("kernels, as megatron; empty: the usual", choices=("", *LOSSES))] = ""
    sums_in_products: Annotated[bool, Meaning("products add gradients of weights up, in 32 bits")] = True
    deterministic: Annotated[bool, Meaning("results are equal each time: larger workspaces")] = False
    framework: Annotated[str, Meaning("empty: the option's", choices=("", *FRAMEWORKS))] = ""
    power_w: Annotated[float | None, Meaning("power limit of a GPU", "W", above=0)] = None
    clock_mhz: Annotated[float | None, Meaning("clock of a GPU", "MHz", above=0)] = None
    gpu_memory_gib: Annotated[float | None, Meaning("memory, where not the usual", "GiB", above=0)] = None
    gpu_bandwidth_gb_s: Annotated[float | None, Meaning("its bandwidth, likewise", "GB/s", above=0)] = None
    gpus_per_node: Annotated[int | None, Meaning("GPUs of a node; empty: the usual number", min=1)] = None
    node_bandwidth_gb_s: Annotated[float | None, Meaning("from a node to others", "GB/s", above=0)] = None
    measured_ms: Annotated[float | None, Meaning("time of an iteration", "ms", above=0)] = None
    tokens_per_s_per_gpu: Annotated[float | None, Meaning("in place of it", "tokens/s", above=0)] = None
    measured_gib: Annotated[float | None, Meaning("most memory that a GPU allocated", "GiB", above=0)] = None
    measured_stage: Annotated[
        Literal["fullest", "first", "last"], Meaning("stage whose memory measured_gib is")
    ] = "fullest"
    measured_gib_by_stage: Annotated[str, Meaning("the same by stage; not read")] = ""
    peer_ms: Annotated[float | None, Meaning("what another tool predicts", "ms", above=0)] = None
    peer_gib: Annotated[float | None, Meaning("what another tool predicts", "GiB", above=0)] = None
    note: Annotated[str, Meaning("remark, which the predictions repeat")] = ""
    source: Annotated[str, Meaning("where the row is from; not read")] = ""
    refused: Annotated[str, Meaning("why the run is not to be predicted; empty: it is")] = ""

    @property
    def data_parallel(self) -> int:
        """Data-parallel groups."""
        return self.dp or max(self.gpus // (self.tp * self.pp * self.cp), 1)

    @property
    def precision_name(self) -> str:
        """Name of the precision in `placements.models.layers.PRECISIONS`."""
        return _PRECISIONS.get(self.precision.lower(), self.precision.lower())

    @property
    def schedule_name(self) -> str | None:
        """Key of `schedsearch.baselines.NEEDS`; None for the usual schedule."""
        name = re.sub("[ -]+", "_", self.schedule.lower())
        return None if name in ("", "1f1b", "interleaved_1f1b") else name

    @property
    def modules(self) -> tuple[RecomputedModule, ...]:
        """Modules that are computed again; bars, commas or spaces are between them."""
        return tuple(re.findall(r"\w+", self.recompute_modules))

    @property
    def degrees(self) -> Degrees:
        """How GPUs share the model."""
        in_node = self.tp * self.cp <= GPUS[self.gpu].gpus_per_node
        return Degrees(
            *(self.tp, self.pp, self.data_parallel, self.cp, self.ep, self.vp),
            whole_experts=self.etp == 1 and self.tp > 1 and self.ep > 1,
            context_sharing=self.context_sharing or ("all_to_all" if in_node else "ring"),
        )

    @property
    def completed(self) -> Run:
        """The run with its GPU's key, its batch, chunks and time, where other columns say these.

        Raises:
            RunTableError: Columns contradict each other.
            LayoutError: The layout is not in Megatron-LM's notation.
        """
        if self.recompute_modules and self.recompute != "selective":
            raise RunTableError("recompute_modules: are of recompute selective; give both, or none of them")
        return replace(self, **self._gpu_figures(), **self._batch_figures(), vp=self._num_chunks())

    def check_names(self) -> None:
        """Reject a name that is not known, but for the model's, which may be in a file.

        Raises:
            RunTableError: The message begins with the column.
        """
        names: list[tuple[str, str, Collection[str]]] = [
            ("gpu", self.gpu, GPUS),
            ("precision", self.precision_name, PRECISIONS),
            ("schedule", self.schedule_name or "gpipe", NEEDS),
            *(("recompute_modules", module, get_args(RecomputedModule)) for module in self.modules),
        ]
        for column, name, known in names:
            if name not in known:
                raise RunTableError(f"{column}: {name!r} is not known; {suggestion(name, known)}")

    def _gpu_figures(self) -> dict[str, Any]:
        """Return the key of the GPU, with the memory and the power limit that its name says."""
        name = re.sub(r"[ -]+", "_", self.gpu.lower())
        name = re.sub(r"^nvidia_|_(sxm|hbm)[0-9]?e?(?=_|$)", "", name)
        variant = _VARIANT.fullmatch(name)
        if name in GPUS or variant is None or variant[1] not in GPUS:
            return {"gpu": name if name in GPUS else self.gpu}
        memory_gib, power_w = (float(text) if text else None for text in variant.groups()[1:])
        memory_gib, power_w = self.gpu_memory_gib or memory_gib, self.power_w or power_w
        return {"gpu": variant[1], "gpu_memory_gib": memory_gib, "power_w": power_w}

    def _batch_figures(self) -> dict[str, Any]:
        """Return the numbers of micro-batches and samples, and the time of an iteration."""
        groups, number, time_ms = self.data_parallel, self.num_micro_batches, self.measured_ms
        if self.tp * self.pp * self.cp * groups != self.gpus:
            product = f"tp {self.tp} x pp {self.pp} x cp {self.cp} x dp {groups}"
            raise RunTableError(f"gpus: {self.gpus} are not {product}; correct one")
        if self.ep > 1 and self.etp not in (None, 1, self.tp):
            raise RunTableError(f"etp: {self.etp} is neither 1 nor tp {self.tp}; give one of them")
        if number is None and self.global_batch is None:
            raise RunTableError("num_micro_batches: is empty, as is global_batch; give one of them")
        size = self.micro_batch * groups
        batch = self.global_batch or size * (number or 1)
        if batch % size or number not in (None, batch // size):
            parts = f"{number or 'whole'} micro-batches of {self.micro_batch} samples for each of {groups}"
            raise RunTableError(f"global_batch: {batch} is not of {parts} groups; correct one")
        if time_ms is None and self.tokens_per_s_per_gpu is not None:
            time_ms = 1e3 * batch * self.sequence_length / (self.gpus * self.tokens_per_s_per_gpu)
        return {"num_micro_batches": batch // size, "global_batch": batch, "measured_ms": time_ms}

    def _num_chunks(self) -> int:
        """Return the chunks of a stage, by their layers or the layout; without a pipeline there is one."""
        if self.pp == 1:
            return 1
        if self.layout:
            number = read_notation(self.layout, self.pp).num_chunks
            if self.vp not in (1, number):
                raise RunTableError(f"vp: {self.vp} is not the {number} chunks of the layout; leave it out")
            return number
        if self.chunk_layers is None:
            return self.vp
        if self.layers is None or self.layers % (self.pp * self.chunk_layers):
            layers = f"the layers ({self.layers or 'give them'}) of {self.pp} stages"
            raise RunTableError(f"chunk_layers: {self.chunk_layers} do not divide {layers}; correct one")
        return self.layers // (self.pp * self.chunk_layers)

    def cluster(self) -> Cluster:
        """Return its GPUs, in nodes that hold equal numbers of them.

        Raises:
            GpusError: The bandwidth between its nodes is not known.
        """
        usual = self.gpus_per_node or GPUS[self.gpu].gpus_per_node
        per_node = usual if self.gpus % usual == 0 else math.gcd(self.gpus, 1 << usual.bit_length() - 1)
        name, between = f"{self.gpu}_{self.gpus}", self.node_bandwidth_gb_s
        cluster = read_cluster(name, gpus_per_node=per_node, node_bandwidth_gb_s=between)
        (nodes,) = cluster.nodes
        memory_gib = self.gpu_memory_gib or nodes.gpu.memory_gib
        bandwidth_gb_s = self.gpu_bandwidth_gb_s or nodes.gpu.memory_bandwidth_gb_s
        gpu = replace(nodes.gpu, memory_gib=memory_gib, memory_bandwidth_gb_s=bandwidth_gb_s)
        return replace(cluster, nodes=(replace(nodes, gpu=gpu),))

    def clock_factor(self, gpu: Gpu) -> float:
        """Return the factor on times of computing at the set clock or under the power limit."""
        share = 1.0 if self.power_w is None else gpu.clock_share(self.power_w)
        if self.clock_mhz is not None:
            share = min(share, self.clock_mhz / gpu.power.sustained_clock_mhz)
        return 1 + gpu.power.compute_share * (1 / share - 1)
