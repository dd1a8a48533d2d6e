"""Plans as files: there and back, and files that are damaged in every way."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from one_line_errors import raises_line

from placements.cluster import read_cluster
from placements.forms.texts import write_json
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import Paradigm, TreeOptions
from placements.planners.hybrid.plan import Plan, PlanError
from placements.planners.hybrid.plan_file import plan_from_dict, plan_to_dict, read_plan_file
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts

ALL = TreeOptions(tuple(Paradigm), ("none", "selective", "full"), expert_parallel=(1, 2, 4))
WRONG = (None, True, -1, 1.5, "x", [], {"a": 1}, 10**16, float("nan"))


@cache
def some_plan(model: str = "mixtral_8x7b", num_stages: int = 2) -> Plan:
    options = PlanOptions(trees=ALL, num_stages=(num_stages,), num_micro_batches=(4,), num_plans=1)
    shape = read_model(model) if model.startswith("swin") else read_model(model, num_layers=4)
    return search_plans(ShapeCosts(shape), read_cluster("a100_8"), 32, options).plans[0].plan


@pytest.mark.parametrize("model", ["t5_large", "swin_huge_32", "mixtral_8x7b"])
def test_there_and_back(model: str, tmp_path: Path) -> None:
    plan = some_plan(model)
    path = write_json(tmp_path / "plan.json", plan_to_dict(plan))
    assert read_plan_file(path) == plan
    assert plan_to_dict(read_plan_file(path)) == plan_to_dict(plan)


def test_clusters_of_several_kinds_and_branches(tmp_path: Path) -> None:
    for model, cluster in (("gpt3_125m", "a100_2+v100_16gb_2"), ("flava", "h100_4")):
        whole = read_model(model, num_layers=2)
        alone = replace(whole, branches=())
        answer = search_plans(ShapeCosts(alone), read_cluster(cluster), 4, PlanOptions(num_plans=1))
        plan = replace(answer.plans[0].plan, model=whole)
        assert read_plan_file(write_json(tmp_path / "plan.json", plan_to_dict(plan))) == plan


def places(data: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where each value stands."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inside:
        yield (*before, key)
        yield from places(value, (*before, key))


def damaged(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the data with each value in turn left out, made wrong, or given a field too many."""
    for *way, last in places(data):
        for wrong in (*WRONG, "leave out", "add"):
            wrong_data = copy.deepcopy(data)
            place: Any = wrong_data
            for key in way:
                place = place[key]
            if wrong == "leave out":
                del place[last]
            elif wrong == "add" and isinstance(place[last], dict):
                place[last]["extra"] = 1
            else:
                place[last] = wrong
            yield wrong_data


def test_damaged_files_are_refused_in_one_line() -> None:
    """Or they are other plans: with another batch, width or bandwidth."""
    data = plan_to_dict(some_plan())
    refused = 0
    for wrong_data in damaged(json.loads(json.dumps(data))):
        try:
            plan_to_dict(plan_from_dict(wrong_data))
        except PlanError as error:
            refused += 1
            where, _, rest = str(error).partition(" ")
            assert "\n" not in str(error)
            assert ";" in rest, error
            assert any(where.startswith(name) for name in (*data, "plan")), error
    assert refused > 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read (No such file or directory); give a plan.json"),
        ("{", "is not JSON"),
        ("[]", "plan: [] is not a mapping of schema_version, model, cluster"),
        ("{}", "plan: lacks the field 'schema_version'; add it"),
        ('{"schema_version": 1, "schema_version": 1}', "schema_version is given twice"),
    ],
)
def test_files_that_are_no_plan(text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with raises_line(PlanError, f"{path}: ", has=message):
        read_plan_file(path)


def test_too_many_layers_are_refused_before_they_are_made() -> None:
    data = plan_to_dict(some_plan())
    data["stages"][0]["layers"][0]["count"] = 10**12
    with pytest.raises(PlanError, match=r"stages\[0\].layers\[0\].count: 1000000000000 is not a whole"):
        plan_from_dict(data)
