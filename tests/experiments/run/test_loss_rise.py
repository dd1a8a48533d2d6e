"""A training that diverges is said once, in the iteration where it shows."""

import pytest

from experiments.run.measured_run import warn_of_rise


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        (
            [5.96, 6.4, 90.8, 70.0, 120.0],
            ["the loss rose from 5.96 to 90.8 in iteration 2; lower runtime.learning_rate"],
        ),
        ([5.96, 5.8, 40.0], []),
        ([0.0, 0.0], []),
    ],
)
def test_one_line_where_the_loss_is_ten_times_the_first(
    losses: list[float], expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(len(losses)):
        warn_of_rise(losses[: number + 1])
    assert caplog.messages == expected
