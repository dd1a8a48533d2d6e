"""Models by name: which placements they fit, their modules, and the body of blocks that options ask for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from placements import Kind, Placement
from placements.block import COMPUTE
from placements.forms.reading import plain
from runtime.models.body import Body
from runtime.models.core.chains import max_shards
from runtime.models.core.layered_block import LayeredBlock
from runtime.models.core.options import GIVEN_MODEL, USER_MODEL, ModelError, ModelOptions
from runtime.models.core.parameters import description_of, initial_values
from runtime.models.core.slices import cannot_be_cut
from runtime.models.core.tokens import Text
from runtime.models.user.packing import Forms
from runtime.models.user.sources import Batches, ModuleSource
from runtime.models.user.tracing import forms_from_plain, trace
from runtime.models.user.user_file import UserFile
from runtime.models.zoo import flava, gpt, moe, mt5, synthetic
from runtime.program.tensor_flow import computes_loss, forward_graphs
from runtime.program.tensor_spec import TensorSpec
from schedsearch.semantics.versions import WeightMode


class Architecture(NamedTuple):
    """A model that is cut into the blocks of a placement.

    It returns the module of each forward block, or checks that the placement is such that it can be cut into
    its blocks; both raise a `ModelError`.
    """

    blocks: Callable[[Placement, ModelOptions], Mapping[str, LayeredBlock]]
    check: Callable[[Placement], object]


ARCHITECTURES: Mapping[str, Architecture] = {
    "gpt": Architecture(gpt.blocks, gpt.chains_of_stages),
    "mt5": Architecture(mt5.blocks, mt5.encoder_and_decoder),
    "flava": Architecture(flava.blocks, flava.parts),
    "moe": Architecture(moe.blocks, moe.chains_of_layers),
    "synthetic": Architecture(synthetic.blocks, lambda placement: None),
}
"""The models that come with the project; the last one runs any placement."""

MODEL_NAMES = (*ARCHITECTURES, USER_MODEL, GIVEN_MODEL)
"""All values of `ModelOptions.name`."""


def zoo_blocks(placement: Placement, options: ModelOptions) -> Mapping[str, LayeredBlock]:
    """Return the module of each forward block, without values.

    Raises:
        ModelError: There is no such model, or it does not fit the placement or its own options.
    """
    if options.name not in ARCHITECTURES:
        raise ModelError(f"{options.name!r} is not a model; use {' or '.join(MODEL_NAMES)}", "name")
    if placement.num_slices > 1 and options.name != "gpt":
        raise cannot_be_cut(f"the model {options.name!r}")
    for block in placement.blocks:
        if block.kind is not Kind.F:
            continue
        if (count := len(block.groups[0])) > options.vocab_size:
            raise ModelError(f"{options.vocab_size} rows cannot be cut over {count} devices", "vocab_size")
        if options.micro_batch_size % block.num_shares:
            raise ModelError(
                f"{options.micro_batch_size} samples have no equal shares for the "
                f"{block.data_parallel} data-parallel groups of {block.name}; use a multiple of "
                f"{block.data_parallel}",
                "micro_batch_size",
            )
    with torch.device("meta"):
        return ARCHITECTURES[options.name].blocks(placement, options)


class ZooSource(ModuleSource):
    """A model that comes with the project.

    Its modules draw no random numbers, and their blocks can be cut over several devices.

    Raises:
        ModelError: See `zoo_blocks`.
    """

    def __init__(self, options: ModelOptions, placement: Placement) -> None:
        self.name = f"the model {options.name!r}"
        # Each token of samples of any length counts the same.
        self.loss_weight = None if options.sequence_lengths is None else lambda *targets: targets[0].numel()
        self._options, self._placement = options, placement
        self._blocks = zoo_blocks(placement, options)
        self._dtype: torch.dtype = getattr(torch, options.dtype)

    def modules(self, names: Sequence[str]) -> Mapping[str, nn.Module]:
        """Return all modules; without values they take no memory."""
        return self._blocks

    def forms(self, names: Sequence[str]) -> dict[str, Forms]:
        """Return the forms of the blocks' outputs, which are known without running any."""
        forms: dict[str, Forms] = {}
        for name in names:
            shapes = [()] if computes_loss(self._placement, name) else self._blocks[name].returns
            forms[name] = tuple(TensorSpec.of(self._dtype, shape) for shape in shapes)
        return forms

    def values(self, tensor: Tensor) -> Tensor:
        """Return normally distributed values; they depend on the parameter's name and the seed alone."""
        description = description_of(tensor)
        assert description is not None, "our layers describe their parameters"
        return initial_values(description, self._options.seed, self._dtype)

    def batches(self, num_micro_batches: int, device: torch.device | str) -> Batches:
        """Return a function that gives each block that reads its part of a slice of the text."""
        text, lengths = Text(self._options, num_micro_batches, device), self._options.sequence_lengths
        num_graphs = len(forward_graphs(self._placement))
        count = num_micro_batches // num_graphs
        if lengths is not None and len(lengths) % count:
            raise ModelError(
                f"has {len(lengths)} lengths for {count} micro-batches; give one for each, of one iteration "
                "or of several",
                "sequence_lengths",
            )

        def batch(iteration: int, micro_batch: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
            tokens = text.micro_batch(iteration, micro_batch)
            if lengths is not None:
                tokens = tokens.first(self._options.tokens_of(iteration, micro_batch // num_graphs, count))
            blocks = self._blocks.items()
            inputs = {name: getattr(tokens, part) for name, block in blocks for part in block.input_names}
            targets = {name: getattr(tokens, part) for name, block in blocks for part in block.target_names}
            return inputs, targets

        return batch


def fits(placement: Placement, name: str) -> bool:
    """Tell whether a model can run a placement, given enough layers and heads."""
    try:
        ARCHITECTURES[name].check(placement)
    except (KeyError, ModelError):
        return False
    return True


def suitable_model(placement: Placement, num_heads: int | None = None) -> str:
    """Return the first model that fits: of ``gpt``, ``mt5``, ``flava`` and, for any graph, ``synthetic``.

    Layers of four blocks that do not all compute are those of ``moe``. Without a number of attention heads
    there are enough for ``flava``, which cuts them over the devices of a group.

    >>> from placements.shapes import k_shape, m_shape, nn_shape
    >>> suitable_model(m_shape()), suitable_model(nn_shape()), suitable_model(k_shape())
    ('gpt', 'mt5', 'flava')
    """
    has_streams = any(block.stream != COMPUTE for block in placement.blocks)
    if has_streams and fits(placement, "moe"):
        return "moe"
    model = next(name for name in ARCHITECTURES if name != "moe" and fits(placement, name))
    if model == "flava" and num_heads is not None:
        most = max_shards(block for part in flava.parts(placement) for block in part)
        return model if num_heads >= most else "synthetic"
    return model


def body_of(options: ModelOptions, placement: Placement, names: Collection[str] | None = None) -> Body:
    """Return the body of a model, of which these forward blocks are computed here; None for all.

    Raises:
        ModelError: The model does not fit the placement, or a user's file does not make one; or blocks share
            a parameter although each is to be updated by itself.
    """
    if options.name == GIVEN_MODEL:
        raise ModelError(
            f"{GIVEN_MODEL!r} has no modules but those that a script of your own gives to "
            f"runtime.Pipeline; start that script, or use the model {USER_MODEL!r}",
            "name",
        )
    if options.name != USER_MODEL:
        body = Body(options, placement, ZooSource(options, placement))
    else:
        names = None if options.handed_over is None else names
        body = Body(options, placement, UserFile(options, gives_away=names is not None), names)
        if options.handed_over is None:
            trace(body)
        else:
            body.forms |= forms_from_plain(options.handed_over, body.names)
    holder: dict[str, str] = {}
    for block in body.names if options.weight_versions != WeightMode.FLUSH else ():
        for parameter in body.parameters(block):
            other = holder.setdefault(parameter.name, block)
            if other != block:
                raise ModelError(
                    f"{options.weight_versions} updates every block by itself, but {other} and {block} "
                    f"share {parameter.name}; use {WeightMode.FLUSH} or the model 'synthetic'",
                    "weight_versions",
                )
    return body


def traced(options: ModelOptions, placement: Placement) -> ModelOptions:
    """Return the options with the forms between the blocks of a user's model, so that no process traces it.

    Raises:
        ModelError: See `body_of`.
    """
    if options.name != USER_MODEL or options.handed_over is not None:
        return options
    return replace(options, handed_over=plain(body_of(options, placement).forms))
