"""A proved pipeline as an object, in a training loop of the user's own.

It knows neither optimizers nor where batches come from. See `runtime.loops.batches` for what a batch is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from runtime.checkpoints.loading import Resumed
from runtime.checkpoints.training_state import check_plain
from runtime.codegen.script import check_script, read_script_of
from runtime.execution.device_context import connected, device_context
from runtime.execution.results import Position
from runtime.execution.run_options import RunOptions
from runtime.loops.evaluation import Evaluation
from runtime.loops.iterations import Iterations
from runtime.loops.joining import Given, Intake, join, own_process
from runtime.loops.loop_state import SHARED, LoopState
from runtime.models.user.given import Loss, LossWeight, Modules
from runtime.orders.offered import ProgramFolder, ProgramSource, ProgramSwitch
from runtime.program.calls import ScriptError
from runtime.training.zero import zero1
from runtime.transport.agreement import PipelineError, succeeded
from schedsearch.semantics.versions import WeightMode

_LOG = logging.getLogger(__name__)


class Pipeline:
    """This process's part of a pipeline whose schedule was proved when its job was generated.

    It works in any script that torchrun starts with one process for each device. Each process builds and
    trains its own blocks only. `step` accumulates gradients as ``loss.backward()`` does; optimizers,
    schedules of learning rates and logging are the script's::

        with runtime.Pipeline(modules, "job", loss=cross_entropy) as pipeline:
            optimizer = torch.optim.AdamW(pipeline.parameters(), lr=3e-4)
            for batch in dataloader:
                loss = pipeline.step(batch)
                optimizer.step()
                optimizer.zero_grad()

    Attributes:
        num_steps: Number of steps done. Dropout depends on it; `load` sets it.
        update: Completes the gradients of a step; it says whether fp16 overflowed.
        note: News of the next step's program, and why it runs, in a line; empty where it is the one before.

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
        loss_weight: Returns the weight of a micro-batch's loss from its targets, as its number of tokens; by
            default that of the file, else all count the same.
        timeout_s: How long a transfer may wait for its other end, if the process group is made here.
        finite: Whether a loss that is not finite ends all processes.
        exact: Whether sums over devices, of copies, shards and the norm, are made in the order of the
            devices, so that they have the bits of the model in one piece; otherwise the library adds up.
        unequal: Whether each micro-batch may have shapes of its own, as samples of another length. The
            processes then tell each other what they read before each step. The four options of modules need
            `modules`.
        programs: Source of other programs for a step: a folder (see `runtime.orders.offered`), or a function
            that device 0 calls with the number of the step; None to run the job's own alone.
        profile_online: Whether the first steps measure the blocks at each clock, for the server whose plans
            are followed; see `runtime.execution.online_profile`.

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
        unequal: bool = False,
        programs: str | Path | ProgramSource | None = None,
        profile_online: bool = False,
    ) -> None:
        options = {"timeout_s": timeout_s, "exact": exact, "profile_online": profile_online}
        process = own_process(replace(RunOptions.of_environment(), **options))  # type: ignore[arg-type]
        script = read_script_of(job, process.device, process.num_devices).of_stages
        check_script(script, process.device, process.num_devices)
        given = Given(modules, loss, loss_weight, precision, unequal)
        with ExitStack() as stack:
            transport = stack.enter_context(connected(script, process))
            body = None
            if modules is not None:
                body, script = join(given, script, process, transport)
            elif unused := [name for name, value in given._asdict().items() if value not in (None, False)]:
                raise ScriptError(f"{unused[0]}: is for modules, and there are none; leave it out")
            elif script.model.weight_versions != WeightMode.FLUSH:
                raise ScriptError(
                    f"{job}: updates weights without a flush ({script.model.weight_versions}), but in a loop "
                    "of your own the optimizer steps between iterations; generate it with "
                    f"runtime.weight_versions={WeightMode.FLUSH}"
                )
            nowhere = Position(None, process.device)
            context = stack.enter_context(device_context(script, process, transport, nowhere, body=body))
            if body is not None:
                context.model.hold(body.tensors())
            self._context, self._body, self._finite = context, body, finite
            self._iterations, self._intake = Iterations(context), Intake(context, body)
            self.update = self._iterations.update
            self._state = LoopState(context, body)
            self._evaluations: dict[int, Evaluation] = {}
            self.num_steps = 0
            source = ProgramFolder(programs) if isinstance(programs, (str, Path)) else programs
            self._switch = ProgramSwitch(context, source)
            self.note = self._iterations.follow_program(self._switch, 0)
            stack.push(self._end_checkpoints)
            self._stack = stack.pop_all()

    @property
    def is_first(self) -> bool:
        """Whether this process reads inputs."""
        return self._intake.data.is_first

    @property
    def is_last(self) -> bool:
        """Whether this process computes a loss, for which it reads targets."""
        return self._intake.data.is_last

    @property
    def num_micro_batches(self) -> int:
        """Number of micro-batches of a batch: the schedule's, for each separate graph."""
        return self._context.script.num_micro_batches * self._intake.data.num_graphs

    def step(self, batch: Any = None) -> float:
        """Compute all micro-batches forward and backward in the proved order, and add up the gradients.

        Gradients of the mean over the micro-batches are added to ``.grad``. The processes meet once beside
        the schedule, in a sum of a few numbers over gloo at its end: the losses. In the first step, and with
        `unequal`, they also meet before the schedule.

        Args:
            batch: See `runtime.loops.batches`; None where this process reads nothing.

        Returns:
            The mean loss of the micro-batches, the same on every process.

        Raises:
            BatchError: The batch of this process is wrong.
            PipelineError: A loss is not finite, or in the first step the batch of some process is wrong.
            TransferError: A tensor did not arrive or could not be sent, or a process did not come, as its
                batch was wrong or its module failed.
        """
        number = self._context.script.num_micro_batches
        if not self._intake.has_shapes:
            self._intake.take_together(batch, number)
        else:
            self._intake.take(batch, number)
        self._iterations.follow_plan()
        self._iterations.run_to_add(self.num_steps)
        self.num_steps += 1
        step = f"step {self.num_steps - 1}" if self._finite else ""
        loss = self._iterations.mean_loss(self._context.blocks, number, step)
        self.note = self._iterations.follow_program(self._switch, self.num_steps)
        return loss

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
        number = self._intake.take_together(batch)
        if number not in self._evaluations:
            self._evaluations[number] = Evaluation(self._context, number)
        evaluation = self._evaluations[number]
        with nullcontext() if self._body is None else self._body.evaluating():
            evaluation.run(self.num_steps)
        return self._iterations.mean_loss(evaluation.blocks, number)

    def clip_grad_norm_(self, max_norm: float) -> float:
        """Scale all gradients so that the norm over all of them is at most this; return the norm before.

        The norm is over the parameters of all processes, each once; see `runtime.training.clipping`.
        """
        return self.update.clip_grad_norm_(max_norm)

    def zero1(self, optimizer: type[torch.optim.Optimizer], **options: Any) -> torch.optim.Optimizer:
        """Return an optimizer of which each data-parallel copy holds a part of the states (ZeRO, stage 1).

        Args:
            optimizer: A class of `torch.optim` that moves parameters one by one, as AdamW.
            options: Options of the class.
        """
        return zero1(optimizer, self.parameters(), self.update.owners, **options)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters of the own blocks, each once, by their names in the model.

        The names are of the model that `runtime.models.cut` cut; of modules that were given by block they
        begin with the block. The tensors are the modules' own.
        """
        for shard, weight in self._context.model.parameters.items():
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
        return self._state.tensors()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over the own blocks' part of a state, as of the whole model.

        Every process must call it; where the state of one lacks something, nothing is taken over on any.

        Raises:
            PipelineError: The state of some process lacks something, or something has another shape.
        """
        self._state.take(state)

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
        random generators, with fp16 the loss scale. All may be changed again when this returns; the next
        checkpoint, and `close`, wait for it.

        Args:
            folder: Gets a folder for each checkpoint; the same on all processes.
            optimizer: Optimizer of the own parameters, of any class of `torch.optim`; or `zero1`'s.
            extra: Plain data and tensors to get back from `load`, as `state_dict()` of a learning-rate
                schedule. Each process has its own.
            num_kept: How many whole checkpoints stay, the newest; 0 for all.
            is_async: Whether the training goes on while it is written.

        Raises:
            PipelineError: Some process's `extra` is no plain data, or has a name that is taken.
            CheckpointError: This checkpoint or the one before could not be written.
        """
        context = self._context
        succeeded(context.transport, context.process.device, lambda: _check_extra(extra or {}))
        self._state.save(Path(folder), self.num_steps, optimizer, extra, num_kept=num_kept, is_async=is_async)

    def load(self, folder: str | Path, optimizer: torch.optim.Optimizer | None = None) -> Resumed | None:
        """Go on from the newest whole checkpoint of a folder; every process must call it.

        It may have been saved by other processes, with another schedule or placement of the same model, or by
        a run of the job's own model. Options that differ are logged in a line; a new learning rate stays, so
        make the optimizer and its schedule before.

        Args:
            folder: The folder that was given to `save`.
            optimizer: Is given the state of each parameter, and the learning rate and momentum that a
                schedule had come to.

        Returns:
            Iterations, and the `extra` that `save` was given; None if there was never a checkpoint.

        Raises:
            ScriptError: No checkpoint there is whole, or it is of another model.
        """
        if not self._state.has_any(Path(folder)):
            return None
        resumed = self._state.load(Path(folder), optimizer)
        if self._context.process.device == 0:
            for note in resumed.notes:
                _LOG.warning("%s", note)
        self.num_steps = resumed.iterations
        self.note = self._iterations.follow_program(self._switch, self.num_steps)
        return resumed

    def _end_checkpoints(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until the last checkpoint is written; not after an error, where others may hang."""
        if kind is None:
            self._state.wait()

    def train(self, mode: bool = True) -> None:
        """Put the own blocks' modules into training mode, or into eval mode."""
        if self._body is not None:
            self._body.train(mode)

    def eval(self) -> None:
        """Put the own blocks' modules into eval mode; `eval_step` does so for itself."""
        self.train(False)

    def close(self) -> None:
        """Wait for all processes and checkpoints, release the clock, end the process group if made here."""
        self._stack.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; after an error without waiting for processes that may hang."""
        self._stack.__exit__(kind, error, trace)


def _check_extra(extra: Mapping[str, Any]) -> None:
    """Ensure that a loop's additions to a checkpoint can be read again."""
    if SHARED in extra:
        raise PipelineError(f"extra: {SHARED!r} is kept beside it; give the optimizer as an argument")
    check_plain(extra)
