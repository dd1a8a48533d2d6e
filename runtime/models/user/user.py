"""A model of the user's own: a Python file with a module for each forward block, the data and the loss.

The file defines, and nothing else is asked of it:

- ``build(block)``, which returns the `torch.nn.Module` of a forward block, or ``blocks()``, which returns a
  mapping of all, as `runtime.models.user.cut` makes them. In ``blocks()`` blocks may share parameters.
- ``data(iteration, micro_batch)``, which returns inputs and targets, each a tensor, several, or a mapping of
  block to these where blocks read different ones. Blocks without inputs of their own read the inputs.
- ``loss(*outputs, *targets)``, which returns the scalar loss of the outputs of a block that feeds no other;
  without it such a block's module is given the targets after its inputs, and returns the loss itself. Where
  `cut` was told of ``targets``, the module is given them in any case, and ``loss(*outputs)`` picks its loss.

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
Without backward blocks the modules are put into eval mode.

A process has values only of its own blocks: ``build`` is called for these, and what ``blocks()`` builds takes
no memory until the values of a parameter are made, see `runtime.models.user.late_values`. So they do not
depend on who has which block. What blocks hand over is found once, when a job is generated, and then part of
its `ModelOptions.handed_over`; see `runtime.models.user.tracing`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from placements import Kind, Placement
from runtime.models.core.compiling import compiled
from runtime.models.core.layers import Parameter, Weights
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.core.precision import compute_type
from runtime.models.user.calling import Call, CalledModule, call
from runtime.models.user.cut import INPUT_NAMES, TARGET_NAMES, names_in_model
from runtime.models.user.packing import Forms, forms_of, packed, packed_shape, unpacked
from runtime.models.user.reading import INPUTS, TARGETS, Reading, Sample, UserData, several
from runtime.models.user.seeds import digest, seeded
from runtime.models.user.sources import ModuleSource
from runtime.models.user.tracing import changes_buffer, check_tensors, forms_from_plain, trace
from runtime.models.user.user_file import UserFile
from runtime.program.tensor_flow import computes_loss, forward_graphs, forward_inputs, pair_backward
from runtime.program.tensor_spec import TensorSpec
from runtime.transport.shards import Shards, share_shape


class UserModules:
    """The modules of a user, as a `runtime.models.body.Body`.

    Attributes:
        options: Path, type and seed.
        placement: What runs where.
        names: The forward blocks, in topological order.
        source: Where the modules come from.
        dtype: Of all floats.
        read_names: The names of what the modules of some blocks read, which `cut` knows.

    Args:
        options: Path, type and seed, and what the blocks hand over, if that is known.
        placement: What runs where.
        own: The forward blocks that are computed here; None for all.
        source: Where the modules come from; by default the file of the options.

    Raises:
        ModelError: The file fails or lacks something, a module fails, changes a buffer or returns what
            cannot be handed over, or the placement has forward blocks on several devices which are not
            data-parallel groups, or whose module does more than compute sample by sample.
    """

    def __init__(
        self,
        options: ModelOptions,
        placement: Placement,
        own: Collection[str] | None = None,
        source: ModuleSource | None = None,
    ) -> None:
        """Build the modules without memory, and find the forms between them unless they are known."""
        source = source or UserFile(options)
        names = [block.name for block in placement.topological_order if block.kind is Kind.F]
        known = options.handed_over is not None
        needed = names if own is None or not known else [name for name in names if name in own]
        self._begin(options, placement, source, source.modules(needed))
        self._check_modules()
        if options.handed_over is not None:
            self.forms |= forms_from_plain(options.handed_over, self.names)
        else:
            trace(self)

    def _begin(
        self,
        options: ModelOptions,
        placement: Placement,
        source: ModuleSource,
        modules: Mapping[str, nn.Module],
    ) -> None:
        """Take modules, of some blocks at least, and name their parameters."""
        self.options = options
        self.placement = placement
        self.source: ModuleSource = source
        self.dtype: torch.dtype = getattr(torch, options.dtype)
        self._carried_dtype = compute_type(options.precision, options.dtype)
        self.names = [block.name for block in placement.topological_order if block.kind is Kind.F]
        self._check_devices()
        if unknown := [str(name) for name in modules if name not in self.names]:
            raise ModelError(
                f"modules: {source.name} has one for {', '.join(unknown)}, which are no forward blocks of "
                f"{placement.name}; give those of {', '.join(self.names)} alone"
            )
        self.modules = {name: modules[name] for name in self.names if name in modules}
        self.read_names: dict[str, Mapping[str, tuple[str, ...]]] = {
            block: {INPUTS: getattr(module, INPUT_NAMES, ()), TARGETS: getattr(module, TARGET_NAMES, ())}
            for block, module in self.modules.items()
        }
        self._graphs = forward_graphs(placement)
        self._parameters: dict[str, dict[str, Parameter]] = {}
        self._tensor_of: dict[str, Tensor] = {}
        self._aliases: dict[str, dict[str, None]] = {}
        self._name_parameters()
        self._held: dict[str, dict[str, Tensor]] = {}
        self._changes_buffers: dict[str, bool] = {}
        self.loaded: dict[str, Tensor] = {}
        self.forms: dict[str, Forms] = {}

    def _check_modules(self) -> None:
        """Ensure that what is to be trained is, and that the modules can be called."""
        check_trained(self.placement, self.parameters)
        for module in () if pair_backward(self.placement) else self.modules.values():
            module.eval()
        self._called = {block: CalledModule(module) for block, module in self.modules.items()}
        self._how = {block: compiled(call, block, self.options.compile) for block in self.modules}

    def parameters(self, block: str) -> tuple[Parameter, ...]:
        """Return the parameters of the block's module; none of a block of others that was not built here."""
        return tuple(self._parameters.get(block, {}).values())

    def initial(self, parameter: Parameter) -> Tensor:
        """Return the values that the modules' code gives the parameter, for the caller to keep."""
        return self.source.values(self._tensor_of[parameter.name])

    def output_shape(self, block: str) -> tuple[int, ...]:
        """Return the shape of what a block hands over: of its one output, or of all packed into one."""
        return packed_shape(self._carried(block), self._carried_dtype)

    def _carried(self, block: str) -> Forms:
        """Return the forms of what a block hands over, with floats as blocks compute them."""
        float_dtype = str(self.dtype).removeprefix("torch.")
        return tuple(
            TensorSpec.of(self._carried_dtype, form.shape) if form.dtype == float_dtype else form
            for form in self.forms[block]
        )

    @property
    def weight_of_loss(self) -> Callable[[Sample], float] | None:
        """What a loss counts whose block has read a sample; None if all count the same."""
        return None if self.source.loss_weight is None else self._loss_weight

    def _loss_weight(self, sample: Sample) -> float:
        """Return what the source's function makes of the targets.

        Raises:
            ModelError: It fails, or returns no number of at least 0.
        """
        function = self.source.loss_weight
        assert function is not None
        try:
            with seeded(digest(self.source.seed, "loss_weight"), torch.device("cpu")):
                weight = float(function(*sample.targets))
        except Exception as error:  # whatever a user's function raises
            raise ModelError(f"loss_weight of {self.source.name} fails with {error!r}; mend it") from error
        if not 0 <= weight < math.inf:
            raise ModelError(
                f"loss_weight of {self.source.name} returned {weight}; return a number of at least 0"
            )
        return weight

    def data(self, num_micro_batches: int, device: torch.device | str) -> UserData:
        """Return what the blocks read."""
        of_data = f"data of {self.source.name}"
        reading = Reading(
            self.placement,
            self.read_names,
            self.dtype,
            device,
            lambda reason: ModelError(f"{of_data} {reason}", "path"),
        )
        return UserData(self.source, reading)

    def forward(
        self, block: str, inputs: Sequence[Tensor], sample: Any, weights: Weights, shards: Shards
    ) -> Tensor:
        """Run the block's module; several outputs are packed into one tensor.

        Raises:
            ModelError: The module fails, changes a buffer that it must not, or returns no tensor or others
                than at first.
        """
        parameters = {local: weights[each.name] for local, each in self._parameters[block].items()}
        device = next(value.device for value in (*inputs, *sample.inputs, *parameters.values()))
        held = self.held_buffers(block, device)
        first, buffers = block not in self._changes_buffers, dict(held)
        if self._changes_buffers.get(block, True):  # what earlier ones read, their backward may need
            buffers = {name: value.clone() for name, value in held.items()}
        before = {name: (value, value._version) for name, value in buffers.items()}
        # What a captured graph makes, it makes on the default device.
        with seeded(sample.seed, device), device if device.type == "cuda" else nullcontext():
            outputs = self.call(block, inputs, sample, parameters, buffers, self._how[block])
        changed = {
            name: value
            for name, value in buffers.items()
            if before[name][0] is not value
            or before[name][1] != value._version
            or (first and not torch.equal(held[name], value))  # not all operators count the versions
        }
        if first or changed:
            self._changes_buffers[block] = bool(changed)
            self._check_changed(block, held, changed)
        if self._changes_buffers[block]:
            self.hold_buffers(block, {name: value.detach() for name, value in buffers.items()})
        check_tensors(self.placement, block, outputs)
        if computes_loss(self.placement, block):
            return outputs[0] / len(self._graphs)
        outputs = tuple(
            value.to(self._carried_dtype) if value.dtype == self.dtype else value for value in outputs
        )
        expected = tuple(
            TensorSpec(form.dtype, share_shape(form.shape, sample.num_shares))
            for form in self._carried(block)
        )
        if forms_of(outputs) != expected:
            found, wanted = (", ".join(map(str, forms)) for forms in (forms_of(outputs), expected))
            raise ModelError(
                f"module: {block} returned {found}, and {wanted} for the first micro-batch; "
                "let it return the same types and shapes for every one"
            )
        return packed(outputs, self._carried_dtype)

    def call(
        self,
        block: str,
        inputs: Sequence[Tensor],
        sample: Sample,
        parameters: Mapping[str, Tensor],
        buffers: dict[str, Tensor],
        how: Call = call,
    ) -> tuple[Tensor, ...]:
        """Return what the module, or the loss after it, returns; the module is called in a given way.

        Buffers that the module replaces are replaced.
        """
        producers = forward_inputs(self.placement, block)
        arguments = [
            argument
            for producer, value in zip(producers, inputs, strict=True)
            for argument in unpacked(value, self._arrives(producer, value))
        ]
        arguments += sample.inputs
        ends, loss = computes_loss(self.placement, block), self.source.loss
        takes_targets = loss is None or bool(self.read_names[block][TARGETS])
        if ends and takes_targets:
            arguments += sample.targets
        given = {**parameters, **buffers}
        outputs = several(self._called[block](given, tuple(arguments), how))
        buffers.update({name: given[name] for name in buffers})
        if not ends or loss is None:
            return outputs
        return several(loss(*outputs) if takes_targets else loss(*outputs, *sample.targets))

    def _arrives(self, producer: str, value: Tensor) -> Forms:
        """Return the forms of what was packed into a value; blocks are tried in the parameters' type."""
        return self.forms[producer] if value.dtype == self.dtype else self._carried(producer)

    def buffers(self, block: str, device: torch.device | str) -> dict[str, Tensor]:
        """Return new buffers of the block's module, by the module's names."""
        return {
            name: self._buffer(block, name, value).to(
                device, self.dtype if value.is_floating_point() else None, copy=True
            )
            for name, value in self.modules[block].named_buffers()
        }

    def held_buffers(self, block: str, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Return the buffers that the next call of a block finds, on a device; they are not to be changed."""
        if block not in self._held:
            self._held[block] = self.buffers(block, device)
        return self._held[block]

    def hold_buffers(self, block: str, buffers: dict[str, Tensor]) -> None:
        """Let the next call of a block find these buffers."""
        self._held[block] = buffers

    def _check_changed(self, block: str, held: Mapping[str, Tensor], changed: Mapping[str, Tensor]) -> None:
        """Ensure that buffers can be changed, so that their last values are those of the model in one piece.

        Raises:
            ModelError: They cannot.
        """
        for name, value in changed.items():
            own, others = self.modules[block].get_buffer(name), {**self.modules}
            del others[block]
            if self.placement.by_name[block].data_parallel > 1:
                raise changes_buffer(block, name, "its data-parallel groups would each have another")
            if any(own is each for module in others.values() for each in module.buffers()):
                raise changes_buffer(block, name, "other blocks have the same buffer")
            if forms_of([value]) != forms_of([held[name]]):
                raise changes_buffer(block, name, f"into one of {forms_of([value])[0]}")

    def initial_of(self, block: str) -> dict[str, Tensor]:
        """Return new initial parameters of the block's module, by the module's names."""
        return {local: self.initial(each).to(self.dtype) for local, each in self._parameters[block].items()}

    def state_names(self, block: str) -> dict[str, tuple[str, ...]]:
        """Return the names in the state dict of the whole model of each of a block's parameters."""
        return {each.name: tuple(self._aliases[each.name]) for each in self._parameters[block].values()}

    def state_buffers(self, block: str) -> dict[str, tuple[str, Tensor]]:
        """Return the buffers of a block that a state dict has: the name there -> key and form."""
        names = _names_in_whole(block, self.modules[block])
        return {
            whole: (f"{block}.{name}", value)
            for name, value in self.modules[block].named_buffers()
            for whole in names.get(name, ())
        }

    def buffer_values(self, key: str) -> Tensor:
        """Return the values of a buffer, in its own type."""
        block, _, name = key.partition(".")
        own = self.modules[block].get_buffer(name)
        return (
            self._held[block][name].to(own.dtype) if block in self._held else self._buffer(block, name, own)
        )

    def load_buffer(self, key: str, values: Tensor) -> None:
        """Give a buffer other values."""
        self.loaded[key] = values
        self._held.pop(key.partition(".")[0], None)

    def _buffer(self, block: str, name: str, value: Tensor) -> Tensor:
        key = f"{block}.{name}"
        return self.loaded[key] if key in self.loaded else self.source.values(value)

    def _check_devices(self) -> None:
        for name in self.names:
            block = self.placement.by_name[name]
            if (count := len(block.devices)) > block.data_parallel:
                raise ModelError(
                    f"module: {name} stands on devices {', '.join(map(str, block.devices))}, but a user's "
                    "module runs on one; put it on one device, or a share of the samples on each "
                    f"(data_parallel: {count}), or use the model 'synthetic'"
                )

    def _name_parameters(self) -> None:
        """Name every parameter by the first block that has it."""
        name_of: dict[int, str] = {}
        for block, module in self.modules.items():
            self._parameters[block] = {}
            for local, value in module.named_parameters():
                name = name_of.setdefault(id(value), f"{block}.{local}")
                self._tensor_of[name] = value
                self._parameters[block][local] = Parameter(
                    name, tuple(value.shape), trains=value.requires_grad
                )
            in_whole = _names_in_whole(block, module)
            for local, value in module.named_parameters(remove_duplicate=False):
                aliases = self._aliases.setdefault(name_of[id(value)], {})
                aliases.update(dict.fromkeys(in_whole.get(local, ())))


def check_trained(placement: Placement, parameters: Callable[[str], Sequence[Parameter]]) -> None:
    """Ensure that only blocks with nothing to train have no backward block, unless none has one.

    Args:
        placement: What runs where.
        parameters: Returns those of a forward block.

    Raises:
        ModelError: Another one has none.
    """
    trained = set(pair_backward(placement).values())
    for block in placement.blocks:
        if not trained or block.kind is not Kind.F or block.name in trained:
            continue
        if names := [each.name for each in parameters(block.name) if each.trains]:
            raise ModelError(
                f"model: {block.name} has no backward block, so {names[0]} would not be trained; add one on "
                f"device {', '.join(map(str, block.devices))}, or freeze it by requires_grad_(False)"
            )


def _names_in_whole(block: str, module: nn.Module) -> Mapping[str, tuple[str, ...]]:
    """Return the names in the whole model's state dict of each of a block's, those of `cut` as before it."""
    before = names_in_model(module)
    return {name: (f"{block}.{name}",) for name in module.state_dict()} if before is None else before
