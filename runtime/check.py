"""The command ``python -m runtime.check``; see `runtime.verify.saved_programs`."""

import sys

from runtime.verify.saved_programs import check_file, main

__all__ = ["check_file", "main"]

if __name__ == "__main__":
    sys.exit(main())
