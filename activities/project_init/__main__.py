"""Query a project's index: `python -m activities.project_init query OUT "how do I run the tests"`.

Exit codes: 0 for an answer, 1 for none, 2 for an error.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from activities.pages import visible
from activities.project_init.files import KNOWLEDGE_FILE
from activities.project_init.knowledge import query
from activities.project_init.records import ProjectError


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer one question and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m activities.project_init", description="Query a project's index.")
    parser.add_argument("command", choices=["query"], help="find the lines of a project that answer a question")
    parser.add_argument("out", type=Path, help="the output folder of a run")
    parser.add_argument("question", help='for example "how do I run the tests"')
    options = parser.parse_args(arguments)
    try:
        hits = query(options.out / KNOWLEDGE_FILE, options.question)
    except ProjectError as error:
        print(f"project_init: {error}", file=sys.stderr)
        return 2
    for number, hit in enumerate(hits, 1):
        print(f"{number}. {visible(hit.path, 300)}:{hit.start}-{hit.end}  {visible(hit.title)}  ({hit.origin})")
        print("".join(f"    {visible(line)}\n" for line in hit.snippet.split("\n")), end="")
    return 0 if hits else 1


if __name__ == "__main__":
    sys.exit(main())
