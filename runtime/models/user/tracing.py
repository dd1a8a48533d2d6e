"""Forms of the tensors between a user's blocks, found once, by one micro-batch forward through all of them.

Small models run for real, on the CPU, which shows most errors of a file before anything starts. Large ones
run on the ``meta`` device, without memory; where an operator cannot, for real after all. A block in
data-parallel groups is run with all samples and with each share: both must give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from placements.forms.reading import Field
from runtime.models.body import Body, changes_buffer, check_tensors
from runtime.models.core.options import ModelError
from runtime.models.user.packing import Forms, forms_of, have_samples, packed
from runtime.models.user.reading import Sample
from runtime.models.user.seeds import seeded
from runtime.program.tensor_flow import computes_loss, forward_inputs
from runtime.transport.shards import share_of, sum_in_order

RUN_MIB = 64
"""Size of the parameters of a model up to which the micro-batch is run for real, in MiB."""


def forms_from_plain(data: Mapping[str, Any], names: Sequence[str]) -> dict[str, Forms]:
    """Return forms of plain data: for each block the type and the sizes of each tensor.

    >>> forms_from_plain({"F0": [["float32", [2, 3]]]}, ["F0"])
    {'F0': (TensorSpec(dtype='float32', shape=(2, 3)),)}

    Raises:
        ModelError: They are something else, or not of these blocks.
    """
    table = Field(dict(data), "model.handed_over", ModelError).only(names)
    forms: dict[str, Forms] = {name: table[name].typed(Forms) for name in names}
    for name, spec in ((name, spec) for name, specs in forms.items() for spec in specs):
        if not isinstance(getattr(torch, spec.dtype, None), torch.dtype):
            raise table[name].mistake(f"{spec.dtype!r} is not the name of a type; give one such as 'float64'")
    return forms


def trace(body: Body) -> None:
    """Find the forms of every block's outputs, into its `forms`.

    Raises:
        ModelError: A module fails, returns tensors that cannot be handed over, or does more than compute
            sample by sample where it is data parallel.
    """
    sizes = {parameter.name: parameter.numel for name in body.names for parameter in body.parameters(name)}
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
        sample = data.read(block, 0, 0).changed(lambda value: value.to(device))
        if device.type == "meta":
            named = body.modules[block].named_parameters()
            parameters = {n: torch.empty_like(p, dtype=body.dtype, device=device) for n, p in named}
            buffers = {
                name: value.to(device, body.dtype if value.is_floating_point() else None)
                for name, value in body.modules[block].named_buffers()
            }
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
    """Run a block forward once, keep the forms of its outputs, and return these.

    Raises:
        ModelError: See `trace`.
    """
    versions = [value._version for value in inputs]

    def run(inputs: Sequence[Tensor], sample: Sample) -> tuple[Tensor, ...]:
        try:
            with torch.no_grad(), seeded(sample.seed, torch.device("cpu")):
                return body.call(block, inputs, sample, parameters, buffers)
        except ModelError:
            raise
        except Exception as error:  # whatever a user's module raises
            raise _failed(body, block, (*inputs, *sample.inputs, *sample.targets), sample, error) from error

    outputs = run(inputs, sample)
    if [value._version for value in inputs] != versions:
        raise ModelError(
            f"module: {block} changes its input in place, as an activation with "
            "inplace=True does; use inplace=False there, or cut behind it"
        )
    check_tensors(body.placement, block, outputs)
    body.forms[block] = forms_of(outputs)
    if (count := body.placement.by_name[block].num_shares) > 1:
        for name, value in body.buffers(block, "cpu").items():
            if not torch.equal(value, buffers[name].cpu()):
                raise changes_buffer(block, name, f"its {count} data-parallel groups would each have another")
        _check_shares(body, block, count, run, inputs, sample, outputs)
    return outputs


def _failed(body: Body, block: str, given: Sequence[Tensor], sample: Sample, error: Exception) -> ModelError:
    """Return the error of a user's module in one line."""
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    remedy = "give it the outputs of the blocks before it, in the order of its 'after'"
    if computes_loss(body.placement, block) and body.source.loss is None:
        remedy += ", and the targets, or define loss(output, targets)"
    if sample.num_shares > 1:
        remedy = "let it take any number of samples, or set data_parallel to 1"
    shapes = [tuple(value.shape) for value in given]
    return ModelError(f"module: {block} fails with tensors of shapes {shapes}: {reason}; {remedy}")


def _check_shares(
    body: Body,
    block: str,
    count: int,
    run: Callable[[Sequence[Tensor], Sample], tuple[Tensor, ...]],
    inputs: Sequence[Tensor],
    sample: Sample,
    whole: Sequence[Tensor],
) -> None:
    """Ensure that a block's module gives the same for shares of the samples as for all of them.

    Raises:
        ModelError: Its tensors have no equal shares, it draws random numbers, mixes samples, or its loss is
            not the mean over them.
    """
    handed = [body.forms[name] for name in forward_inputs(body.placement, block)]
    handed += [] if computes_loss(body.placement, block) else [body.forms[block]]
    for forms in (*handed, *(forms_of([value]) for value in (*sample.inputs, *sample.targets))):
        if not have_samples(forms) or forms[0].shape[0] % count:
            raise ModelError(
                f"module: {block} takes or returns tensors of shapes {[form.shape for form in forms]}, which "
                f"its {count} data-parallel groups cannot share equally; let the first dimension of each be "
                f"the samples, a multiple of {count}"
            )
    again = run(inputs, sample._replace(seed=(sample.seed or 0) ^ 1))
    if not all(map(torch.equal, whole, again)):
        raise ModelError(
            f"module: {block} draws random numbers, and would draw others in {count} data-parallel groups; "
            "leave out its dropout, or set data_parallel to 1"
        )
    samples = [sample.share(i, count) for i in range(count)]
    shares = [run([share_of(value, i, count) for value in inputs], part) for i, part in enumerate(samples)]
    for parts, expected in zip(zip(*shares, strict=True), whole, strict=True):
        if is_loss := expected.dim() == 0:
            weights = [1.0 if body.weight_of_loss is None else body.weight_of_loss(part) for part in samples]
            weighted = [part * weight for part, weight in zip(parts, weights, strict=True)]
            joined = sum_in_order(weighted) / sum(weights)
        else:
            joined = torch.cat(parts)
        # Equal up to the order of sums: half of the type's digits.
        is_float = expected.numel() > 0 and (expected.is_floating_point() or expected.is_complex())
        allowed = torch.finfo(expected.dtype).eps ** 0.5 * float(expected.abs().max()) if is_float else 0.0
        if joined.shape == expected.shape and torch.allclose(joined, expected, rtol=0, atol=allowed):
            continue
        if is_loss:
            raise ModelError(
                f"module: the loss of {block} is {float(expected):.6g}, but the mean over its {count} "
                f"data-parallel groups {float(joined):.6g}; let it be the mean over the samples, none of "
                "which depends on others, or set data_parallel to 1"
            )
        raise ModelError(
            f"module: {block} returns another tensor when its samples come in {count} data-parallel groups; "
            "let no sample depend on others (GroupNorm or LayerNorm for BatchNorm), or set data_parallel to 1"
        )
