"""What the blocks of a user's model hand over, found once, by one micro-batch forward through all of them.

Small models run for real, on the CPU, which shows most errors of a file before anything starts. Large ones
run on the ``meta`` device, without memory; where an operator cannot, for real after all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from placements.forms.reading import Field
from runtime.models.body import Body, changes_buffer, check_tensors
from runtime.models.core.options import ModelError
from runtime.models.user.packing import Forms, forms_of, have_samples, packed
from runtime.models.user.reading import Sample
from runtime.models.user.seeds import seeded
from runtime.models.user.user_shares import check_shares
from runtime.program.tensor_flow import computes_loss, forward_inputs
from runtime.program.tensor_spec import TensorSpec

RUN_MIB = 64
"""Size of the parameters of a model up to which the micro-batch is run for real, in MiB."""


def forms_to_plain(forms: Mapping[str, Forms]) -> dict[str, list[list[Any]]]:
    """Return forms as plain data: for each block the type and the sizes of each tensor.

    >>> forms_to_plain({"F0": (TensorSpec("float32", (2, 3)),)})
    {'F0': [['float32', [2, 3]]]}
    """
    return {block: [[form.dtype, list(form.shape)] for form in found] for block, found in forms.items()}


def forms_from_plain(data: Mapping[str, Any], names: Sequence[str]) -> dict[str, Forms]:
    """Return the forms that `forms_to_plain` wrote.

    Raises:
        ModelError: They are something else, or not of these blocks.
    """
    table = Field(data, "model.handed_over", ModelError)
    table.only(names)
    return {name: tuple(_form(row) for row in table[name].items("a list of forms")) for name in names}


def _form(row: Field) -> TensorSpec:
    pair = list(row.items("a type and a list of sizes"))
    if len(pair) != 2:
        raise row.wrong("a type and a list of sizes", "give both, as in ['float32', [2, 3]]")
    dtype = pair[0].text("the name of a type", "give one such as 'float64'")
    if not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise pair[0].wrong("the name of a type", "give one such as 'float64'")
    sizes = pair[1].items("a list of sizes")
    return TensorSpec(
        dtype, tuple(size.whole("a size", "give a whole number from 0 on", 0) for size in sizes)
    )


def trace(body: Body) -> None:
    """Find the forms of what every block hands over, into its `forms`.

    Raises:
        ModelError: A module fails, returns what cannot be handed over, or does more than compute sample by
            sample where it is data parallel.
    """
    sizes = {each.name: each.numel for name in body.names for each in body.parameters(name)}
    in_groups = any(body.placement.by_name[name].num_shares > 1 for name in body.names)
    if sum(sizes.values()) * body.dtype.itemsize > RUN_MIB * 2**20 and not in_groups:
        try:
            _trace(body, torch.device("meta"))
        except Exception:
            body.forms.clear()
        else:
            return
    _trace(body, torch.device("cpu"))


def _trace(body: Body, device: torch.device) -> None:
    data = body.data(1, "cpu")
    returned: dict[str, Tensor] = {}
    for block in body.names:
        inputs = [returned[name] for name in forward_inputs(body.placement, block)]
        sample = _on(data.read(block, 0, 0), device)
        if device.type == "meta":
            module = body.modules[block]
            parameters = {
                n: torch.empty_like(p, dtype=body.dtype, device=device) for n, p in module.named_parameters()
            }
            buffers = {n: _typed(b.to(device), body.dtype) for n, b in module.named_buffers()}
        else:
            parameters, buffers = body.initial_of(block), body.buffers(block, device)
        returned[block] = packed(try_block(body, block, inputs, sample, parameters, buffers), body.dtype)


def try_block(
    body: Body,
    block: str,
    inputs: Sequence[Tensor],
    sample: Sample,
    parameters: Mapping[str, Tensor],
    buffers: dict[str, Tensor],
) -> tuple[Tensor, ...]:
    """Run a block forward once, keep the forms of what it hands over, and return its outputs.

    Raises:
        ModelError: See `trace`.
    """
    versions = [value._version for value in inputs]
    outputs = _try(body, block, inputs, sample, parameters, buffers)
    if [value._version for value in inputs] != versions:
        raise ModelError(
            f"module: {block} changes in place what the block before it hands over, as an activation with "
            "inplace=True does; use inplace=False there, or cut behind it"
        )
    check_tensors(body.placement, block, outputs)
    body.forms[block] = forms_of(outputs)
    if (count := body.placement.by_name[block].num_shares) > 1:
        for name, value in body.buffers(block, "cpu").items():
            if not torch.equal(value, buffers[name].cpu()):
                raise changes_buffer(block, name, f"its {count} data-parallel groups would each have another")
        _check_samples(body, block, sample, count)
        run = partial(_try, body, block, parameters=parameters, buffers=buffers)
        check_shares(block, count, run, inputs, sample, outputs, body.weight_of_loss)
    return outputs


def _on(sample: Sample, device: torch.device) -> Sample:
    inputs, targets = (
        tuple(value.to(device) for value in values) for values in (sample.inputs, sample.targets)
    )
    return sample._replace(inputs=inputs, targets=targets)


def _typed(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _try(
    body: Body,
    block: str,
    inputs: Sequence[Tensor],
    sample: Sample,
    parameters: Mapping[str, Tensor],
    buffers: dict[str, Tensor],
) -> tuple[Tensor, ...]:
    """Return what the module, or the loss after it, returns; the user's errors in one line."""
    try:
        with torch.no_grad(), seeded(sample.seed, torch.device("cpu")):
            return body.call(block, inputs, sample, parameters, buffers)
    except ModelError:
        raise
    except Exception as error:  # whatever a user's module raises
        shapes = [tuple(value.shape) for value in (*inputs, *sample.inputs, *sample.targets)]
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        remedy = "give it what the blocks before it return, in the order of its 'after'"
        if computes_loss(body.placement, block) and body.source.loss is None:
            remedy += ", and the targets, or define loss(output, targets)"
        if sample.num_shares > 1:
            remedy = "let it take any number of samples, or set data_parallel to 1"
        raise ModelError(
            f"module: {block} fails with tensors of shapes {shapes}: {reason}; {remedy}"
        ) from error


def _check_samples(body: Body, block: str, sample: Sample, count: int) -> None:
    """Ensure that all that a block takes and returns can be cut into shares of the samples."""
    handed = [body.forms[name] for name in forward_inputs(body.placement, block)]
    if not computes_loss(body.placement, block):
        handed.append(body.forms[block])
    read = [forms_of([value]) for value in (*sample.inputs, *sample.targets)]
    for forms in (*handed, *read):
        if not have_samples(forms) or forms[0].shape[0] % count:
            raise ModelError(
                f"module: {block} takes or returns tensors of shapes {[form.shape for form in forms]}, which "
                f"its {count} data-parallel groups cannot share equally; let the first dimension of each be "
                f"the samples, a multiple of {count}"
            )
