"""Where the tests find the project, its examples and, beside a checkout, the shared data."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
CNN = ROOT / "examples" / "cnn.py"
SHARED_DATA = ROOT.parent / "shared" / "data"
