"""Orders of ours as Megatron-LM's ``forward_backward_func``: losses and gradients of a run in one piece."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from joined import JoinedError, join
from megatron_stand_in import (
    NUM_MICRO_BATCHES,
    chunks_of,
    config,
    forward_step_of_tokens,
    gradients,
    in_one_piece,
    meet,
    step,
)

from placements.shapes import loop_shape, v_shape, wave_shape, x_shape
from runtime.hooks.megatron import MegatronOrder, MegatronOrderError
from runtime.program.lower import lower, recomputed
from runtime.program.prefetch import prefetch_receives
from runtime.program.program_file import programs_to_dict
from schedsearch.baselines import gpipe, interleaved_one_f_one_b, one_f_one_b
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_to_dict

ORDERS = {
    "1F1B": one_f_one_b(v_shape(2), NUM_MICRO_BATCHES),
    "GPipe": gpipe(v_shape(2), NUM_MICRO_BATCHES),
    "interleaved": interleaved_one_f_one_b(loop_shape(2, 2), NUM_MICRO_BATCHES),
    "three chunks": gpipe(loop_shape(2, 3), NUM_MICRO_BATCHES),
    "one rank": gpipe(loop_shape(1, 2), NUM_MICRO_BATCHES),
}


def trained(schedule: Schedule, folder: Path, given: Any = None, **others: Any) -> list[Any]:
    """Losses and gradients of each rank after an iteration."""
    placement = schedule.placement

    def rank_of(rank: int) -> Any:
        group = meet(rank, placement.num_devices, folder)
        chunks = chunks_of(rank, placement, given or config())
        losses = step(MegatronOrder(schedule), chunks, group, **others)
        return losses, gradients(chunks)

    return join(placement.num_devices, rank_of, folder)


def in_order(results: list[Any], num_stages: int) -> list[torch.Tensor]:
    """Gradients of all stages, by stage."""
    ranks = len(results)
    return [
        gradient
        for stage in range(num_stages)
        for gradient in results[stage % ranks][1][2 * (stage // ranks) : 2 * (stage // ranks) + 2]
    ]


@pytest.mark.parametrize(("name", "tokens"), list(zip(ORDERS, [False, True] * 3, strict=False)))
def test_losses_and_gradients_are_those_of_one_piece(name: str, tokens: bool, tmp_path: Path) -> None:
    schedule = ORDERS[name]
    num_stages = len(schedule.placement.blocks) // 2
    others = {"forward_step_func": forward_step_of_tokens} if tokens else {}
    results = trained(schedule, tmp_path, **others)
    losses, wanted = in_one_piece(num_stages, tokens)
    for rank, (reports, _) in enumerate(results):
        expected = losses if rank == len(results) - 1 else []
        assert [report["loss"].item() for report in reports] == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(in_order(results, num_stages), wanted)


def test_receives_posted_early_change_nothing(tmp_path: Path) -> None:
    programs = prefetch_receives(lower(ORDERS["1F1B"]), 2)
    assert programs != lower(ORDERS["1F1B"])

    def rank_of(rank: int) -> Any:
        group, chunks = meet(rank, 2, tmp_path), chunks_of(rank, programs.placement, config())
        return step(MegatronOrder(programs), chunks, group), gradients(chunks)

    torch.testing.assert_close(in_order(join(2, rank_of, tmp_path), 2), in_one_piece(2)[1])


def test_forward_only_gives_losses_and_no_gradients(tmp_path: Path) -> None:
    results = trained(ORDERS["interleaved"], tmp_path, forward_only=True)
    losses, _ = in_one_piece(4)
    assert [report["loss"].item() for report in results[1][0]] == pytest.approx(losses, rel=1e-6)
    assert results[0] == ([], [])
    assert results[1][1] == []


def test_what_is_collected_instead_of_losses(tmp_path: Path) -> None:
    results = trained(ORDERS["1F1B"], tmp_path, forward_only=True, collect_non_loss_data=True)
    assert [set(report) for report in results[1][0]] == [{"output"}] * NUM_MICRO_BATCHES


def test_copies_are_summed_once_and_gradients_finished(tmp_path: Path) -> None:
    """No sync until the last backward of a chunk; then Megatron-LM's own functions, with its arguments."""
    schedule = ORDERS["interleaved"]

    def rank_of(rank: int) -> Any:
        calls: list[Any] = []

        @contextmanager
        def no_sync(chunk: int) -> Any:
            calls.append(("off", chunk))
            yield
            calls.append(("on", chunk))

        def finish(chunks: Any, tokens: Any, pg_collection: Any, force_all_reduce: bool) -> None:
            calls.append(("finish", len(chunks), tokens.item(), force_all_reduce))

        given = config(
            no_sync_func=[lambda i=i: no_sync(i) for i in range(2)],
            grad_scale_func=lambda loss: loss * 8,
            finalize_model_grads_func=finish,
            calculate_per_token_loss=True,
        )
        group, chunks = meet(rank, 2, tmp_path), chunks_of(rank, schedule.placement, given)
        others = {"forward_step_func": forward_step_of_tokens, "force_all_reduce": True}
        step(MegatronOrder(schedule), chunks, group, **others)
        return calls, gradients(chunks)

    results = join(2, rank_of, tmp_path)
    for calls, _ in results:
        assert [call[:2] for call in calls] == [("off", 0), ("off", 1), ("on", 1), ("on", 0), ("finish", 2)]
        assert calls[-1][3] is True
    assert results[0][0][-1][2] == 0
    losses, _ = in_one_piece(4)
    assert results[1][0][-1][2] == sum(1 + int(loss * 7) % 5 for loss in losses)
    assert results[0][1][0].abs().sum() > 0


def test_an_order_is_read_from_its_files(tmp_path: Path) -> None:
    schedule = ORDERS["1F1B"]
    (tmp_path / "schedule.json").write_text(json.dumps(schedule_to_dict(schedule)))
    (tmp_path / "other.json").write_text(json.dumps(programs_to_dict(lower(schedule))))
    read = [MegatronOrder(tmp_path / name).programs for name in ("schedule.json", "other.json")]
    assert read == [lower(schedule), lower(schedule)]
    with pytest.raises(MegatronOrderError, match="none.json: cannot be read"):
        MegatronOrder(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (
            gpipe(wave_shape(2, 2), 2),
            "wave_shape: F2 is on devices .1., and Megatron-LM has stage 2 on rank 0",
        ),
        (gpipe(x_shape(2), 2), "x_shape: is not one chain of stages"),
        (gpipe(v_shape(2, split_backward=True), 2), "is no whole forward or backward of a stage"),
        (recomputed(lower(ORDERS["1F1B"]), "all"), "recompute is not run here; use Megatron-LM's"),
    ],
)
def test_orders_that_are_refused(order: Any, message: str) -> None:
    with pytest.raises(MegatronOrderError, match=message):
        MegatronOrder(order)


@pytest.mark.parametrize(
    ("fields", "others", "message"),
    [
        ({}, {"num_microbatches": 4}, "num_microbatches: the job has 4 micro-batches, and the order 6"),
        ({}, {"model": [torch.nn.Linear(1, 1)] * 2}, "model: has no config; give a MegatronModule"),
        ({"num_moe_experts": 8}, {}, "num_moe_experts: 8 is not run with an order of ours; use None"),
        ({"pipeline_dtype": None}, {}, "pipeline_dtype: is None; give the type of tensors between stages"),
    ],
)
def test_jobs_that_are_refused(fields: Any, others: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(JoinedError, match=message):
        trained(ORDERS["1F1B"], tmp_path, config(**fields), **others)
