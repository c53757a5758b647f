"""Makes `benchmarks` importable, which is a folder of the repository and no installed package. Imported first."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))
