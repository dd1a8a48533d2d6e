"""The memory of a process is in MiB, as the kernel counts it in pages too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.profiling.process_memory import peak_rss_mib, rss_mib

STATM = Path("/proc/self/statm")


@pytest.mark.skipif(not STATM.exists(), reason="needs Linux")
def test_memory_is_in_mib() -> None:
    pages = int(STATM.read_text().split()[1])
    assert rss_mib() == pytest.approx(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, rel=0.02)
    assert rss_mib() <= peak_rss_mib() * 1.001


@pytest.mark.skipif(not STATM.exists(), reason="needs Linux")
def test_what_is_taken_is_seen_in_the_peak_after_it_is_given_back() -> None:
    before_mib = rss_mib()
    taken = bytearray(os.urandom(64)) * 2**20  # 64 MiB
    with_it_mib = rss_mib()
    del taken
    assert with_it_mib - before_mib == pytest.approx(64, abs=8)
    assert peak_rss_mib() >= with_it_mib * 0.999
