"""The peers' own environment: made by the first measurement that needs it, never mixed with the project's.

It is in `.baton/peers`, and is made anew when the list of peers or the interpreter changes.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
FOLDER = Path(__file__).parents[2] / ".baton" / "peers"


def peers_python(folder: Path = FOLDER, requirements: Path = REQUIREMENTS) -> Path:
    """Return the interpreter of the peers' environment, which is made if it is not there as it should be.

    Args:
        folder: Where it is, or will be.
        requirements: What is installed into it.

    Raises:
        RuntimeError: It cannot be made; the message has the installer's words.
    """
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    python, mark = scripts / ("python.exe" if os.name == "nt" else "python"), folder / ".made-of"
    made_of = hashlib.sha256(sys.version.encode() + requirements.read_bytes()).hexdigest()
    if python.exists() and mark.exists() and mark.read_text(encoding="utf-8") == made_of:
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
    mark.write_text(made_of, encoding="utf-8")
    return python


def _run(*command: str | Path) -> None:
    """Run a command.

    Raises:
        RuntimeError: It failed.
    """
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} could not make the peers' environment: {done.stderr.strip()}")
