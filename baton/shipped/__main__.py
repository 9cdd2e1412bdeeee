"""Run the worker of the shipped pipelines, from the wheel or an editable install."""

import runpy
import sys
from pathlib import Path

INSTALLED = Path(__file__).parent

if __name__ == "__main__":
    top = INSTALLED if (INSTALLED / "worker.py").exists() else INSTALLED.parents[1]
    sys.path.insert(0, str(top))
    sys.argv[0] = str(top / "worker.py")
    runpy.run_path(sys.argv[0], run_name="__main__")
