"""The peers' virtual environment, separate from the project's and created by the first measurement that needs it.

It is in `.baton/peers`, and is recreated when the list of peers or the interpreter changes.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
FOLDER = Path(__file__).parents[2] / ".baton" / "peers"


def peers_python(folder: Path = FOLDER, requirements: Path = REQUIREMENTS) -> Path:
    """Return the interpreter of the peers' environment, creating or updating it if needed.

    Args:
        folder: The folder of the environment.
        requirements: The requirements file.

    Raises:
        RuntimeError: It cannot be created; the message has the installer's output.
    """
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    python, marker = scripts / ("python.exe" if os.name == "nt" else "python"), folder / ".made-of"
    fingerprint = hashlib.sha256(sys.version.encode() + requirements.read_bytes()).hexdigest()
    if python.exists() and marker.exists() and marker.read_text(encoding="utf-8") == fingerprint:
        return python
    print(f"installs the peers into {folder} (once)", file=sys.stderr, flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    uv = Path(sys.executable).with_name("uv.exe" if os.name == "nt" else "uv")
    if uv.exists():  # without its cache, which is in a home that may not be writable
        _run(uv, "venv", "--quiet", "--no-cache", "--clear", "--python", sys.executable, folder)
        _run(uv, "pip", "install", "--quiet", "--no-cache", "--python", python, "-r", requirements)
    else:
        _run(sys.executable, "-m", "venv", "--clear", folder)
        _run(python, "-m", "pip", "install", "--quiet", "-r", requirements)
    marker.write_text(fingerprint, encoding="utf-8")
    return python


def _run(*command: str | Path) -> None:
    """Run a command.

    Raises:
        RuntimeError: It failed.
    """
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, encoding="utf-8", check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} could not make the peers' environment: {result.stderr.strip()}")
