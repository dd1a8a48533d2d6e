"""Torchrun, which also writes down which of its devices a signal ended.

``python -m runtime.launching.agent FILE ...``, the rest being arguments of torchrun. A launch starts it, and
reads the file. It knows neither scripts nor schedules.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.run import main

from placements.forms.texts import write_json

_CLOSE_S = 30
"""What torchrun gives the other devices to end by SIGTERM when one fails, before it kills them."""


def killed(failures: Mapping[int, ProcessFailure]) -> dict[int, str]:
    """Return the devices that a signal ended, which was not torchrun's own, and its name.

    Args:
        failures: Failures by device.
    """
    first_s = min(failure.timestamp for failure in failures.values())
    return {
        device: failure.signal_name()
        for device, failure in sorted(failures.items())
        if failure.exitcode < 0 and failure.exitcode != -signal.SIGTERM
        if failure.timestamp < first_s + _CLOSE_S
    }


if __name__ == "__main__":
    try:
        main(sys.argv[2:])
    except ChildFailedError as error:
        write_json(sys.argv[1], killed(error.failures))
        raise
