"""A proved pipeline as an object: in a training loop of one's own, and in the loop of generated scripts.

It knows neither optimizers nor where batches come from. See `runtime.execution.batches` for what a batch is.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader

from placements import Kind
from runtime.checkpoints.loading import Resumed
from runtime.checkpoints.training_state import TrainingState, check_plain
from runtime.codegen.script import Script, check_script, check_specs, read_script_of
from runtime.execution.batches import BatchData, BatchError, PrefetchedLoader
from runtime.execution.device import Device
from runtime.execution.device_context import DeviceContext, connected, device_context
from runtime.execution.evaluation import Evaluation
from runtime.execution.results import Position
from runtime.execution.run_checkpoints import LoopCheckpoints
from runtime.execution.run_options import RunOptions
from runtime.models import GIVEN_MODEL, USER_MODEL, Blocks, ModelOptions, ParameterShard
from runtime.models.user.given import (
    GivenModules,
    GivenSource,
    Loss,
    LossWeight,
    Modules,
    is_list,
    own_modules,
    type_of,
)
from runtime.models.user.packing import Forms
from runtime.models.user.user_file import UserFile
from runtime.plans.plan_client import DeployedPlan
from runtime.program.calls import ScriptError
from runtime.program.tensor_flow import computes_loss
from runtime.training.update import Update
from runtime.training.zero import Zero1
from runtime.transport.agreement import PipelineError, agreed, not_finite, succeeded, tell_all
from runtime.transport.protocol import Transport
from schedsearch.semantics.versions import WeightMode

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

_SHARED = "optimizer"
"""What a checkpoint of a run, or of a loop, adds by itself: the loss scale, with fp16."""

BlockLoss = tuple[str, int, float]
"""(block, micro-batch, loss)."""


class Pipeline:
    """This process's part of a pipeline whose schedule was proved when its job was generated.

    It works in any script that torchrun starts with one process for each device. Each process builds and
    trains its own blocks only. `step` accumulates gradients as ``loss.backward()`` does; optimizers,
    schedules of learning rates and logging are the script's::

        with runtime.Pipeline(modules, "job", loss=cross_entropy) as pipeline:
            optimizer = torch.optim.AdamW(pipeline.parameters(), lr=3e-4)
            for batch in pipeline.loader(dataloader):
                loss = pipeline.step(batch)
                optimizer.step()
                optimizer.zero_grad()

    Attributes:
        num_steps: How many there were. Dropout depends on it; `load` sets it.

    Args:
        modules: A module for each forward block: a mapping of block to module, which may lack those of other
            processes; a function that makes that of a block, called for own blocks only; the list that
            `runtime.models.cut` returns; or the path of a Python file (see `runtime.models.user.user_file`).
            None for the model of the job, which reads its own text.
        job: The folder of the generated scripts.
        loss: Returns the scalar loss of the last block's outputs and the targets; by default that of the
            file, else the last block's module is given the targets and returns the loss.
        precision: ``bf16`` or ``fp16`` for blocks that compute under autocast, with parameters and gradients
            in the modules' own type; see `runtime.training`.
        loss_weight: Returns what a micro-batch's loss counts from its targets, as its number of tokens; by
            default that of the file, else all count the same.
        timeout_s: How long a transfer may wait for its other end, if the process group is made here.
        finite: Whether a loss that is not finite ends all processes.
        exact: Whether sums over devices, of copies, shards and the norm, are made in the order of the
            devices, so that they have the bits of the model in one piece; otherwise the library adds up.
        compile: Backend of `torch.compile` for the own blocks' modules: ``inductor``, ``aot_eager`` or
            ``eager``; None for the job's own. The four options of modules need `modules`.

    Raises:
        ScriptError: The job cannot be read, or is not for as many processes.
        PipelineError: The modules of some process do not fit the placement.
    """

    def __init__(
        self,
        modules: Modules | str | Path | None,
        job: str | Path,
        *,
        loss: Loss | None = None,
        precision: str | None = None,
        loss_weight: LossWeight | None = None,
        timeout_s: float = 300.0,
        finite: bool = True,
        exact: bool = False,
        compile: str | None = None,
    ) -> None:
        """Join the other processes and build the own blocks."""
        options = replace(_options(timeout_s), exact=exact)
        script = read_script_of(job, options.device)
        check_script(script, options.device, options.num_devices)
        of_modules = {"loss": loss, "precision": precision, "loss_weight": loss_weight, "compile": compile}
        with ExitStack() as stack:
            transport = stack.enter_context(connected(script, options))
            body = None
            if modules is not None:
                given = Given(modules, loss, loss_weight, precision, compile or script.model.compile)
                body, model = _joined(given, script, options, transport)
                script = replace(script, model_data=model.to_dict())
                body.read_from(_batch_data(script, options, transport, body))
            elif unused := [name for name, value in of_modules.items() if value is not None]:
                raise ScriptError(f"{unused[0]}: is for modules, and there are none; leave it out")
            elif script.model.weight_versions != WeightMode.FLUSH:
                raise ScriptError(
                    f"{job}: updates weights without a flush ({script.model.weight_versions}), but in a loop "
                    "of your own the optimizer steps between iterations; generate it with "
                    f"runtime.weight_versions={WeightMode.FLUSH}"
                )
            position = Position(None, options.device)
            context = stack.enter_context(device_context(script, options, transport, position, body=body))
            self._begin(context, body, finite)
            context.blocks.keeps_pace = self._keeps_pace
            stack.push(self._end_checkpoints)
            self._stack = stack.pop_all()

    @classmethod
    def of(cls, context: DeviceContext) -> Pipeline:
        """Return the pipeline of a device of a run, whose context somebody else closes."""
        pipeline = cls.__new__(cls)
        pipeline._begin(context, None, False)
        pipeline._stack = ExitStack()
        return pipeline

    def _begin(self, context: DeviceContext, body: GivenModules | None, finite: bool) -> None:
        self._context, self._body, self._finite = context, body, finite
        self._script, self._transport, self._model = context.script, context.transport, context.model
        if body is not None:
            self._model.hold(body.tensors())
        self.update = Update(
            self._model,
            context.blocks,
            self._script.placement,
            self._transport,
            exact=context.options.is_exact,
        )
        self._evaluations: dict[int, Evaluation] = {}
        self.num_steps = 0
        self._keeps_pace = all(
            len(block.devices) == block.data_parallel for block in self._script.placement.blocks
        )
        self._checkpoints = LoopCheckpoints(self._script, self._transport, context.options.device)
        self._data = _batch_data(self._script, context.options, self._transport)
        if body is not None:
            self._data = body.data(self._script.num_micro_batches, self._transport.device)

    @property
    def is_first(self) -> bool:
        """Whether this process reads inputs."""
        return self._data.is_first

    @property
    def is_last(self) -> bool:
        """Whether this process computes a loss, for which it reads targets."""
        return self._data.is_last

    @property
    def num_micro_batches(self) -> int:
        """Into how many micro-batches a batch is cut: those of the schedule, for each separate graph."""
        return self._script.num_micro_batches * self._data.num_graphs

    def step(self, batch: Any = None) -> float:
        """Compute all micro-batches forward and backward in the proved order, and add up the gradients.

        Gradients of the mean over the micro-batches are added to ``.grad``. The processes meet once beside
        the schedule, in a sum of a few numbers over gloo at its end: losses, and whether something failed. A
        process with a wrong batch or a module that fails goes through the schedule all the same, with zeros,
        so that no other waits for it. In the first step, and where a block of the job's own model is cut over
        several devices, they also meet before the schedule.

        After an error gradients are of no use, and the next step begins anew.

        Args:
            batch: See `runtime.execution.batches`; None where this process reads nothing.

        Returns:
            The mean loss of the micro-batches, the same on every process.

        Raises:
            PipelineError: The batch of some process is wrong, a module fails, or a loss is not finite.
            TransferError: A tensor did not arrive or could not be sent, or a process did not come.
        """
        number, blocks = self._script.num_micro_batches, self._context.blocks
        if self._keeps_pace and (self._body is None or self._body.has_shapes):
            blocks.attempt(lambda: self._taken(batch, number))
        else:
            self._succeeded(lambda: self._taken(batch, number))
            self._ensure_shapes()
        self.follow_plan()
        before = self._set_aside()
        self.run(self.num_steps)
        self.update.complete()
        for weight, gradient in before:
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
        self.num_steps += 1
        return self._mean_loss(blocks, number, finite=self._finite)

    def eval_step(self, batch: Any = None) -> float:
        """Compute a batch forward only, in eval mode; return its mean loss, the same on every process.

        Gradients and random numbers stay as they are. The program is derived from the placement, and proved,
        for each number of micro-batches once.

        Args:
            batch: As of `step`, of as many samples as make whole micro-batches.

        Raises:
            PipelineError: The batch of some process is wrong, or a module fails.
            TransferError: A tensor did not arrive or could not be sent, or a process did not come.
        """
        number = self._number_taken(batch)
        self._ensure_shapes()
        if number not in self._evaluations:
            self._evaluations[number] = Evaluation(
                self._script, self._context.options, self._transport, self._model, number
            )
            self._evaluations[number].blocks.keeps_pace = self._keeps_pace
        evaluation = self._evaluations[number]
        with nullcontext() if self._body is None else self._body.evaluating():
            evaluation.run(self.num_steps)
        return self._mean_loss(evaluation.blocks, number)

    def clip_grad_norm_(self, max_norm: float) -> float:
        """Scale all gradients so that the norm over all of them is at most this; return the norm before.

        The norm is over the parameters of all processes, each once; see `runtime.training.clipping`.
        """
        return self.update.clip_grad_norm_(max_norm)

    def zero1(self, optimizer: type[torch.optim.Optimizer], **options: Any) -> Zero1:
        """Return an optimizer of which each data-parallel copy holds a part of the states (ZeRO, stage 1).

        Args:
            optimizer: A class of `torch.optim` that moves parameters one by one, as AdamW.
            options: Of the class.
        """
        return Zero1(optimizer, self.parameters(), self.update.owners, **options)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters of the own blocks, each once, by their names in the model.

        The names are those of the model that `runtime.models.cut` cut; of modules that were given by block
        they begin with the block. The tensors are those of the modules.
        """
        for shard, weight in self._model.parameters.items():
            yield shard.name, weight

    def parameters(self) -> Iterator[Tensor]:
        """Yield the parameters of the own blocks, for any optimizer."""
        for _, weight in self.named_parameters():
            yield weight

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for weight in self.parameters():
            weight.grad = None

    def state_dict(self) -> dict[str, Tensor]:
        """Return parameters and buffers of the own blocks, by name; together all processes' are the model's.

        Of a parameter that is cut over several devices it is this device's shard.
        """
        if self._body is not None:
            return self._body.state()
        return {name: weight.detach() for name, weight in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over the own blocks' part of a state, which may be that of the whole model.

        Every process must call it; where the state of one lacks something, nothing is taken over on any.

        Raises:
            PipelineError: The state of some process lacks something, or something has another shape.
        """
        for own, value in self._succeeded(lambda: self._found_in(state)):
            with torch.no_grad():
                own.copy_(value)
        if self._body is not None:
            self._body.forget_buffers()

    def _found_in(self, state: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Return each own tensor with the part of a state that belongs there."""
        shards = {shard.name: shard for shard in self._model.parameters}
        found: list[tuple[Tensor, Tensor]] = []
        for name, own in self.state_dict().items():
            if name not in state:
                raise PipelineError(f"state: has no {name!r}; give the state of the whole model")
            value = state[name]
            if value.shape != own.shape and name in shards:
                value = shards[name].of(value)
            if value.shape != own.shape:
                raise PipelineError(
                    f"state: {name!r} is of shape {tuple(value.shape)} instead of {tuple(own.shape)}"
                )
            found.append((own, value))
        return found

    def save(
        self,
        folder: str | Path,
        optimizer: torch.optim.Optimizer | None = None,
        extra: Mapping[str, Any] | None = None,
        *,
        num_kept: int = 3,
        is_async: bool = True,
    ) -> None:
        """Begin a checkpoint of all that the loop needs to go on bit for bit; every process must call it.

        Parameters, buffers, the optimizer's state of each parameter, the number of steps, the states of the
        random generators, with fp16 the loss scale. What is saved may be changed again when this returns; the
        next checkpoint, and `close`, wait for it.

        Args:
            folder: Gets a folder for each checkpoint; the same on all processes.
            optimizer: Of the own parameters, of any class of `torch.optim`; or `zero1`'s.
            extra: Plain data and tensors to get back from `load`, as `state_dict()` of a learning-rate
                schedule and of the `loader`. Each process has its own.
            num_kept: How many whole checkpoints stay, the newest; 0 for all.
            is_async: Whether the training goes on while it is written.

        Raises:
            PipelineError: What some process adds is no plain data.
            CheckpointError: This checkpoint or the one before could not be written.
        """
        added = dict(extra or {})
        self._succeeded(lambda: _check_extra(added))
        added[_SHARED] = self._model.optimizer.shared_state()
        self._checkpoints.save(
            Path(folder),
            self._state(optimizer, added),
            self.num_steps,
            num_kept=num_kept,
            is_async=is_async,
        )

    def load(self, folder: str | Path, optimizer: torch.optim.Optimizer | None = None) -> Resumed | None:
        """Go on from the newest whole checkpoint of a folder; every process must call it.

        It may have been saved by other processes, with another schedule or placement of the same model, or by
        a run of the job's own model. What is otherwise than then is logged in a line, as another learning
        rate, which then stays; so make the optimizer and its schedule before.

        Args:
            folder: That was given to `save`.
            optimizer: Is given the state of each parameter, and the learning rate and momentum that a
                schedule had come to.

        Returns:
            What was found, with the `extra` that `save` was given; None if there was never a checkpoint.

        Raises:
            ScriptError: No checkpoint there is whole, or it is of another model.
        """
        found = self._checkpoints.load(Path(folder), self._state(optimizer, {}))
        if found is None:
            return None
        extra = dict(found.extra)
        self._model.optimizer.load_shared_state(extra.pop(_SHARED, {}))
        self.num_steps = found.iterations
        if self._body is not None:
            self._body.forget_buffers()
        if self._context.options.device == 0:
            for note in found.notes:
                _LOG.warning("%s", note)
        return replace(found, extra=extra)

    def _state(self, optimizer: torch.optim.Optimizer | None, extra: Mapping[str, Any]) -> TrainingState:
        """Return what a checkpoint keeps; buffers stand among the parameters."""
        held = {} if self._body is None else self._body.state_of_buffers()
        buffers = {ParameterShard(name, 0, 1, 0): value for name, value in held.items()}
        return TrainingState(self._model.parameters | buffers, optimizer, extra)

    def _end_checkpoints(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until the last checkpoint is written; not after an error, where others may hang."""
        if kind is None:
            self._checkpoints.wait()

    def train(self, mode: bool = True) -> None:
        """Put the own blocks' modules into training mode, or into eval mode."""
        if self._body is not None:
            self._body.train(mode)

    def eval(self) -> None:
        """Put the own blocks' modules into eval mode; `eval_step` does so for itself."""
        self.train(False)

    def loader(self, loader: DataLoader[Any] | None) -> PrefetchedLoader:
        """Return a DataLoader read ahead, where this process reads; see `PrefetchedLoader`.

        Args:
            loader: The same on all processes that read; it may be None on others.
        """
        return PrefetchedLoader(
            loader, self._data.reads, self._transport.collect, self._script.model.seed, self._transport.device
        )

    def close(self) -> None:
        """Wait for all processes and checkpoints, release the clock, end the process group if made here."""
        self._stack.close()

    def __enter__(self) -> Pipeline:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; after an error without waiting for processes that may hang."""
        self._stack.__exit__(kind, error, trace)

    def follow_plan(self) -> DeployedPlan | None:
        """Go over to a newer plan of clocks if there is one, and return it."""
        plan = self._context.plans.at_iteration_boundary()
        if plan is not None:
            self._context.clocks.follow(plan.clock_mhz)
        return plan

    def run(self, index: int) -> float:
        """Run an iteration, and return how long it took this device; every device must call it."""
        return run_iteration(self._script, self._context.device, index)

    def timed(self, index: int) -> float:
        """Run an iteration from a common start; see `timed_iteration`."""
        return timed_iteration(self._script, self._context.device, index, self._transport)

    def losses(self) -> list[BlockLoss]:
        """Return the losses that this device computed in the last iteration."""
        return [(*instance, float(loss)) for instance, loss in self._context.blocks.losses.items()]

    def _set_aside(self) -> list[tuple[Tensor, Tensor]]:
        """Take gradients of earlier steps away that are complete: summed over copies, or scaled down."""
        names = {name for names in self._model.replicas.values() for name in names}
        if self._model.optimizer.loss_scale is not None:
            names = {shard.name for shard in self._model.parameters}
        found = [
            (weight, weight.grad)
            for shard, weight in self._model.parameters.items()
            if shard.name in names and weight.grad is not None
        ]
        for weight, _ in found:
            weight.grad = None
        return found

    def _taken(self, batch: Any, num_micro_batches: int | None) -> int | None:
        """Let the blocks read a batch; return its number of micro-batches, None where nothing is read."""
        if self._body is None:
            if batch is not None:
                raise BatchError("batch: the job's own model reads its own text; leave the batch out")
            return self._script.num_micro_batches
        self._data.check(batch)
        if not self._data.reads:
            return None
        if batch is None:
            raise BatchError("batch: is None, but this process reads inputs or targets; give it one")
        return self._data.take(batch, num_micro_batches)

    def _number_taken(self, batch: Any) -> int:
        """Let the blocks of all processes read a batch; return its number of micro-batches."""
        is_first = self._body is not None and not self._body.has_shapes
        expected = self._script.num_micro_batches if is_first else None
        told = enumerate(self._agreed(lambda: self._taken(batch, expected)))
        numbers = {number: device for device, number in told if number is not None}
        if len(numbers) != 1:
            counts = " and ".join(f"{number} on device {device}" for number, device in numbers.items())
            raise PipelineError(f"batch: has {counts} micro-batches; give all that read the same batch")
        return next(iter(numbers))

    def _ensure_shapes(self) -> None:
        """Find what all blocks hand over, if the body does not know it yet."""
        if self._body is not None and not self._body.has_shapes:
            self._find_shapes(self._body)

    def _find_shapes(self, body: GivenModules) -> None:
        """Find what all blocks hand over: each process runs its own once, forward, and tells the others."""
        shapes: dict[str, Forms] = {}
        read = partial(self._data.read, iteration=0, micro_batch=0)
        num_blocks = sum(block.kind is Kind.F for block in self._script.placement.blocks)
        while len(shapes) < num_blocks:
            find = partial(body.shapes_of, shapes, read, self._transport.device)
            found = self._agreed(find)
            shapes = shapes | {block: shape for each in found for block, shape in each.items()}
        body.set_shapes(shapes)
        index = self._context.options.device
        self._succeeded(lambda: check_specs(self._script, index, self._context.device.spec_of_model))

    def _mean_loss(self, blocks: Blocks, num_micro_batches: int, *, finite: bool = False) -> float:
        """Return the mean of what all devices computed, each loss taken from the block's first device.

        Raises:
            PipelineError: A block failed on some device, or a loss is not finite and has to be.
        """
        placement, index = self._script.placement, self._context.options.device
        sinks = [block.name for block in placement.blocks if computes_loss(placement, block.name)]
        own = {
            instance: float(loss)
            for instance, loss in blocks.losses.items()
            if placement.by_name[instance[0]].devices[0] == index
        }
        instances = [(block, n) for n in range(num_micro_batches) for block in sinks]
        failure = blocks.take_failure()
        *losses, num_failed = self._transport.add_up(
            [*(own.get(instance, 0.0) for instance in instances), float(failure is not None)]
        )
        if num_failed:
            tell_all(self._transport, failure)
        for (block, n), loss in zip(instances, losses, strict=True):
            if finite and not math.isfinite(loss):
                device = placement.by_name[block].devices[0]
                raise not_finite(device, f"step {self.num_steps - 1}", block, n, loss)
        return sum(losses) / num_micro_batches

    def _succeeded(self, compute: Callable[[], T]) -> T:
        """Return what this process computes, once all have; if one fails, all do."""
        return succeeded(self._transport, self._context.options.device, compute)

    def _agreed(self, compute: Callable[[], T]) -> list[T]:
        """Return what every process computes, by device; if one fails, all do."""
        return agreed(self._transport, self._context.options.device, compute, lambda value: value)[1]


def _check_extra(extra: Mapping[str, Any]) -> None:
    """Ensure that what a loop adds to a checkpoint can be read again.

    Raises:
        PipelineError: One entry is no plain data, or has a name that is taken.
    """
    if _SHARED in extra:
        raise PipelineError(f"extra: {_SHARED!r} is kept beside it; give the optimizer as an argument")
    check_plain(extra)


def _options(timeout_s: float) -> RunOptions:
    """Return how this process takes part: in the script's process group, or as torchrun says."""
    if dist.is_initialized():
        return RunOptions(
            dist.get_rank(), dist.get_world_size(), backend=dist.get_backend(), timeout_s=timeout_s
        )
    try:
        return replace(RunOptions.from_environment(), timeout_s=timeout_s)
    except ScriptError:
        raise ScriptError(
            "this is one of several processes; start all with: torchrun --nproc-per-node NUM_DEVICES SCRIPT"
        ) from None


def _batch_data(
    script: Script, options: RunOptions, transport: Transport, body: GivenModules | None = None
) -> BatchData:
    model = script.model
    dtype: torch.dtype = getattr(torch, model.dtype)
    weighs, names = (False, {}) if body is None else (body.weight_of_loss is not None, body.read_names)
    return BatchData(script.placement, options.device, model.seed, dtype, transport.device, weighs, names)


class Given(NamedTuple):
    """What a script gives a pipeline; see `Pipeline`."""

    modules: Modules | str | Path
    loss: Loss | None
    loss_weight: LossWeight | None
    precision: str | None
    compile: str | None


def _joined(
    given: Given, script: Script, options: RunOptions, transport: Transport
) -> tuple[GivenModules, ModelOptions]:
    """Return the own blocks' modules, which know the parameters of all, and the model that they make."""
    placement, job = script.placement, script.model
    own = [block.name for block in placement.on(options.device) if block.kind is Kind.F]
    modules = given.modules

    def found_modules() -> GivenSource:
        if not isinstance(modules, (str, Path)):
            return GivenSource(own_modules(modules, placement, own), job.seed, given.loss, given.loss_weight)
        file = UserFile(ModelOptions(USER_MODEL, path=str(Path(modules).resolve()), seed=job.seed))
        made = own_modules(file.modules_with_values(own), placement, own)
        loss, loss_weight = given.loss or file.loss, given.loss_weight or file.loss_weight
        return GivenSource(made, job.seed, loss, loss_weight)

    source, types = agreed(transport, options.device, found_modules, lambda found: type_of(found.given))
    found = sorted({dtype for dtype in types if dtype is not None})
    if len(found) > 1:
        raise PipelineError(f"modules: are of several types ({', '.join(found)}); convert them to one")
    dtype = found[0] if found and script.specs is None else job.dtype
    model = ModelOptions(
        GIVEN_MODEL, seed=job.seed, dtype=dtype, precision=given.precision, compile=given.compile
    )
    body, described = agreed(
        transport,
        options.device,
        lambda: GivenModules(model, placement, source, own, keeps_names=is_list(modules)),
        lambda body: body.described,
    )
    body.know(described)
    return body, model


def timed_iteration(script: Script, device: Device, index: int, transport: Transport) -> float:
    """Run one iteration and return the milliseconds from the common start to this device's end."""
    if transport.device.type == "cuda":
        torch.cuda.synchronize()  # the gradient step of the iteration before may still run
    transport.barrier()
    return run_iteration(script, device, index)


def run_iteration(script: Script, device: Device, index: int) -> float:
    """Run one iteration and return the milliseconds from now to this device's end."""
    start_s = time.perf_counter()
    device.begin(index)
    script.iteration(device, script.num_micro_batches)
    device.finish()
    return (time.perf_counter() - start_s) * 1000
