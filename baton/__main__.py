"""`python -m baton` is the command `baton`."""

import sys

try:
    from baton.cli import main
except ModuleNotFoundError as error:
    if error.name not in ("typer", "rich"):
        raise
    sys.exit(f"baton: the command needs {error.name}: pip install 'temporal-baton[cli]'")

if __name__ == "__main__":
    main()
