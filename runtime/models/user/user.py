"""A model of the user's own: a Python file with a module for each forward block, the data and the loss.

The file defines, and nothing else is asked of it:

- ``build(block)``, which returns the `torch.nn.Module` of a forward block, or ``blocks()``, which returns a
  mapping of all, as `runtime.models.user.cut` makes them. In ``blocks()`` blocks may share parameters.
- ``data(iteration, micro_batch)``, which returns inputs and targets, each a tensor, several, or a mapping of
  block to these where blocks read different ones. Blocks without inputs of their own read the inputs.
- ``loss(*outputs, *targets)``, which returns the scalar loss of the outputs of a block that feeds no other;
  without it such a block's module is given the targets after its inputs, and returns the loss itself.

- ``loss_weight(*targets)``, which returns a number of at least 0: what a micro-batch's loss counts, as the
  number of tokens of which it is the mean. Without it all micro-batches, and shares of one, count the same.

A module is called with the outputs of the blocks that its block is after, in that order. Where the forward
blocks make several separate graphs (the X-shape), graph g of G reads the micro-batches ``n * G + g`` and the
loss is their mean; so both directions of Chimera can be given the same modules.

A block on several devices runs on each of them for a share of the samples (`Block.data_parallel` is their
number). Then the first dimension of all tensors that it takes and returns must be the samples, no sample may
depend on others, a loss must be the mean over the samples, and nothing may be drawn at random. The first
micro-batch is computed whole and in shares to see whether that is so.

Random numbers depend on the seed, the iteration, the block and the micro-batch, never on the order of blocks.
Every process builds all modules, and trains only its own. Without backward blocks they are put into eval
mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.models.core.layers import Parameter, Weights
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.user.calling import CalledModule
from runtime.models.user.packing import Shapes, have_samples, packed, packed_shape, unpacked
from runtime.models.user.user_file import Sample, UserData, UserFile, seeded, several
from runtime.models.user.user_shares import check_shares
from runtime.program.tensor_flow import computes_loss, forward_graphs, forward_inputs, pair_backward
from runtime.transport.shards import Shards, share_shape


class UserModules:
    """The modules of a user's file, as a `runtime.models.body.Body`.

    Args:
        options: Path, type and seed.
        placement: What runs where.

    Raises:
        ModelError: The file fails or lacks something, a module fails, changes a buffer or returns what
            cannot be handed over, or the placement has forward blocks on several devices which are not
            data-parallel groups, or whose module does more than compute sample by sample.
    """

    def __init__(self, options: ModelOptions, placement: Placement) -> None:
        """Run the file, build the modules and find the shapes between them."""
        self._options = options
        self._placement = placement
        self._dtype: torch.dtype = getattr(torch, options.dtype)
        self._names = [block.name for block in placement.topological_order if block.kind is Kind.F]
        self._check_devices()
        self._file = UserFile(options)
        self._loss = self._file.loss
        self._modules = self._file.modules(self._names)
        self._graphs = forward_graphs(placement)
        self._parameters: dict[str, dict[str, Parameter]] = {}
        self._initial: dict[str, Tensor] = {}
        self._name_parameters()
        self._trains = bool(pair_backward(placement))
        self._check_trained()
        self._called = {block: CalledModule(module) for block, module in self._modules.items()}
        self._buffers_on: dict[tuple[str, torch.device], dict[str, Tensor]] = {}
        self._shapes: dict[str, Shapes] = {}
        self._trace()

    def parameters(self, block: str) -> tuple[Parameter, ...]:
        """Return the parameters of the block's module."""
        return tuple(self._parameters[block].values())

    def initial(self, parameter: Parameter) -> Tensor:
        """Return the values that the file gave the parameter."""
        return self._initial[parameter.name]

    def output_shape(self, block: str) -> tuple[int, ...]:
        """Return the shape of what a block hands over: of its one output, or of all packed into one."""
        return packed_shape(self._shapes[block])

    @property
    def weight_of_loss(self) -> Callable[[Sample], float] | None:
        """What the file says that a loss counts."""
        return self._file.weight_of_loss

    def data(self, num_micro_batches: int, device: torch.device | str) -> UserData:
        """Return what the blocks read."""
        return UserData(self._file, self._placement, self._dtype, device)

    def forward(
        self, block: str, inputs: Sequence[Tensor], sample: Any, weights: Weights, shards: Shards
    ) -> Tensor:
        """Run the block's module; several outputs are packed into one tensor.

        Raises:
            ModelError: The module fails at its shapes, or changes a buffer.
        """
        parameters = {local: weights[each.name] for local, each in self._parameters[block].items()}
        device = next(value.device for value in (*inputs, *sample.inputs, *parameters.values()))
        if (block, device) not in self._buffers_on:
            self._buffers_on[block, device] = self._buffers(block, device)
        with seeded(sample.seed, device):
            outputs = self._call(block, inputs, sample, parameters, self._buffers_on[block, device])
        if computes_loss(self._placement, block):
            return outputs[0] / len(self._graphs)
        found = tuple(tuple(output.shape) for output in outputs)
        expected = tuple(share_shape(shape, sample.num_shares) for shape in self._shapes[block])
        if found != expected:
            raise ModelError(
                f"module: {block} returned shapes {found}, and {expected} for the first one; "
                "let data return the same shapes for every micro-batch"
            )
        return packed(outputs)

    def _call(
        self,
        block: str,
        inputs: Sequence[Tensor],
        sample: Sample,
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
    ) -> tuple[Tensor, ...]:
        """Return what the module, or the loss after it, returns."""
        producers = forward_inputs(self._placement, block)
        arguments = [
            argument
            for producer, value in zip(producers, inputs, strict=True)
            for argument in unpacked(value, self._shapes[producer])
        ]
        arguments += sample.inputs
        ends, loss = computes_loss(self._placement, block), self._loss
        if ends and loss is None:
            arguments += sample.targets
        versions = {name: value._version for name, value in buffers.items()}
        given = {**parameters, **buffers}
        outputs = several(self._called[block](given, tuple(arguments)))
        for name, value in buffers.items():
            if given[name] is not value or value._version != versions[name]:
                raise _changes_buffer(block, name)
        return several(loss(*outputs, *sample.targets)) if ends and loss is not None else outputs

    def _check_devices(self) -> None:
        for name in self._names:
            block = self._placement.by_name[name]
            if (count := len(block.devices)) > block.data_parallel:
                raise ModelError(
                    f"module: {name} stands on devices {', '.join(map(str, block.devices))}, but a user's "
                    "module runs on one; put it on one device, or a share of the samples on each "
                    f"(data_parallel: {count}), or use model=synthetic"
                )

    def _name_parameters(self) -> None:
        """Name every parameter by the first block that has it."""
        name_of: dict[int, str] = {}
        for block, module in self._modules.items():
            self._parameters[block] = {}
            for local, value in module.named_parameters():
                name = name_of.setdefault(id(value), f"{block}.{local}")
                self._initial[name] = value.detach()
                self._parameters[block][local] = Parameter(
                    name, tuple(value.shape), trains=value.requires_grad
                )

    def _check_trained(self) -> None:
        for name, module in self._modules.items():
            if not self._trains:
                module.eval()
            trained = any(parameter.trains for parameter in self._parameters[name].values())
            if self._trains and not trained and not forward_inputs(self._placement, name):
                raise ModelError(
                    f"module: {name} has nothing to train and no block before it, so its backward block has "
                    "nothing to do; join it with the block after it"
                )

    def _buffers(self, block: str, device: torch.device | str) -> dict[str, Tensor]:
        return {
            name: value.to(device, self._dtype if value.is_floating_point() else None, copy=True)
            for name, value in self._modules[block].named_buffers()
        }

    def _trace(self) -> None:
        """Find the shapes that the blocks return, by running one micro-batch forward on the CPU.

        The meta device would compute nothing, but not every operator runs there, and it imports for seconds.
        """
        data = self.data(1, "cpu")
        returned: dict[str, Tensor] = {}
        for block in self._names:
            inputs = [returned[name] for name in forward_inputs(self._placement, block)]
            parameters = {
                local: self._initial[each.name].to(self._dtype)
                for local, each in self._parameters[block].items()
            }
            returned[block] = packed(self._tried(block, inputs, data.read(block, 0, 0), parameters, "cpu"))

    def _tried(
        self,
        block: str,
        inputs: Sequence[Tensor],
        sample: Sample,
        parameters: Mapping[str, Tensor],
        device: torch.device | str,
    ) -> tuple[Tensor, ...]:
        """Return what a block returns, checked, and know its shapes from now on."""
        buffers = self._buffers(block, device)
        outputs = self._try(block, inputs, sample, parameters, buffers)
        for name, value in self._buffers(block, device).items():
            if not torch.equal(buffers[name], value):  # not all operators count the versions
                raise _changes_buffer(block, name)
        self._check_returned(block, outputs)
        self._shapes[block] = tuple(tuple(output.shape) for output in outputs)
        if (count := self._placement.by_name[block].data_parallel) > 1:
            self._check_samples(block, sample, count)
            run = partial(self._try, block, parameters=parameters, buffers=buffers)
            check_shares(block, count, run, inputs, sample, outputs, self.weight_of_loss)
        return outputs

    def _try(
        self,
        block: str,
        inputs: Sequence[Tensor],
        sample: Sample,
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
    ) -> tuple[Tensor, ...]:
        """Return what the module, or the loss after it, returns; the user's errors in one line."""
        try:
            with torch.no_grad(), seeded(sample.seed, torch.device("cpu")):
                return self._call(block, inputs, sample, parameters, buffers)
        except ModelError:
            raise
        except Exception as error:  # whatever a user's module raises
            shapes = [tuple(value.shape) for value in (*inputs, *sample.inputs, *sample.targets)]
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            remedy = "give it what the blocks before it return, in the order of its 'after'"
            if computes_loss(self._placement, block) and self._loss is None:
                remedy += ", and the targets, or define loss(output, targets)"
            if sample.num_shares > 1:
                remedy = "let it take any number of samples, or set data_parallel to 1"
            raise ModelError(
                f"module: {block} fails with tensors of shapes {shapes}: {reason}; {remedy}"
            ) from error

    def _check_samples(self, block: str, sample: Sample, count: int) -> None:
        """Ensure that all that a block takes and returns can be cut into shares of the samples."""
        handed = [self._shapes[name] for name in forward_inputs(self._placement, block)]
        if not computes_loss(self._placement, block):
            handed.append(self._shapes[block])
        read = [tuple(value.shape) for value in (*sample.inputs, *sample.targets)]
        for shapes in (*handed, *((shape,) for shape in read)):
            if not have_samples(shapes) or shapes[0][0] % count:
                raise ModelError(
                    f"module: {block} takes or returns tensors of shapes {list(shapes)}, which its {count} "
                    "data-parallel groups cannot share equally; let the first dimension of each be the "
                    f"samples, a multiple of {count}"
                )

    def _check_returned(self, block: str, outputs: Sequence[Any]) -> None:
        for i, output in enumerate(outputs):
            which = f"{block}'s output {i + 1} of {len(outputs)}"
            if not isinstance(output, Tensor):
                raise ModelError(
                    f"module: {which} is of type {type(output).__name__}; only tensors can be handed over: "
                    "cut elsewhere, or cut the graph of torch.export, in which sizes are numbers"
                )
            if output.dtype != self._dtype:
                raise ModelError(
                    f"module: {which} is of {output.dtype}, but only tensors of the model's {self._dtype} "
                    "can be handed over; cut elsewhere, or compute it again in the block that needs it"
                )
        if computes_loss(self._placement, block) and (len(outputs) != 1 or outputs[0].shape != ()):
            raise ModelError(
                f"module: {block} feeds no other block, so it must return one scalar loss, not "
                f"{[tuple(output.shape) for output in outputs]}; define loss(output, target) in the file"
            )


def _changes_buffer(block: str, name: str) -> ModelError:
    return ModelError(
        f"module: {block} changes its buffer {name}, so results depend on the order of micro-batches; for "
        "BatchNorm use track_running_stats=False, GroupNorm or LayerNorm"
    )
