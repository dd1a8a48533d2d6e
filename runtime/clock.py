"""The command ``python -m runtime.clock``; see `runtime.clocks.command`."""

import sys

from runtime.clocks.command import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
