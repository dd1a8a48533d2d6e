"""An order of ours in Megatron-LM's training: a ``forward_backward_func`` that runs programs.

It is written to what ``megatron.core.pipeline_parallel.get_forward_backward_func`` documents of the function
that it returns, with megatron-core 0.16. Megatron-LM makes the model, its chunks, the data and the optimizer
step as ever; only the order of forwards, backwards and messages is the programs'. Nothing of Megatron-LM is
imported, but for its process groups where the caller gives none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from placements import Kind
from placements.block import COMPUTE
from placements.forms.texts import read_json
from runtime.interpreter.interpreter import interpret
from runtime.program.deadlock import check
from runtime.program.instructions import Programs, Run
from runtime.program.lower import lower
from runtime.program.program_file import read_programs
from runtime.program.tensor_flow import KEEP, forward_graphs, forward_inputs, pair_backward
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import read_schedule

_NOT_RUN: Mapping[str, tuple[object, ...]] = {
    "variable_seq_lengths": (False, None),
    "num_moe_experts": (None,),
    "mtp_num_layers": (None, 0),
    "overlap_moe_expert_parallel_comm": (False, None),
    "use_ring_exchange_p2p": (False, None),
    "num_microbatches_with_partial_activation_checkpoints": (None,),
    "defer_embedding_wgrad_compute": (False, None),
    "fine_grained_activation_offloading": (False, None),
    "cuda_graph_impl": ("none", None),
    "param_sync_func": (None,),
}
"""Fields of Megatron-LM's config that change a step's meaning, and their values that are run."""


class MegatronOrderError(ValueError):
    """Megatron-LM cannot run the order, or the order the job; one line with the place and the remedy."""


class MegatronOrder:
    """A ``forward_backward_func`` that runs an order; returns the losses on the rank of the last stage.

    Stage i is chunk i // ranks of rank i % ranks, as Megatron-LM builds its model chunks.

    Args:
        order: A schedule, its programs, or the path of a ``schedule.json`` or ``programs.json``.

    Raises:
        MegatronOrderError: The order is not of one chain of whole forwards and backwards on such stages.
        UnsafeProgramsError: It can deadlock, or a block misses an input; see `runtime.program.deadlock`.
    """

    def __init__(self, order: Schedule | Programs | str | Path) -> None:
        """Prove the order, before any process waits."""
        self.programs = check(_programs(order))
        self.stages = _stages(self.programs)
        self.num_ranks = self.programs.placement.num_devices
        self.num_stages = 1 + max(self.stages.values())  # virtual ones, of all ranks

    def __call__(
        self,
        *,
        forward_step_func: Callable[..., Any],
        data_iterator: Any,
        model: nn.Module | Sequence[nn.Module],
        num_microbatches: int,
        seq_length: int,
        micro_batch_size: int,
        decoder_seq_length: int | None = None,
        forward_only: bool = False,
        collect_non_loss_data: bool = False,
        first_val_step: bool | None = None,
        adjust_tensor_shapes_fn: Callable[..., Any] | None = None,
        p2p_communicator: Any = None,
        pg_collection: Any = None,
        force_all_reduce: bool | None = False,
    ) -> list[Any]:
        """Run an iteration, with the arguments that Megatron-LM documents.

        Raises:
            MegatronOrderError: The job has other ranks, chunks or micro-batches than the order, or needs
                what is not run here.
        """
        chunks: list[nn.Module] = [model] if isinstance(model, nn.Module) else list(model)
        iterators = data_iterator if isinstance(data_iterator, list) else [data_iterator] * len(chunks)
        config = _attribute(chunks[0], "config")
        groups = pg_collection or _their_groups()
        self._check(config, chunks, num_microbatches, groups.pp, adjust_tensor_shapes_fn)
        length = (seq_length if decoder_seq_length is None else decoder_seq_length) // groups.cp.size()
        length //= groups.tp.size() if config.sequence_parallel else 1
        counts_first = first_val_step is None or not forward_only or first_val_step

        def forward(micro_batch: int, number: int) -> Any:
            chunk: Any = chunks[number]
            if micro_batch == 0 and counts_first and hasattr(chunk, "set_is_first_microbatch"):
                chunk.set_is_first_microbatch()
            return forward_step_func(iterators[number], chunk)

        shape = length, micro_batch_size, config.hidden_size
        step = _Step(
            self, config, groups, chunks, shape, forward, forward_only, collects=collect_non_loss_data
        )
        barrier = {"barrier": config.barrier_with_L1_time} if config.timers is not None else {}
        with _timed(config, "forward-backward", 1, **barrier):
            step.carry_out()
            if config.finalize_model_grads_func is not None and not forward_only:
                config.finalize_model_grads_func(
                    chunks,
                    step.num_tokens if config.calculate_per_token_loss else None,
                    pg_collection=pg_collection,
                    force_all_reduce=force_all_reduce,
                )
        return [step.losses[n] for n in sorted(step.losses)]

    def _check(
        self, config: Any, chunks: Sequence[nn.Module], number: int, group: dist.ProcessGroup, adjust: Any
    ) -> None:
        """Check that the order is for the job."""
        for name, actual, wanted, what in (
            ("pipeline_model_parallel_size", group.size(), self.num_ranks, "pipeline ranks"),
            ("model", len(chunks), self.num_stages // self.num_ranks, "model chunks on a rank"),
            ("num_microbatches", number, self.programs.num_micro_batches, "micro-batches"),
        ):
            if actual != wanted:
                raise MegatronOrderError(
                    f"{name}: the job has {actual} {what}, and the order {wanted}; change either"
                )
        for name, allowed in _NOT_RUN.items():
            value = getattr(config, name, None)
            if value not in allowed:
                raise MegatronOrderError(
                    f"{name}: {value!r} is not run with an order of ours; use {allowed[0]}, or "
                    "Megatron-LM's own order"
                )
        if adjust is not None:
            raise MegatronOrderError(
                "adjust_tensor_shapes_fn: is not called by an order of ours; leave it out"
            )
        if not isinstance(config.no_sync_func, list) and config.no_sync_func and len(chunks) > 1:
            raise MegatronOrderError("no_sync_func: is one function; give a list, one for each model chunk")


@dataclass
class _Step:
    """One iteration on one rank: a backend of the interpreter.

    Attributes:
        losses: Values that the loss function gives besides the loss, by micro-batch.
        num_tokens: Sum of the numbers of tokens that it gives.
    """

    order: MegatronOrder
    config: Any
    groups: Any
    chunks: list[nn.Module]
    shape: tuple[int, ...]
    forward_step: Callable[[int, int], Any]
    forward_only: bool
    collects: bool

    def __post_init__(self) -> None:
        has_gpu = dist.get_backend(self.groups.pp) == "nccl"
        self.device = torch.device("cuda", torch.cuda.current_device()) if has_gpu else None
        self.by_name = self.order.programs.placement.by_name
        self.losses: dict[int, Any] = {}
        self.num_tokens = torch.zeros([], dtype=torch.int, device=self.device)
        self.arriving: dict[tuple[str, int], tuple[Any, Tensor]] = {}
        self.leaving: list[tuple[Any, Tensor]] = []
        self.made: dict[tuple[str, int], Tensor] = {}
        self.held: dict[tuple[int, int], tuple[Tensor | None, Tensor]] = {}
        self.left = [self.order.programs.num_micro_batches] * len(self.chunks)
        self.no_sync = [ExitStack() for _ in self.chunks]  # until gradients of a chunk are summed over copies

    def carry_out(self) -> None:
        """Carry out the rank's program; messages are posted where it says so, and waited for where used."""
        no_sync = self.config.no_sync_func
        syncs = no_sync if isinstance(no_sync, list) else [no_sync] * len(self.chunks)
        for stack, make in zip(self.no_sync, syncs, strict=True):
            if make:
                stack.enter_context(make())
        program = self.order.programs.instructions[self.groups.pp.rank()]
        if self.forward_only:
            names = [step.block if isinstance(step, Run) else step.producer for step in program]
            kinds = [self.by_name[name].kind for name in names]
            program = tuple(step for step, kind in zip(program, kinds, strict=True) if kind is Kind.F)
        interpret(program, self)
        for work, _ in self.leaving:
            work.wait()
        if self.forward_only:
            for stack in self.no_sync:
                stack.close()

    def run(self, block: str, micro_batch: int, **how: Any) -> None:
        """Run a forward or a backward of a stage."""
        stage = self.order.stages[block]
        if self.by_name[block].kind is Kind.F:
            self._forward(block, stage, micro_batch)
            return
        chunk = stage // self.order.num_ranks
        self.left[chunk] -= 1
        self._backward(block, stage, micro_batch, chunk, is_last=not self.left[chunk])

    def send(self, producer: str, consumer: str, micro_batch: int, *, target: int, part: Any = None) -> None:
        """Send the output of a stage, or the gradient of its input."""
        tensor = self.made.pop((producer, micro_batch)).detach().contiguous()
        self.leaving = [pair for pair in self.leaving if not pair[0].is_completed()]
        self.leaving.append((dist.isend(tensor, self._rank(target), self.groups.pp), tensor))

    def receive(
        self, producer: str, consumer: str, micro_batch: int, *, source: int, part: Any = None
    ) -> None:
        """Post the receive of either."""
        if self.config.pipeline_dtype is None:
            raise MegatronOrderError("pipeline_dtype: is None; give the type of tensors between stages")
        is_forward = self.by_name[producer].kind is Kind.F
        dtype = self.config.pipeline_dtype
        buffer = torch.empty(self.shape, dtype=dtype, device=self.device, requires_grad=is_forward)
        work = dist.irecv(buffer.detach(), self._rank(source), self.groups.pp)
        self.arriving[consumer, micro_batch] = work, buffer

    def _rank(self, device: int) -> int:
        return dist.get_global_rank(self.groups.pp, device)

    def _arrived(self, consumer: str, micro_batch: int) -> Tensor:
        """Return the input of a block once it is here, from another rank or of the same."""
        if (consumer, micro_batch) in self.arriving:
            work, buffer = self.arriving.pop((consumer, micro_batch))
            work.wait()
            return buffer
        block = self.by_name[consumer]
        producer = next(name for name in block.after if (name, micro_batch) in self.made)
        tensor = self.made.pop((producer, micro_batch)).detach()
        return tensor.requires_grad_() if block.kind is Kind.F else tensor

    def _forward(self, name: str, stage: int, micro_batch: int) -> None:
        config, number = self.config, stage // self.order.num_ranks
        is_last = stage == self.order.num_stages - 1
        chunk: Any = self.chunks[number]
        taken = self._arrived(name, micro_batch) if stage else None
        with _timed(config, "forward-compute", 2):
            _attribute(chunk, "set_input_tensor")([taken])
            with torch.autocast("cuda", config.autocast_dtype) if config.enable_autocast else nullcontext():
                output, loss_function = self.forward_step(micro_batch, number)
            if is_last:
                output = self._loss(output, loss_function, micro_batch)
        if not self.forward_only:
            self.held[stage, micro_batch] = taken, output
        if not is_last:
            self.made[name, micro_batch] = output

    def _loss(self, output: Any, function: Callable[..., Any] | None, micro_batch: int) -> Any:
        """Return the loss as Megatron-LM scales it, and keep the report of it."""
        if function is None or self.collects:
            self.losses[micro_batch] = output if function is None else function(output, non_loss_data=True)
            return output
        loss, *tokens, self.losses[micro_batch] = function(output)
        number = self.order.programs.num_micro_batches
        if not tokens:
            return loss * self.groups.cp.size() / number
        self.num_tokens += tokens[0]
        if self.config.calculate_per_token_loss:
            return loss
        return loss / torch.clamp(tokens[0], min=1) / number

    def _backward(self, name: str, stage: int, micro_batch: int, chunk: int, is_last: bool) -> None:
        config = self.config
        taken, output = self.held.pop((stage, micro_batch))
        gradient = None if stage == self.order.num_stages - 1 else self._arrived(name, micro_batch)
        if is_last and config.grad_sync_func is None:
            self.no_sync[chunk].close()
        with _timed(config, "backward-compute", 2):
            if gradient is None and config.grad_scale_func is not None:
                output = config.grad_scale_func(output)
            torch.autograd.backward(output, gradient)
        if taken is not None:
            assert taken.grad is not None, "the model uses its input"
            self.made[name, micro_batch] = taken.grad
        if is_last and config.grad_sync_func is not None:
            self.no_sync[chunk].close()
            sync = config.grad_sync_func
            (sync[chunk] if isinstance(sync, list) else sync)(self.chunks[chunk].parameters())


def _programs(order: Schedule | Programs | str | Path) -> Programs:
    if isinstance(order, Programs):
        return order
    if isinstance(order, Schedule):
        return lower(order)
    data = read_json(order, "a schedule.json or programs.json", MegatronOrderError)
    is_programs = isinstance(data, dict) and "programs" in data
    return read_programs(order) if is_programs else lower(read_schedule(order))


def _stages(programs: Programs) -> dict[str, int]:
    """Return the stage of each forward and backward block."""
    placement = programs.placement
    chains, pairs = forward_graphs(placement), pair_backward(placement)
    before = [(), *((name,) for name in chains[0])]
    if len(chains) != 1 or any(
        forward_inputs(placement, name) != inputs for name, inputs in zip(chains[0], before, strict=False)
    ):
        raise MegatronOrderError(f"{placement.name}: is not one chain of stages; Megatron-LM runs no other")
    stages = {name: i for i, name in enumerate(chains[0])}
    for name, stage in stages.items():
        devices, device = placement.by_name[name].devices, stage % placement.num_devices
        if devices != (device,):
            raise MegatronOrderError(
                f"{placement.name}: {name} is on devices {list(devices)}, and Megatron-LM has stage {stage} "
                f"on rank {device}; use v_shape, loop_shape or a layout"
            )
    if len(stages) % placement.num_devices:
        raise MegatronOrderError(
            f"{placement.name}: has {len(stages)} stages on {placement.num_devices} ranks; give each as many"
        )
    for block in placement.blocks:
        if block.kind not in (Kind.F, Kind.B) or block.stream != COMPUTE:
            raise MegatronOrderError(
                f"{placement.name}: {block.name} is no whole forward or backward of a stage; leave split "
                "backwards, optimizer blocks and copies out"
            )
    if len(pairs) != len(stages):
        raise MegatronOrderError(f"{placement.name}: a stage has no backward; give each one")
    _check_runs(programs, stages)
    return stages | {name: stages[forward] for name, forward in pairs.items()}


def _check_runs(programs: Programs, stages: Mapping[str, int]) -> None:
    """Check that data come in their order, and that recomputation is left to Megatron-LM."""
    seen = dict.fromkeys(stages, 0)
    for run in (run for program in programs.instructions for run in program if isinstance(run, Run)):
        if run.mode != KEEP:
            raise MegatronOrderError(
                f"{run}: {run.mode} is not run here; use Megatron-LM's --recompute-granularity instead"
            )
        if run.block in stages:
            if run.micro_batch != seen[run.block]:
                raise MegatronOrderError(
                    f"{run}: stands where micro-batch {seen[run.block]} should, in whose order "
                    "Megatron-LM's data come; order the forwards of a stage so"
                )
            seen[run.block] += 1


def _attribute(model: nn.Module, name: str) -> Any:
    """Return an attribute of a model, or of its wrapped model."""
    inner: Any = model
    while not hasattr(inner, name):
        if not hasattr(inner, "module"):
            raise MegatronOrderError(f"model: has no {name}; give a MegatronModule, or one with {name}")
        inner = inner.module
    return getattr(inner, name)


def _their_groups() -> Any:
    """Return Megatron-LM's own process groups, in a process in which it is imported."""
    state: Any = sys.modules.get("megatron.core.parallel_state")
    if state is None:
        raise MegatronOrderError("pg_collection: is None without megatron-core; give groups pp, tp and cp")
    return SimpleNamespace(
        pp=state.get_pipeline_model_parallel_group(),
        tp=state.get_tensor_model_parallel_group(),
        cp=state.get_context_parallel_group(),
    )


@contextmanager
def _timed(config: Any, name: str, level: int, **how: Any) -> Iterator[None]:
    """Run Megatron-LM's timer meanwhile, if there is one."""
    if config.timers is None:
        yield
        return
    config.timers(name, log_level=level).start(**how)
    yield
    config.timers(name).stop()
