"""Ask a project's index, or look at a project: `python -m activities.project_init --help`.

Exit codes: 0 for an answer, 1 where nothing answers, 2 for a question that cannot be asked.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from activities.project_init.detect import detect
from activities.project_init.files import survey
from activities.project_init.markdown import visible
from activities.project_init.pages.agents import KNOWLEDGE_FILE
from activities.project_init.records import Hit, ProjectError, TechStack
from activities.project_init.search import query

FOUND, NOTHING, MISUSE = 0, 1, 2
_MOST_ROWS = 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: The words after the program's name; None takes those of this process.
    """
    options = _parser().parse_args(arguments)
    try:
        if options.command == "query":
            return _query(options.out, options.question, options.limit, as_json=options.json)
        return _inspect(options.directory, as_json=options.json)
    except (ProjectError, ValueError) as error:
        print(f"project_init: {error}", file=sys.stderr)
        return MISUSE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m activities.project_init", description="Look at a project.")
    commands = parser.add_subparsers(dest="command", required=True)
    asking = commands.add_parser("query", help="find the lines of a project that answer a question")
    asking.add_argument("out", type=Path, help="the output folder of a run, or its knowledge.sqlite3")
    asking.add_argument("question", help='for example "how do I run the tests"')
    asking.add_argument("--limit", type=int, default=5, help="most answers to print (1 to 100; 5)")
    asking.add_argument("--json", action="store_true", help="print JSON, one list of hits")
    looking = commands.add_parser("inspect", help="print what can be detected in a directory, and write nothing")
    looking.add_argument("directory", type=Path, help="the project's folder")
    looking.add_argument("--json", action="store_true", help="print JSON, the whole result")
    return parser


def _query(out: Path, question: str, limit: int, *, as_json: bool) -> int:
    hits = query(out / KNOWLEDGE_FILE if out.is_dir() else out, question, limit)
    if as_json:
        print(json.dumps([hit.model_dump() for hit in hits], indent=2))
    elif not hits:
        print("Nothing in the index answers that. Try other words: names, headings, words of the code.")
    else:
        print("\n\n".join(_shown_hit(number, hit) for number, hit in enumerate(hits, 1)))
    return FOUND if hits else NOTHING


def _shown_hit(number: int, hit: Hit) -> str:
    where = f"{visible(hit.path, 300)}:{hit.start}-{hit.end}"
    heading = f"{number}. {where}  {visible(hit.title)}  ({hit.origin}, score {hit.score:g})"
    lines = [f"    {_printable(line)}" for line in hit.snippet.split("\n")]
    return "\n".join([heading, *lines])


def _printable(line: str) -> str:
    """Return a line as it can safely go to a terminal, its indentation kept."""
    line = line.expandtabs(4)
    return " " * (len(line) - len(line.lstrip())) + visible(line)


def _inspect(directory: Path, *, as_json: bool) -> int:
    stack = detect(survey(directory))
    if as_json:
        print(stack.model_dump_json(indent=2))
        return FOUND
    sections = {
        "What it is": stack.summary,
        "Decisions": stack.decisions,
        "Constraints": stack.constraints,
        "Open questions": stack.open_questions,
        "Technology": _technologies(stack),
        "Commands": [f"{each.purpose}: {each.line} [{each.origin}, {each.evidence}]" for each in stack.commands],
        "Entry points": [
            f"{each.kind}: {each.name} -> {each.target}  [{each.evidence}]" for each in stack.entry_points
        ],
    }
    for title, lines in sections.items():
        if lines:
            print(f"{title}:")
            print("\n".join(f"  {visible(line, 300)}" for line in lines[:_MOST_ROWS]))
            if len(lines) > _MOST_ROWS:
                print(f"  … and {len(lines) - _MOST_ROWS} more")
    return FOUND


def _technologies(stack: TechStack) -> list[str]:
    return [
        f"{each.category}: {each.name} {each.version}".rstrip() + f" [{each.evidence}]" for each in stack.technologies
    ]


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FOUND
    sys.exit(code)
