"""Stage verify-ready: check the results of the earlier stages against the current files.

Nothing is executed, so commands are not tested; external links are not checked.
"""

import hashlib
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from activities.citations import Citation, find_unproved
from activities.project_init.files import PAGES, SourceTree, survey
from activities.project_init.knowledge import open_index, query
from activities.project_init.markdown import broken_links
from activities.project_init.records import (
    Check,
    Documents,
    Evidence,
    KnowledgeIndex,
    ProjectError,
    TechStack,
    Verification,
)
from activities.source_files import decode_text

_MAX_NAMED = 5
"""The maximum number of faults in a message."""


def verify(tree: SourceTree, stack: TechStack, documents: Documents, index: KnowledgeIndex, out: Path) -> Verification:
    """Check the findings and files of the earlier stages."""
    current = survey(tree.root, tree.limits)
    checks = [_check_source(tree, current), _check_evidence(stack, current), *_check_documents(documents, out)]
    checks += _check_index(current, documents, index, out)
    return Verification(checks=tuple(checks), not_examined=tuple(_list_not_examined(stack)))


def _list_not_examined(stack: TechStack) -> Iterator[str]:
    """Yield what the documents say nothing about, because no stage looks at it."""
    if stack.commands:
        yield f"whether the {len(stack.commands)} commands work: none was run"
    names = [language.name for language in stack.languages if language.kind == "programming"]
    if unread := [name for name in names if name != "Python"]:
        yield f"syntax of {', '.join(unread[:_MAX_NAMED])}{', …' if len(unread) > _MAX_NAMED else ''}"


def _make_check(name: str, faults: list[str], success: str) -> Check:
    omitted = f"; and {len(faults) - _MAX_NAMED} more" if len(faults) > _MAX_NAMED else ""
    return Check(name=name, ok=not faults, message="; ".join(faults[:_MAX_NAMED]) + omitted if faults else success)


def _check_source(detected: SourceTree, current: SourceTree) -> Check:
    faults = [f"{path!r} is gone" for path in detected.by_path if path not in current.by_path]
    faults += [f"{path!r} is new" for path in current.by_path if path not in detected.by_path]
    both = detected.by_path.keys() & current.by_path.keys()
    faults += [f"{path!r} has changed" for path in sorted(both) if detected.by_path[path] != current.by_path[path]]
    return _make_check("source is unchanged", faults, f"{len(both)} files have the hashes they had at detection")


def _check_evidence(stack: TechStack, current: SourceTree) -> Check:
    cited = [(command.evidence, shlex.split(command.line)[-1]) for command in stack.commands]
    dependencies = [dependency for manifest in stack.manifests for dependency in manifest.dependencies]
    cited += [(dependency.evidence, dependency.name) for dependency in dependencies]
    cited += [(Evidence(path=manifest.path), "") for manifest in stack.manifests]
    lines = {path: (current.text(path) or "").split("\n") for path in {evidence.path for evidence, _ in cited}}
    citations = [
        Citation(str(evidence), lines[evidence.path], evidence.line, word) for evidence, word in cited if evidence.line
    ]
    faults = [f"{str(evidence)!r} does not exist" for evidence, _ in cited if evidence.path not in current.by_path]
    faults += find_unproved(citations)
    return _make_check("evidence proves", faults, f"{len(citations)} lines have what they are cited for")


def _check_documents(documents: Documents, out: Path) -> Iterator[Check]:
    for file in documents.files:
        path = out / file.path
        try:
            digest_now = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            yield _make_check(f"{file.path} is as written", [f"it cannot be read ({error.strerror})"], "")
            continue
        yield _check_digest(f"{file.path} is as written", digest_now, file.sha256)
        yield _make_check(f"links of {file.path} resolve", broken_links(path), "every relative link resolves")


def _check_digest(name: str, now: str, then: str) -> Check:
    faults = [f"its SHA-256 is {now[:12]}…, written was {then[:12]}…"] if now != then else []
    return _make_check(name, faults, f"SHA-256 {now[:12]}…")


def _check_index(current: SourceTree, documents: Documents, index: KnowledgeIndex, out: Path) -> Iterator[Check]:
    path = out / index.path
    try:
        yield _check_digest("index is as built", hashlib.sha256(path.read_bytes()).hexdigest(), index.sha256)
        with closing(open_index(path)) as connection:
            yield _check_chunks(connection, current, index, out)
        questions = [file.path.partition(".")[0] for file in documents.files]
        unanswered = [f"nothing answers {question!r}" for question in questions if not query(path, question, 1)]
        yield _make_check("index answers", unanswered, f"{len(questions)} questions were answered")
    except OSError as error:
        yield _make_check("index is as built", [f"it cannot be read ({error.strerror})"], "")
    except (ProjectError, sqlite3.Error) as error:
        yield _make_check("index opens", [str(error)], "")


def _check_chunks(connection: sqlite3.Connection, current: SourceTree, index: KnowledgeIndex, out: Path) -> Check:
    texts = {file: decode_text((out / file).read_bytes()).split("\n") for file in PAGES if (out / file).is_file()}
    faults: list[str] = []
    count, last, lines = 0, ("", ""), list[str]()
    rows = connection.execute("SELECT origin, path, start, end, text FROM chunks ORDER BY rowid")
    for count, (origin, path, start, end, content) in enumerate(rows, 1):  # noqa: B007 - the count is used
        if (origin, path) != last:
            last = origin, path
            lines = texts.get(path, []) if origin == "docs" else (current.text(path) or "").split("\n")
        if "\n".join(lines[start - 1 : end]) != content:
            faults.append(f"lines {start}-{end} of {path!r} differ from the index")
    if count != index.chunks:
        faults.append(f"it holds {count} chunks, built were {index.chunks}")
    return _make_check("index matches the files", faults, f"{count} chunks are in the files, word for word")
