"""Modes of stages and micro-batches: the bits of the unpipelined model, and less is held on the device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import (
    SMALL_GPT,
    SYNTHETIC,
    blocks_of,
    compared,
    comparison_of,
    in_modes,
    require_equal,
    require_exact,
    trained,
)
from torch import Tensor

from placements.shapes import m_shape, v_shape, wave_shape
from runtime.execution.measurement import Measurement
from runtime.models.offloading import Offloaded
from runtime.program.deadlock import check
from runtime.program.lower import lower
from runtime.program.tensor_flow import OFFLOAD
from schedsearch.baselines import gpipe, one_f_one_b


def peaks(run: Measurement) -> list[float]:
    """Return the most bytes of activations that each device held, as it notes of itself."""
    return [max(held.value for record in rows for held in record.held_bytes) for rows in run.records]


def by_stage_and_micro_batch(decision: int, micro_batch: int) -> int:
    return (decision + micro_batch) % 3


@settings(max_examples=6)
@given(data=st.data())
def test_any_modes_change_no_bit(data: st.DataObject) -> None:
    """Of split backwards, and of blocks on several devices or GPUs too."""
    several = replace(v_shape(2), num_gpus=(2, 1))
    placement = data.draw(
        st.sampled_from([v_shape(3), m_shape(2), wave_shape(2, split_backward=True), several])
    )
    modes: dict[tuple[int, int], int] = {}

    def mode_of(decision: int, micro_batch: int) -> int:
        return modes.setdefault((decision, micro_batch), data.draw(st.integers(0, 2)))

    require_equal(compared(check(lower(in_modes(gpipe(placement, 3), mode_of))), SYNTHETIC))


def test_processes_recompute_by_stage_and_micro_batch(tmp_path: Path) -> None:
    schedule = in_modes(one_f_one_b(v_shape(2), 4), by_stage_and_micro_batch)
    trace = tmp_path / "trace.json"
    require_exact(comparison_of(trained(lower(schedule), SYNTHETIC, launcher="fork", trace_file=trace)))
    assert trace.is_file()


def test_what_is_offloaded_is_on_the_host_until_the_backward() -> None:
    kept, _ = blocks_of(v_shape(1))
    blocks, _ = blocks_of(v_shape(1))
    for n in range(2):
        kept.run("F0", n, [])
        blocks.run("F0", n, [], OFFLOAD)
    assert [held.has_graph for held in kept.saved()] == [True, True]
    assert [held.has_graph for held in blocks.saved()] == [False, False]
    one = blocks.peak_host_bytes // 2
    assert one > sum(tensor.nbytes for tensor in next(iter(blocks.saved())).tensors)
    for n in range(2):
        blocks.run("B0", n, [])
        blocks.begin(0) if n else None
    blocks.run("F0", 0, [], OFFLOAD)
    assert blocks.peak_host_bytes == 2 * one, "the first two have left the host"
    blocks.run("B0", 0, [])


def test_offloading_holds_what_is_not_kept_on_the_host() -> None:
    schedule, model = gpipe(v_shape(2), 3), SMALL_GPT | {"micro_batch_size": 4}
    kept, away = (
        trained(lower(in_modes(schedule, lambda *_, mode=mode: mode)), model, trace=True) for mode in (0, 2)
    )
    assert kept.peak_host_bytes == (0, 0)
    assert away.losses == kept.losses
    for device, ((before, after), host) in enumerate(
        zip(zip(peaks(kept), peaks(away), strict=True), away.peak_host_bytes, strict=True)
    ):
        assert after < before / 2, device
        assert host >= before - after, "some of it is memory that a part of is kept on the device too"


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_memory_that_tensors_share_is_copied_once() -> None:
    weight, value = random(4, 12), random(3, 4)

    def forward() -> Tensor:
        one, two, three = (value @ weight).chunk(3, dim=1)
        return (one * two * three).sum()

    (kept,) = torch.autograd.grad(forward(), value)
    saved = Offloaded([weight, value])
    with saved.saving():
        result = forward()
    assert saved.host_bytes == (3 * 12 + 3 * 4) * 8, "the chunks are parts of one product"
    saved.bring_back()
    assert saved.host_bytes == 0
    assert torch.equal(torch.autograd.grad(result, value)[0], kept)


def test_memory_that_is_written_to_later_comes_back_as_it_was_saved() -> None:
    value = random(3)
    saved = Offloaded([value])
    with saved.saving():
        made = value.exp()
        result = made.mul_(2).exp()
    saved.bring_back()
    expected = torch.autograd.grad((value.exp() * 2).exp().sum(), value)[0]
    assert torch.equal(torch.autograd.grad(result.sum(), value)[0], expected)


def test_conjugates_and_sparse_tensors_stay() -> None:
    value = torch.randn(3, 3, dtype=torch.complex128, requires_grad=True)
    sparse = torch.eye(3, dtype=torch.complex128).to_sparse()

    def forward() -> Tensor:
        return (torch.sparse.mm(sparse, value.exp()) @ value.conj().exp().mH).abs().sum()

    (kept,) = torch.autograd.grad(forward(), value)
    saved = Offloaded([value])
    with saved.saving():
        result = forward()
    saved.bring_back()
    (away,) = torch.autograd.grad(result, value)
    assert torch.equal(kept, away)
