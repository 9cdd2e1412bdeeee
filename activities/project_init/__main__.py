"""Query a project's index: `python -m activities.project_init query OUT "how do I run the tests"`.

Exit codes: 0 for an answer, 1 for none, 2 for an error.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from activities.pages import visible
from activities.project_init.knowledge import query
from activities.project_init.pages import KNOWLEDGE_FILE
from activities.project_init.records import ProjectError


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer one question and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m activities.project_init", description="Query a project's index.")
    parser.add_argument("command", choices=["query"], help="find the lines of a project that answer a question")
    parser.add_argument("out", type=Path, help="the output folder of a run")
    parser.add_argument("question", help='for example "how do I run the tests"')
    parser.add_argument("--limit", type=int, default=5, help="maximum number of answers (1 to 100; default 5)")
    parser.add_argument("--json", action="store_true", help="print the hits as JSON")
    options = parser.parse_args(arguments)
    try:
        hits = query(options.out / KNOWLEDGE_FILE, options.question, options.limit)
    except (ProjectError, ValueError) as error:
        print(f"project_init: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([hit.model_dump() for hit in hits], indent=2))
        return 0 if hits else 1
    if not hits:
        print("No result. Try other words: names, headings, words in the code.")
    for number, hit in enumerate(hits, 1):
        place = f"{visible(hit.path, 300)}:{hit.start}-{hit.end}"
        print(f"{number}. {place}  {visible(hit.title)}  ({hit.origin}, score {hit.score:g})")
        for line in hit.snippet.expandtabs(4).split("\n"):
            print("    " + " " * (len(line) - len(line.lstrip())) + visible(line))
    return 0 if hits else 1


if __name__ == "__main__":
    sys.exit(main())
