"""CPU time of every test: measured in a whole run, and read to leave out slow tests.

CPU time does not depend on how busy a machine is. That of child processes counts once they have ended,
that of a fixture which several tests share counts for each of them.
"""

from __future__ import annotations

import csv
import importlib
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from forking import IMPORTED, ForkServer

RECORD = Path(__file__).with_name("cpu_times.csv")
"""Seconds of the tests that take `RECORDED_S` or more. What is not in it counts as fast."""

RECORDED_S = 0.5
SLOW_S = 0.7
"""CPU seconds from which a test is left out of the fast ones, unless it is marked as ``always``."""


def read() -> dict[str, float]:
    """Return the seconds of the recorded tests, by node ID."""
    with RECORD.open(newline="", encoding="utf-8") as file:
        return {row["test"]: float(row["cpu_s"]) for row in csv.DictReader(file)}


def write(measured: dict[str, float]) -> list[str]:
    """Record the times of a whole run, and return a line for each test that became slow.

    A figure within a factor of 1.5 of the recorded one is left as it is, so that the file changes little.
    """
    before = read()
    rows = {}
    for test, seconds in measured.items():
        old = before.get(test)
        rows[test] = old if old and old / 1.5 < seconds < old * 1.5 else round(seconds, 1)
    with RECORD.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["cpu_s", "test"])
        writer.writerows((rows[test], test) for test in sorted(rows) if rows[test] >= RECORDED_S)
    return [
        f"{rows[test]:6.1f} s  {test}"
        for test in sorted(rows)
        if rows[test] >= SLOW_S and before.get(test, 0) < SLOW_S
    ]


def _cpu_s() -> float:
    return sum(os.times()[:4]) + ForkServer.cpu_s


class CpuTimes:
    """The pytest plugin: measures each test in the process that runs it, and collects from all processes."""

    def __init__(self, config: pytest.Config) -> None:
        """Start with everything loaded if times are written: no test pays for the imports of others."""
        if config.option.write_cpu_times:
            for name in IMPORTED:
                importlib.import_module(name)
        self._writes = config.option.write_cpu_times and not hasattr(config, "workerinput")
        self._measured: dict[str, float] = {}
        self._slower: list[str] = []
        self._shared: dict[object, float] = {}
        self._in_shared_s = 0.0
        self._depth = 0
        self._start = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Measure a fixture that several tests share, with the fixtures that it asks for."""
        if fixturedef.scope == "function":
            return (yield)
        start, self._depth = _cpu_s(), self._depth + 1
        try:
            return (yield)
        finally:
            self._depth -= 1
            self._shared[fixturedef] = _cpu_s() - start
            self._in_shared_s += 0 if self._depth else self._shared[fixturedef]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Begin a test."""
        self._start, self._in_shared_s = _cpu_s(), 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Give a test's CPU time to its last report; teardown of shared fixtures counts for no test."""
        fixtures = getattr(item, "_fixtureinfo", None)
        asked = fixtures.name2fixturedefs.values() if fixtures else ()
        shared = max((self._shared.get(fixture, 0) for several in asked for fixture in several), default=0)
        item.user_properties.append(("cpu_s", _cpu_s() - self._start - self._in_shared_s + shared))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the measured times."""
        if report.when == "teardown":
            self._measured[report.nodeid] = dict(report.user_properties)["cpu_s"]

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Record a whole run, not one that was interrupted."""
        if self._writes and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self._slower = write(self._measured)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the tests that became slow; none fails for it, as machines differ."""
        if self._slower:
            terminalreporter.section(f"not in `make test` any more: {SLOW_S:g} s of CPU time or more")
            terminalreporter.write_line("\n".join(self._slower))
