"""Look at a project, or ask its index: `python -m activities.project_init --help`.

Exit codes: 0 for an answer, 1 if nothing answers, 2 for a question that cannot be asked.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from activities.pages import visible
from activities.project_init.detect import detect
from activities.project_init.files import survey
from activities.project_init.knowledge import query
from activities.project_init.pages import KNOWLEDGE_FILE
from activities.project_init.records import ProjectError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m activities.project_init", description="Look at a project.")
    commands = parser.add_subparsers(dest="command", required=True)
    asking = commands.add_parser("query", help="find the lines of a project that answer a question")
    asking.add_argument("out", type=Path, help="the output folder of a run, or its knowledge.sqlite3")
    asking.add_argument("question", help='for example "how do I run the tests"')
    asking.add_argument("--limit", type=int, default=5, help="most answers to print (1 to 100; 5)")
    asking.add_argument("--json", action="store_true", help="print JSON, one list of hits")
    looking = commands.add_parser("inspect", help="print what can be detected in a folder, as JSON; write nothing")
    looking.add_argument("directory", type=Path, help="the project's folder")
    options = parser.parse_args(arguments)
    try:
        if options.command == "inspect":
            print(detect(survey(options.directory)).model_dump_json(indent=2))
            return 0
        return _query(options.out, options.question, options.limit, as_json=options.json)
    except (ProjectError, ValueError) as error:
        print(f"project_init: {error}", file=sys.stderr)
        return 2


def _query(out: Path, question: str, limit: int, *, as_json: bool) -> int:
    hits = query(out / KNOWLEDGE_FILE if out.is_dir() else out, question, limit)
    if as_json:
        print(json.dumps([hit.model_dump() for hit in hits], indent=2))
    elif not hits:
        print("Nothing in the index answers that. Try other words: names, headings, words of the code.")
    for number, hit in enumerate(hits if not as_json else (), 1):
        where = f"{visible(hit.path, 300)}:{hit.start}-{hit.end}"
        print(f"{number}. {where}  {visible(hit.title)}  ({hit.origin}, score {hit.score:g})")
        for line in hit.snippet.expandtabs(4).split("\n"):
            print("    " + " " * (len(line) - len(line.lstrip())) + visible(line))
    return 0 if hits else 1


if __name__ == "__main__":
    sys.exit(main())
