"""Entry point for torchrun, ``-m runtime.launch``; see `runtime.launching.launch`."""

import sys

from runtime.execution.run_options import RunOptions
from runtime.launching.launch import launch, main

__all__ = ["RunOptions", "launch", "main"]

if __name__ == "__main__":
    sys.exit(main())
