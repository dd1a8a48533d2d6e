"""What torchrun starts, ``-m runtime.launch``; see `runtime.launching.launch`."""

import sys

from runtime.launching.launch import launch, main

__all__ = ["launch", "main"]

if __name__ == "__main__":
    sys.exit(main())
