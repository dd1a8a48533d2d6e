"""The command ``python -m runtime.torch_csv``; see `runtime.torch_pipelining.csv`."""

import sys

from runtime.torch_pipelining.csv import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
