"""The options of every command as typed records, one for each group of the config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FilePlacementOptions:
    """The `placement` group of a file, or of the output of `experiments.profile`."""

    kind: str
    path: str | None
    data_parallel: int | dict[Any, Any] | None


@dataclass(frozen=True)
class StagesPlacementOptions:
    """The `placement` group of a file of stages; see `placements.stages.stage_chain.place`."""

    kind: str
    path: str | None
    shape: str
    num_chunks: int


@dataclass(frozen=True)
class GptPlacementOptions:
    """The `placement` group of a GPT; see `placements.models.gpt.gpt_placement`."""

    kind: str
    arrangement: str
    num_devices: int
    num_layers: int
    hidden_size: int
    num_heads: int
    vocab_size: int
    sequence_length: int
    micro_batch_size: int
    recompute: bool
    flash_attention: bool
    model_flops_utilisation: float
    output_layer_utilisation: float
    memory_efficiency: float
    link_efficiency: float
    reserve_gib: float
    tick_ms: float | None
    num_gpus: int | list[Any]
    data_parallel: int | dict[Any, Any] | None


@dataclass(frozen=True)
class PlanPlacementOptions:
    """The `placement` group of a planner's plan; see `placements.planners` and `placements.models.rates`."""

    kind: str
    path: str
    balance: str | None
    world_size: int | None
    num_layers: int | None
    hidden_size: int
    num_heads: int
    vocab_size: int
    sequence_length: int
    flash_attention: bool
    model_flops_utilisation: float
    output_layer_utilisation: float
    memory_efficiency: float
    link_efficiency: float
    overlap_slowdown: float
    reserve_gib: float
    tick_ms: float | None


@dataclass(frozen=True)
class SearchOptions:
    """The `search` group; see `SearchRequest` and the cache of `schedsearch.searches`."""

    method: str
    num_micro_batches: int
    memory: int | float | str | list[Any] | None
    micro_batches_per_repetend: int | None
    max_micro_batches_per_repetend: int
    objectives: list[Any]
    solver: str
    time_limit_s: float | None
    work_limit: float | None
    seed: int
    begin_with: str | None
    strategies: list[Any] | None
    without: list[Any]
    cache_dir: str | None
    export: str | None


@dataclass(frozen=True)
class ProfileOptions:
    """The `profile` group; see `placements.profiles.profile.Profile.from_csv`."""

    path: str | None
    gpu: str
    time_scale: float
    energy_scale: float
    blocking_power_w: float | dict[Any, Any] | None
    transfer_power_w: float
    clock_latency: str | None


@dataclass(frozen=True)
class ProfilingOptions:
    """The `profiling` group, of `experiments.profile` alone; see `runtime.profiling.profiler.Sweep`.

    Attributes:
        in_pipeline: Whether the blocks are measured where the schedule runs them, beside the others.
        trace: Path of a trace of a run, or of a folder of them, from which times are read instead.
        pattern: Of its labels; see `placements.measured.run_trace.read_traces`.
    """

    iterations: int
    min_ms: float
    rises: int
    blocking_clocks: int
    in_pipeline: bool
    trace: str | None
    pattern: str | None


@dataclass(frozen=True)
class EnergyOptions:
    """The `energy` group; see `schedsearch.energy`."""

    deadline_ms: float | None
    slowdown: float | None
    num_plans: int
    method: str
    curve: str
    unit_ms: float
    work_limit: float
    baselines: list[Any]
    orders: int
    orders_work_limit: float
    export: str | None
    periodic: int
    dwell_ms: float | str
    switch_ms: float | str
    back_to_back: bool
    power_cap_w: float | None
    device_power_cap_w: float | None
    confidence: float | None
    time_spread: float
    peak_w: float | None
    ramp_w_per_s: float | None
    band_w: float | None
    copies: int
    signal: str | None
    iterations: int | None
    job_deadline_s: float | None


@dataclass(frozen=True)
class RuntimeOptions:
    """The `runtime` group; see `runtime.models` and `runtime.launch`."""

    model: str
    num_layers: int | None
    layers_per_block: dict[Any, Any] | None
    hidden_size: int
    num_heads: int
    sequence_length: int
    micro_batch_size: int
    vocab_size: int
    dtype: str
    learning_rate: float | None
    seed: int
    text: str | None
    path: str | None
    iterations: int
    timeout_s: float
    simulated_gpus: bool
    optimizer: str
    weight_decay: float
    momentum: float
    weight_versions: str
    micro_batches_per_update: int
    recompute: str | list[Any]
    launcher: str
    device: str | None
    blocking: bool
    num_micro_batches: int | None
    receive_ahead: int | None
    receive_memory: int | None
    checkpoint_every: int
    keep_checkpoints: int
    resume: str | None
    trace: bool
    checkpoint_async: bool
    verify: str | None
    exact: bool | None
    load_weights: str | None
    save_weights: str | None
    clocks: bool
    communicators: str
    nodes: int
    precision: str | None
    clip_grad_norm: float | None
    optimizer_options: dict[Any, Any] | None
    parameter_groups: list[Any]
    lr_schedule: str | None
    lr_schedule_options: dict[Any, Any] | None
    zero: int
    compile: str | None


@dataclass(frozen=True)
class Options:
    """The config of `experiments.search`, which those of the three commands below have in common.

    Attributes:
        placement: The chosen placement group, read by `experiments.steps.placement_building.build_placement`.
        schedule: ``searched``, or a key of `schedsearch.baselines.HAND_MADE`.
        search: How to search.
        profile: What blocks cost.
    """

    placement: dict[str, Any]
    schedule: str
    search: SearchOptions
    profile: ProfileOptions


@dataclass(frozen=True)
class FrontierCommandOptions(Options):
    """The config of `experiments.frontier`.

    Attributes:
        energy: What the iteration may take.
    """

    energy: EnergyOptions


@dataclass(frozen=True)
class RunCommandOptions(FrontierCommandOptions):
    """The config of `experiments.run`.

    Attributes:
        runtime: What to run.
    """

    runtime: RuntimeOptions


@dataclass(frozen=True)
class ProfileCommandOptions(Options):
    """The config of `experiments.profile`.

    Attributes:
        profiling: How to measure.
        runtime: What to run meanwhile.
    """

    profiling: ProfilingOptions
    runtime: RuntimeOptions


@dataclass(frozen=True)
class CheckOptions:
    """The config of `experiments.check`.

    Attributes:
        schedule: Path of a ``schedule.json``.
        time_limit_s: Seconds for all that is shown once more.
    """

    schedule: str
    time_limit_s: float


@dataclass(frozen=True)
class SweepOptions:
    """The config of `experiments.bubble_by_in_flight`, and what both figures of the bubble have in common."""

    stages: str | None
    shapes: list[Any]
    num_devices: int
    max_in_flight: int | None
    tessel_time_limit_s: float | None
    work_limit: float
    solver: str
    seed: int
    num_processes: int | None
    cache_dir: str | None


@dataclass(frozen=True)
class MemorySweepOptions(SweepOptions):
    """The config of `experiments.bubble_by_memory`."""

    memories: list[Any] | None
    max_micro_batches_per_repetend: int


@dataclass(frozen=True)
class TransferSweepOptions:
    """The config of `experiments.time_by_transfer`."""

    placements: list[Any]
    num_devices: int
    num_micro_batches: int
    memory: int | None
    transfers: list[Any]
    receive_ahead: int
    gpu: str
    work_limit: float
    solver: str
    seed: int
    num_processes: int | None


@dataclass(frozen=True)
class ReproduceOptions:
    """The config of `experiments.reproduce`.

    The options of an item are a record of its own, `experiments.reproductions.item.Item.options`.

    Attributes:
        size: ``full`` or ``small``.
        record: Whether the results are kept in the project.
        num_processes: That make the cases of an item; None for one per processor.
    """

    size: str
    record: bool
    num_processes: int | None


@dataclass(frozen=True)
class ReproduceAllOptions:
    """What ``experiment=all`` has instead of the options of an item.

    Attributes:
        data: Path of a folder in which the inputs of items are at `Item.inputs`.
    """

    data: str | None


@dataclass(frozen=True)
class CompareOptions:
    """The config of `experiments.compare`."""

    stages: str
    schedules: list[Any]
    num_chunks: int
    search: SearchOptions


@dataclass(frozen=True)
class PlanCommandOptions:
    """The config of `experiments.plan`; see the rooms `hybrid` and `pipedream` of `placements.planners`."""

    planner: str
    model: str | None
    cluster: str
    batch: int | list[Any]
    profiles: str | None
    flat: bool
    num_layers: int | None
    sequence_length: int | None
    vocab_size: int | None
    layer_times: str | None
    gpus_per_node: int | None
    node_bandwidth_gb_s: float | None
    link_bandwidth_gb_s: float | None
    memory_gib: float | None
    reserve_gib: float
    paradigms: list[Any]
    uniform: bool
    recompute: list[Any]
    sequence_parallel: bool
    max_tensor_parallel: int | None
    expert_parallel: list[Any]
    num_stages: list[Any] | None
    gpus_per_stage: list[Any] | None
    num_micro_batches: list[Any] | None
    method: str
    stage_method: str
    pipeline: str
    idle_gpus: bool
    num_plans: int
    time_limit_s: float
    rank: str
    shapes: list[Any]
    num_chunks: int
    search_time_limit_s: float
    seed: int
    deadline_ms: float | None
    model_flops_utilisation: float
    output_layer_utilisation: float
    memory_efficiency: float
    overlap_slowdown: float
    overlap_gradients: bool


@dataclass(frozen=True)
class PredictOptions:
    """The config of `experiments.predict`.

    Attributes:
        data: Path of a folder of plans that were run, with the profiles of their layers and links.
        context_gib: What a process holds on its GPU besides tensors.
        compute_slowdown: How many times as long as in the profile layers take in a run.
    """

    data: str
    context_gib: float
    compute_slowdown: float


@dataclass(frozen=True)
class PricesOptions:
    """The config of `experiments.prices`; the rest is in `schedsearch.cluster.prices.conditions`.

    Attributes:
        data: Path of a folder of prices and speeds.
        days: Lengths of jobs on the baseline's GPU.
        models: Those of the table of speeds; empty for all.
        clouds: Whose prices are read.
        baseline_gpu: GPU type of the baseline.
        start_days: From and to which place, as in a slice, of the days with a price of the baseline.
        hindsight: Whether the bound is computed.
        durations: Lengths for the figure of moving against staying.
        sweep_restart_s: Restarts for the figure of what they cost.
        sweep_preemptions_per_day: Likewise.
    """

    data: str
    days: tuple[float, ...]
    models: tuple[str, ...]
    clouds: tuple[str, ...]
    baseline_gpu: str
    start_days: tuple[int, ...]
    carry_forward: bool
    rank_per_gpu: bool
    whole_instance: bool
    restart_s: float
    egress_dollars: float
    preemptions_per_day: float
    life_h: float | None
    checkpoint_every_s: float
    checkpoint_s: float
    dwell_days: int
    min_saving: float
    hindsight: bool
    durations: tuple[float, ...]
    sweep_restart_s: tuple[float, ...]
    sweep_preemptions_per_day: tuple[float, ...]


@dataclass(frozen=True)
class ClusterStudyOptions:
    """The config of `experiments.cluster_study`; see `schedsearch.cluster.planned_jobs`."""

    models: list[Any]
    batches: list[Any]
    counts: list[Any]
    gpu_types: list[Any]
    workers: list[Any]
    max_points: int
    num_plans: int
    search_time_limit_s: float
    cache_dir: str | None
    days: float
    jobs_per_day: float
    hours: list[Any]
    slo_share: float
    slo_factors: list[Any]
    seed: int
    runs: list[Any]
    power_cap_w: float
    idle_power_w: list[Any] | None
    dollars_per_hour: list[Any] | None
    dollars_per_kwh: float
    carbon_g_per_kwh: list[Any]
    signal: str | None
    min_share: float
    spare_s: float
    horizon_s: float
    round_s: float


@dataclass(frozen=True)
class GpuClusterOptions:
    """The `cluster` group; see `schedsearch.cluster.gpu_cluster`."""

    workers: str | dict[Any, Any]
    dollars_per_hour: str | dict[Any, Any] | None
    gpus_per_server: str | dict[Any, Any] | None
    idle_power_w: str | dict[Any, Any] | None
    power_cap_w: float | None


@dataclass(frozen=True)
class GeneratedTraceOptions:
    """The `trace` group of generated jobs; see `schedsearch.cluster.generator`."""

    kind: str
    seed: int
    lam_s: float
    num_jobs: int | None
    multi_gpu: bool
    priorities: bool
    slos: bool
    durations_h: list[Any] | None
    types: list[Any] | None
    reference: str


@dataclass(frozen=True)
class FileTraceOptions:
    """The `trace` group of a file; see `schedsearch.cluster.inputs`."""

    kind: str
    path: str


@dataclass(frozen=True)
class FailureOptions:
    """The `failures` group; see `schedsearch.cluster.simulator`."""

    mean_h: float | None
    repair_h: float
    loses_lease: bool


@dataclass(frozen=True)
class EstimatorOptions:
    """The `estimator` group; see `schedsearch.cluster.estimator`."""

    reference_share: float | None
    profiled: int
    learns: bool
    seed: int


@dataclass(frozen=True)
class PolicyOptions:
    """The `policy_options` group; see `schedsearch.cluster.policies`. What is null is the policy's own."""

    entities: dict[Any, Any] | None
    budget_dollars: float | None
    on_infeasible: str | None
    margin_s: float | None
    aim: str | None
    considered_share: float | None
    work_conserving: bool | None
    min_share: float | None
    spare_s: float | None
    is_strict: bool | None
    dollars_per_kwh: float | None
    signal: str | None
    horizon_s: float | None
    parts: int | None


@dataclass(frozen=True)
class ClusterCommandOptions:
    """All of `experiments.cluster`; which options the trace has says its kind."""

    cluster: GpuClusterOptions
    trace: dict[str, Any]
    policy_options: PolicyOptions
    estimator: EstimatorOptions
    failures: FailureOptions
    policy: str | list[Any]
    data: str | None
    allocate: str | None
    window: list[Any] | None
    loads: list[Any] | None
    seeds: list[Any] | None
    round_s: float
    recompute_s: float
    rounds: str | None
    checkpoint_s: float
    restart_s: float
    stop_at_h: float | None
    strict: bool
    seed: int | None
