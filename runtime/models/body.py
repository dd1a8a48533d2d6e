"""The modules behind the forward blocks, each a torch module, with its shards if it is cut over devices.

A body holds no parameter that is trained: modules are called with the tensors that `runtime.models.model`
has for them, and only their names, forms and buffers are known here. It does not know where the modules come
from; see `runtime.models.user.sources`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from placements import Kind, Placement
from runtime.models.core.layers import ShardedLayer
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.core.parameters import Parameter, Weights, description_of
from runtime.models.core.precision import compute_type
from runtime.models.core.slices import SlicedBlock, cannot_be_cut
from runtime.models.user.cut import INPUT_NAMES, TARGET_NAMES, names_in_model
from runtime.models.user.packing import Forms, forms_of, packed, packed_shape, unpacked
from runtime.models.user.reading import INPUTS, TARGETS, ModelData, Reading, Sample, SourceData, several
from runtime.models.user.seeds import digest, seeded
from runtime.models.user.sources import ModuleSource
from runtime.program.tensor_flow import computes_loss, forward_graphs, forward_inputs, pair_backward
from runtime.program.tensor_spec import TensorSpec
from runtime.transport.shards import Shards, share_shape


class Body:
    """The modules behind the forward blocks.

    A block computes any share of the samples, if it has data-parallel groups: its inputs, its data and its
    output are then of those samples, which are dimension 0 of each, and its loss is the mean over them.
    Where the forward blocks make several separate graphs, a loss is divided by their number.

    Attributes:
        names: The forward blocks, in topological order.
        dtype: Type of all floats.
        modules: By block, as far as they are known here.
        read_names: The names of the arguments that the modules of some blocks read, if they have such.
        forms: Forms of each block's outputs; to be found out where the source does not know them.

    Args:
        own: The forward blocks that are computed here; None for all.
        keeps_names: Whether parameters keep their modules' names, as in a model that was cut, if no two have
            the same; else they begin with the first block that has them.

    Raises:
        ModelError: The source has no module for a block, or something is trained in a block without a
            backward block, or a module cannot be cut over the devices of its block.
    """

    def __init__(
        self,
        options: ModelOptions,
        placement: Placement,
        source: ModuleSource,
        local: Collection[str] | None = None,
        keeps_names: bool = False,
    ) -> None:
        self.options, self.placement, self.source = options, placement, source
        self.dtype: torch.dtype = getattr(torch, options.dtype)
        self._carried_dtype = compute_type(options.precision, options.dtype)
        self.names = [block.name for block in placement.topological_order if block.kind is Kind.F]
        modules = source.modules([name for name in self.names if local is None or name in local])
        if unknown := [str(name) for name in modules if name not in self.names]:
            raise ModelError(
                f"modules: {source.name} has one for {', '.join(unknown)}, which are no forward blocks of "
                f"{placement.name}; give modules for {', '.join(self.names)} alone"
            )
        self.modules = {name: modules[name] for name in self.names if name in modules}
        self._check_devices()
        if placement.num_slices > 1 and not all(map(self.slice_of, self.modules)):
            raise cannot_be_cut(source.name)
        self.read_names: dict[str, Mapping[str, tuple[str, ...]]] = {
            block: {INPUTS: getattr(module, INPUT_NAMES, ()), TARGETS: getattr(module, TARGET_NAMES, ())}
            for block, module in self.modules.items()
        }
        self._num_graphs = len(forward_graphs(placement))
        self._parameters: dict[str, dict[str, Parameter]] = {}
        self._tensor_of: dict[str, nn.Parameter] = {}
        self._aliases: dict[str, dict[str, None]] = {}
        self._name_parameters(keeps_names)
        self._check_trained()
        for module in () if pair_backward(placement) else self.modules.values():
            module.eval()
        self._called = {block: _CalledModule(module) for block, module in self.modules.items()}
        self._held: dict[str, dict[str, Tensor]] = {}
        self._changes_buffers: dict[str, bool] = {}
        self.forms: dict[str, Forms] = dict(source.forms(self.names))

    def _check_devices(self) -> None:
        """Ensure that blocks on several devices can be cut, or take a share of the samples."""
        for name, module in self.modules.items():
            block = self.placement.by_name[name]
            is_cut = any(isinstance(layer, ShardedLayer) for layer in module.modules())
            if (count := len(block.devices)) > block.data_parallel and not is_cut:
                raise ModelError(
                    f"module: {name} stands on devices {', '.join(map(str, block.devices))}, but a user's "
                    "module runs on one; put it on one device, or a share of the samples on each "
                    f"(data_parallel: {count}), or use the model 'synthetic'"
                )

    def _name_parameters(self, keeps_names: bool) -> None:
        """Name every parameter by its name in its module, with its first block before it if names repeat."""
        first: dict[int, tuple[str, str]] = {}
        for block, module in self.modules.items():
            for local, value in module.named_parameters():
                first.setdefault(id(value), (block, local))
        self._keeps_names = keeps_names and len({local for _, local in first.values()}) == len(first)
        for block, module in self.modules.items():
            in_whole, of_block = names_in_model(block, module), self._parameters.setdefault(block, {})
            known: set[int] = set()
            for local, value in module.named_parameters(remove_duplicate=False):
                name = first[id(value)][1] if self._keeps_names else ".".join(first[id(value)])
                described = description_of(value)
                parameter = described or Parameter(name, tuple(value.shape), trains=value.requires_grad)
                if id(value) not in known:
                    of_block[local] = parameter
                    known.add(id(value))
                self._tensor_of.setdefault(parameter.name, value)
                names = in_whole.get(local, ()) if described is None else (parameter.name,)
                self._aliases.setdefault(parameter.name, {}).update(dict.fromkeys(names))

    def _check_trained(self) -> None:
        """Ensure that only blocks with nothing to train have no backward block, unless none has one."""
        trained = set(pair_backward(self.placement).values())
        for name in (name for name in self.names if trained and name not in trained):
            of_block = [weight.name for weight in self.parameters(name) if weight.trains]
            if of_block:
                raise ModelError(
                    f"model: {name} has no backward block, so {of_block[0]} would not be trained; add one on "
                    f"device {', '.join(map(str, self.placement.by_name[name].devices))}, or freeze it by "
                    "requires_grad_(False)"
                )

    def place(self, shards: Mapping[str, Shards]) -> None:
        """Let blocks compute these of their shards, and reach the others."""
        for block, of_block in shards.items():
            for layer in self.modules[block].modules():
                if isinstance(layer, ShardedLayer):
                    layer.shards = of_block

    def slice_of(self, block: str) -> SlicedBlock | None:
        """Return the module of a block that computes a slice of a sequence; None of one that does not."""
        module = self.modules[block]
        return module if isinstance(module, SlicedBlock) else None

    def parameters(self, block: str) -> tuple[Parameter, ...]:
        """Return the different parameters of a block's module; of a block computed elsewhere perhaps none."""
        return tuple({weight.name: weight for weight in self._parameters.get(block, {}).values()}.values())

    def initial(self, parameter: Parameter) -> Tensor:
        """Return the values that the modules' code gives the parameter, for the caller to keep."""
        return self.source.values(self._tensor_of[parameter.name])

    def initial_of(self, block: str) -> dict[str, Tensor]:
        """Return new initial parameters of the block's module, by the module's names."""
        return {name: self.initial(weight).to(self.dtype) for name, weight in self._parameters[block].items()}

    def output_shape(self, block: str, sample: Sample | None = None) -> tuple[int, ...]:
        """Return the shape of a block's output for all samples, or of all packed into one, or of its loss.

        Where micro-batches differ in their shapes it is the shape of the sample's, and where samples differ
        in their tokens a size is `runtime.program.tensor_spec.TOKENS`.
        """
        if computes_loss(self.placement, block):
            return ()
        return packed_shape(self._carried(block, sample), self._carried_dtype)

    def _carried(self, block: str, sample: Sample | None) -> Forms:
        """Return the forms of a block's outputs, with floats as blocks compute them."""
        float_dtype = str(self.dtype).removeprefix("torch.")
        return tuple(
            TensorSpec.of(self._carried_dtype, form.shape) if form.dtype == float_dtype else form
            for form in ((sample and sample.forms) or self.forms)[block]
        )

    @property
    def weight_of_loss(self) -> Callable[[Sample], float] | None:
        """Weight of the loss of a block that has read a sample; None if all count the same."""
        return None if self.source.loss_weight is None else self._loss_weight

    def _loss_weight(self, sample: Sample) -> float:
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

    def data(self, num_micro_batches: int, device: torch.device | str) -> ModelData:
        """Return the data that the blocks read; a `ModelError` says why they cannot be read."""

        def error(reason: str) -> ModelError:
            return ModelError(f"data of {self.source.name} {reason}", "path")

        reading = Reading(self.placement, self.read_names, self.options, device, error)
        return SourceData(self.source, reading, num_micro_batches, device)

    def forward(self, block: str, inputs: Sequence[Tensor], sample: Sample, weights: Weights) -> Tensor:
        """Run a block's module, and return its loss or its output, of which several are packed into one.

        Inputs are the outputs of the blocks that it is after, in that order; weights may be shards.

        Raises:
            ModelError: The module fails, changes a buffer that it must not, or returns no tensor or others
                than at first.
        """
        parameters = {local: weights[weight.name] for local, weight in self._parameters[block].items()}
        device = next(value.device for value in (*inputs, *sample.inputs, *parameters.values()))
        held = self.held_buffers(block, device)
        first, buffers = block not in self._changes_buffers, dict(held)
        if self._changes_buffers.get(block, True):  # the backward of earlier ones may need them
            buffers = {name: value.clone() for name, value in held.items()}
        before = {name: (value, value._version) for name, value in buffers.items()}
        # A captured graph makes tensors on the default device; modules without a seed make none.
        is_default = sample.seed is not None and device.type == "cuda"
        with seeded(sample.seed, device), device if is_default else nullcontext():
            outputs = self.call(block, inputs, sample, parameters, buffers)
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
            loss: Tensor = outputs[0] / self._num_graphs
            return loss if self.options.precision is None else loss.to(self.dtype)
        outputs = tuple(
            value.to(self._carried_dtype) if value.dtype == self.dtype else value for value in outputs
        )
        expected = tuple(
            TensorSpec(form.dtype, share_shape(form.shape, sample.num_shares))
            for form in self._carried(block, sample)
        )
        forms = forms_of(outputs)
        fits = [form.fits(*given) for form, given in zip(expected, forms, strict=False)]
        if len(expected) != len(forms) or not all(fits):
            given, wanted = (", ".join(map(str, specs)) for specs in (forms, expected))
            raise ModelError(
                f"module: {block} returned {given}, and {wanted} was expected from other micro-batches; let "
                "it return the same types and shapes for every one"
            )
        return packed(outputs, self._carried_dtype)

    def call(
        self,
        block: str,
        inputs: Sequence[Tensor],
        sample: Sample,
        parameters: Mapping[str, Tensor],
        buffers: dict[str, Tensor],
    ) -> tuple[Tensor, ...]:
        """Return the outputs of the module, or of the loss after it.

        Buffers that the module replaces are replaced.
        """
        # Blocks of which a micro-batch leaves out some inputs take tensors of one form.
        producers = forward_inputs(self.placement, block)[: len(inputs)]
        arguments: list[Tensor] = []
        for producer, value in zip(producers, inputs, strict=True):
            is_own = value.dtype == self.dtype  # blocks are tried in the parameters' type
            forms = (sample.forms or self.forms)[producer] if is_own else self._carried(producer, sample)
            arguments += unpacked(value, forms)
        arguments += sample.inputs
        ends, loss = computes_loss(self.placement, block), self.source.loss
        takes_targets = loss is None or bool(self.read_names[block][TARGETS])
        if ends and takes_targets:
            arguments += sample.targets
        given = {**parameters, **buffers}
        outputs = several(self._called[block](given, tuple(arguments)))
        buffers.update({name: given[name] for name in buffers})
        if not ends or loss is None:
            return outputs
        return several(loss(*outputs) if takes_targets else loss(*outputs, *sample.targets))

    def buffers(self, block: str, device: torch.device | str) -> dict[str, Tensor]:
        """Return new buffers of the block's module, by the module's names."""
        return {
            name: self.source.values(value).to(
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
        """Ensure that changed buffers end with the same values as in the model in one piece."""
        for name, value in changed.items():
            buffer = self.modules[block].get_buffer(name)
            others = [module for other, module in self.modules.items() if other != block]
            if self.placement.by_name[block].data_parallel > 1:
                raise changes_buffer(block, name, "its data-parallel groups would each have another")
            if any(buffer is other for module in others for other in module.buffers()):
                raise changes_buffer(block, name, "other blocks have the same buffer")
            if forms_of([value]) != forms_of([held[name]]):
                raise changes_buffer(block, name, f"into one of {forms_of([value])[0]}")

    def state_names(self, block: str) -> dict[str, tuple[str, ...]]:
        """Return the names in the state dict of the whole model of each of a block's parameters."""
        return {weight.name: tuple(self._aliases[weight.name]) for weight in self._parameters[block].values()}

    def state_buffers(self, block: str) -> dict[str, tuple[str, Tensor]]:
        """Return the buffers of a block that a state dict has: the name there -> the module's, and form."""
        names = names_in_model(block, self.modules[block])
        return {
            whole: (name, value)
            for name, value in self.modules[block].named_buffers()
            for whole in names.get(name, ())
        }

    def buffer_values(self, block: str, name: str) -> Tensor:
        """Return the values of a buffer, in its own type."""
        buffer = self.modules[block].get_buffer(name)
        return self._held[block][name].to(buffer.dtype) if block in self._held else self.source.values(buffer)

    def load_buffer(self, block: str, name: str, values: Tensor, device: torch.device) -> None:
        """Give a buffer on a device other values."""
        held = self.held_buffers(block, device)
        held[name] = values.to(held[name])


_Place = tuple[dict[str, Any], str, str, Tensor]
"""A place of a tensor: the module's table and the name in it, the tensor's full name, and the tensor."""


class _CalledModule:
    """A module that is called with given tensors as its parameters and buffers, and in no other way.

    Its own parameters are not put back, its buffers are. It does as `torch.func.functional_call`, which at
    every call walks over all modules, checks the names, and puts the module's own tensors back; for a small
    module that takes longer than the module itself. Here the places of the tensors are found once.
    """

    def __init__(self, module: nn.Module) -> None:
        names = {id(value): name for name, value in module.named_parameters()}
        names |= {id(value): name for name, value in module.named_buffers()}
        self._module = module
        parameters: list[_Place] = []
        self._buffers: list[_Place] = []
        for inner in module.modules():
            for tensors, places in ((inner._parameters, parameters), (inner._buffers, self._buffers)):
                pairs = ((name, value) for name, value in tensors.items() if value is not None)
                places += [(tensors, name, names[id(value)], value) for name, value in pairs]
        self._tensors = parameters + self._buffers

    def __call__(self, given: dict[str, Tensor], arguments: tuple[Any, ...]) -> Any:
        """Return the module's outputs.

        Args:
            given: The tensor of each parameter and buffer by its full name; a buffer in whose place the
                module puts another one is replaced by that.
            arguments: Arguments of the module.
        """
        for tensors, name, full, _ in self._tensors:
            tensors[name] = given[full]
        try:
            return self._module(*arguments)
        finally:
            for tensors, name, full, original in self._buffers:
                given[full], tensors[name] = tensors[name], original


def check_tensors(placement: Placement, block: str, outputs: Sequence[Any]) -> None:
    """Ensure that a block returns tensors, and one scalar if it feeds no other; at every call.

    Raises:
        ModelError: It does not.
    """
    for i, output in enumerate(outputs):
        if not isinstance(output, Tensor):
            raise ModelError(
                f"module: {block}'s output {i + 1} of {len(outputs)} is of type {type(output).__name__}; "
                "only tensors can be handed over: cut elsewhere, return tensors at every call, or cut the "
                "graph of torch.export, in which sizes are numbers"
            )
        if output.layout is not torch.strided or output.is_quantized:
            raise ModelError(
                f"module: {block}'s output {i + 1} of {len(outputs)} is {output.layout} of {output.dtype}; "
                "only dense tensors can be handed over: let it return output.to_dense(), or cut elsewhere"
            )
    if computes_loss(placement, block) and (len(outputs) != 1 or outputs[0].shape != ()):
        raise ModelError(
            f"module: {block} feeds no other block, so it must return one scalar loss, not "
            f"{[tuple(output.shape) for output in outputs]}; let loss(output, target) return one"
        )


def changes_buffer(block: str, name: str, reason: str) -> ModelError:
    """Return the error of a module that changes a buffer which cannot be changed."""
    return ModelError(
        f"module: {block} changes its buffer {name}, but {reason}; for BatchNorm use "
        "track_running_stats=False, GroupNorm or LayerNorm"
    )
