from pathlib import Path

import pytest
from cluster.small_clusters import GAVEL, needs_gavel
from told import told

from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.inputs.throughput_file import read_job_types


def test_types_in_the_order_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "types.csv").write_text("job_type,may_be_distributed\nB,1\nA,0\n")
    found = read_job_types(tmp_path / "types.csv")
    assert [*found.items()] == [("B", True), ("A", False)]


@needs_gavel
def test_gavels_types() -> None:
    types = read_job_types(GAVEL / "job_types.csv")
    assert len(types) == 26 and sum(types.values()) == 19


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job_type,may_be_distributed\nA,1\nA,0\n", "line 3: job_type A is in line 2 too; keep one row"),
        (
            "job_type,may_be_distributed\nA,yes\n",
            "line 2, column may_be_distributed: 'yes' is not a whole",
        ),
        ("job_type\nA\n", "line 1: lacks the column 'may_be_distributed'"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "types.csv"
    path.write_text(text)
    with told(ClusterError, f"{path}: {message}"):
        read_job_types(path)
