"""Wrong calls in a notebook: one line that names the argument and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from one_line_errors import raises_line

import schedsearch
from placements.gpus import A100_SXM_80GB
from placements.hardware import modelled_profile

V_SHAPE = schedsearch.v_shape(2)
SCHEDULE = schedsearch.one_f_one_b(V_SHAPE, 2)
STAGES = schedsearch.stages_of(2, forward_ms=1, backward_ms=2)
FRAME = pd.DataFrame({"forward_ms": [1, 2], "backward_ms": [2, 4]})

in_ms = partial(schedsearch.v_shape, 2, backward_ms=2)

WRONG: list[tuple[Callable[..., Any], str]] = [
    (partial(schedsearch.search, STAGES, 4), "placement: a StageChain is not a placement; give one"),
    (partial(schedsearch.search, V_SHAPE, "4"), "search.num_micro_batches: '4' is not a whole number"),
    (
        partial(schedsearch.search, V_SHAPE, 4, objectives="period"),
        "search.objectives: 'period' is not a list; write ['period']",
    ),
    (partial(schedsearch.compare, "my.yaml", ["gpipe"]), "stages: a str is not a chain of stages; give one"),
    (partial(schedsearch.frontier, SCHEDULE, "profile.csv"), "profile: a str is not a profile; give one of"),
    (
        partial(schedsearch.frontier, V_SHAPE, modelled_profile(V_SHAPE, A100_SXM_80GB)),
        "schedule: a Placement is not a schedule; give the schedule of",
    ),
    (partial(schedsearch.stages_of, forward_ms=1, backward_ms=2), "num_stages: has no value, and no column"),
    (partial(in_ms, forward_ms="10"), "stages[0].forward_ms: '10' is not a number above 0; give it in ms"),
    (
        partial(in_ms, forward_ms=1, memory_mib="6 apples"),
        "memory_mib: '6 apples' is not a number of 0 or more",
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_call_is_one_line(call: Callable[..., Any], message: str) -> None:
    with raises_line(ValueError, message):
        call()


def test_numbers_of_numpy_and_pandas_are_numbers() -> None:
    expected = schedsearch.stages_of(forward_ms=[1, 2], backward_ms=[2, 4], memory_mib=[8, 8])
    assert schedsearch.stages_of(**FRAME, memory_mib=np.array([8, 8])) == expected
    assert schedsearch.stages_of(np.int64(2), **FRAME, memory_mib=np.float32(8)) == expected
