"""Texts to scan: public sets of attacks and harmless texts, and harmless texts that are on any machine.

The public sets are not part of the repository. They are looked for in the folder that the environment variable
`BATON_INJECTION_CORPORA` names, and by default beside the project, in `../shared/data/injection`: files of JSON lines
with the members `text`, `label` (1 for an attack) and `source`. A few rows of each are in `tests/data/injection`.
"""

import ast
import importlib.metadata
import json
import os
import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER_VARIABLE = "BATON_INJECTION_CORPORA"
SAMPLES = ROOT / "tests" / "data" / "injection" / "samples.jsonl"

HELD_OUT = ("asb_ignore", "notinject")
"""Sets that nobody looked at while the rules were written."""

MARKED = "asb_ignore"
"""The set whose attacks carry a mark: an order to drop earlier orders."""

CHUNK = 3_000
"""So many characters of a document make a text."""


@dataclass(frozen=True)
class Corpus:
    """Texts of one source and one kind.

    Attributes:
        name: The source.
        attacks: Whether they are attacks; otherwise they are harmless.
        texts: The texts.
        families: How many sub-sources, which the source itself names; texts of one are near-duplicates.
    """

    name: str
    attacks: bool
    texts: tuple[str, ...]
    families: int = 1


def folder() -> Path:
    """Return the folder in which the public sets are looked for."""
    return Path(os.environ.get(FOLDER_VARIABLE) or ROOT.parent / "shared" / "data" / "injection")


def describe_missing(path: Path) -> str:
    """Return the sentence that says what is not measured without the public sets; nothing if they are there."""
    if any(path.glob("*.jsonl")):
        return ""
    return f"no public sets in {str(path)!r}: only our own texts were scanned; {FOLDER_VARIABLE} names another folder"


def public_corpora(folder_path: Path) -> list[Corpus]:
    """Return the public sets of a folder, attacks and harmless texts of a file apart; none, if there are none."""
    corpora = []
    for path in sorted(folder_path.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for label in (1, 0):
            labelled = [row for row in rows if row["label"] == label]
            if labelled:
                texts = tuple(dict.fromkeys(row["text"] for row in labelled))
                corpora.append(Corpus(path.stem, bool(label), texts, len({row["source"] for row in labelled})))
    return corpora


def attacks(folder_path: Path) -> list[str]:
    """Return the attacks of the public sets of a folder; without them those of the samples in the repository."""
    sets = public_corpora(folder_path) or public_corpora(SAMPLES.parent)
    return [text for corpus in sets if corpus.attacks for text in corpus.texts]


def own_corpora() -> list[Corpus]:
    """Return harmless texts that are on any machine with this checkout: documents, docstrings, handoffs."""
    packages = sorted(importlib.metadata.distributions(), key=lambda package: package.metadata["Name"].lower())
    readmes = [piece for package in packages for piece in pieces(package.metadata.get_payload() or "")]  # type: ignore[attr-defined]
    documents = [
        piece for path in sorted(ROOT.glob("**/*.md")) if _is_own(path) for piece in pieces(path.read_text("utf-8"))
    ]
    sources = [piece for path in sorted(ROOT.glob("activities/**/*.py")) for piece in pieces(path.read_text("utf-8"))]
    return [
        Corpus("READMEs of installed packages", False, tuple(readmes), len(packages)),
        Corpus("this repository's documents", False, tuple(documents)),
        Corpus("source code of the shipped stages", False, tuple(sources)),
        Corpus("docstrings of the standard library", False, tuple(islice(_docstrings(), 2_000))),
        Corpus("ordinary handoffs", False, tuple(ordinary_handoffs(400))),
    ]


def pieces(document: str) -> Iterator[str]:
    """Yield a document in pieces of about `CHUNK` characters, cut between paragraphs."""
    piece = ""
    for paragraph in document.split("\n\n"):
        if piece and len(piece) + len(paragraph) > CHUNK:
            yield piece
            piece = ""
        piece += paragraph + "\n\n"
    if piece.strip():
        yield piece


def ordinary_handoffs(count: int) -> Iterator[str]:
    """Yield the JSON of messages as agents send them, made of sentences about work; always the same."""
    rng = random.Random(7)

    def sentence() -> str:
        return f"{rng.choice(_SUBJECTS)} {rng.choice(_VERBS)} {rng.choice(_OBJECTS)} ({rng.randrange(10_000)})."

    def digits(length: int) -> str:
        return f"{rng.getrandbits(4 * length):0{length}x}"

    for number in range(count):
        yield json.dumps(
            {
                "handoffId": f"{digits(8)}-{digits(4)}-4{digits(3)}-a{digits(3)}-{digits(12)}",
                "taskDescription": sentence(),
                "completedSubtasks": [{"subtaskId": f"s{n}", "description": sentence()} for n in range(number % 6)],
                "currentState": {"goal": sentence(), "decision_log": [sentence() for _ in range(6)]},
                "constraints": ["returnJSON:true", "maxResponseTokens:2000"],
                "conversationHistoryVerbatim": [{"role": "assistant", "content": sentence()} for _ in range(3)],
                "toolCallHistory": [{"tool": "pdf_extract", "inputHash": f"sha256:{digits(64)}"}],
                "traceparent": f"00-{digits(32)}-{digits(16)}-01",
            }
        )


_SUBJECTS = ["The extraction agent", "The reviewer", "The build", "The migration", "The customer", "The second stage"]
_VERBS = [
    "finished",
    "asked for",
    "rejected",
    "is waiting for",
    "wrote tests for",
    "ignored the warning about",
    "skips",
]
_OBJECTS = [
    "the limitation of liability in clause 4.2",
    "the new instructions page of the handbook",
    "the system prompt editor in the settings",
    "the previous schema version, as the rules of the registry ask",
    "a role for the audit store, so that users see only their own records",
    "the assistant's answer about renewal, which has no restrictions on notice",
]


def _is_own(path: Path) -> bool:
    """Return whether a document belongs to the project and not to its environment."""
    return not any(part.startswith(".") or part in ("build", "dist") for part in path.relative_to(ROOT).parts)


def _docstrings() -> Iterator[str]:
    """Yield the longer docstrings of Python's standard library."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                if len(text) > 200:
                    yield text
