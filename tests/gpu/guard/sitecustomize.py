"""Refuses whatever would change a GPU, in every process that finds this folder on its path.

It answers as the driver does to a process without the right, and writes down what was asked for. So tests
run the code for clocks on a real GPU and leave its clocks alone, whoever runs them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOG = "SCHEDSEARCH_REFUSED"
"""The environment variable with the file that refusals are written to."""


def refuse(replace: Callable[[Any, str, Any], None]) -> None:
    """Replace every function of pynvml that changes a GPU."""
    try:
        import pynvml
    except ImportError:
        return
    for name in dir(pynvml):
        if name.startswith(("nvmlDeviceSet", "nvmlDeviceReset", "nvmlUnitSet", "nvmlGpuInstance")):
            replace(pynvml, name, _refusal(pynvml, name))


def _refusal(pynvml: Any, name: str) -> Callable[..., None]:
    def refused(*arguments: object) -> None:
        with Path(os.environ[LOG]).open("a") as file:
            file.write(f"{name}\n")
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

    return refused


if __name__ == "sitecustomize":
    refuse(setattr)
