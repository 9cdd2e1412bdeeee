"""Stage verify-ready: proves, one claim after the other, that the project is initialized (S1 L78-81).

1. the source is what it was when it was surveyed; 2. every file cited as evidence has the line cited;
3. the documents are what was written; 4. their links resolve; 5. the commands they name exist;
6. the index is what was built; 7. what it holds stands in the files; 8. it answers.

Not checked: whether the commands succeed (nothing is executed) and whether links to other hosts resolve.
"""

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from activities.project_init.chunks import digest
from activities.project_init.files import SourceTree, as_text, survey
from activities.project_init.links import LinkChecker, commands_of, links_of, parse
from activities.project_init.listing import Progress
from activities.project_init.records import (
    Check,
    Documents,
    Evidence,
    KnowledgeIndex,
    ProjectError,
    Severity,
    TechStack,
    Verification,
)
from activities.project_init.resolve import CommandResolver
from activities.project_init.search import open_index, query

_NAMED = 5
"""Faults that a message names; it says how many more there are."""


def verify(
    tree: SourceTree,
    stack: TechStack,
    documents: Documents,
    index: KnowledgeIndex,
    out: Path,
    progress: Progress | None = None,
) -> Verification:
    """Check everything that the earlier stages claim, against the files as they are now.

    Args:
        tree: The listing made before the first stage; the folder is surveyed again and compared with it.
        stack: What stage detect-tech-stack found.
        documents: What stage generate-docs wrote.
        index: What stage build-knowledge built.
        out: The output folder.
        progress: Called regularly; raising from it stops the work.

    Returns:
        Every check with its outcome, failed ones included: a false claim is a result, not an exception.

    Raises:
        ProjectError: The project's folder itself is gone or cannot be read.
    """
    report = progress or (lambda _: None)
    now = survey(tree.root, limits=tree.limits, progress=report)
    checks = [_source_is_unchanged(tree, now), _evidence_exists(stack, now)]
    place = out.resolve()
    report("verifying documents")
    checks.extend(_documents_are_as_written(documents, place))
    checks.extend(_links_resolve(documents, place))
    checks.extend(_commands_exist(documents, place, CommandResolver(now, report)))
    report("verifying the index")
    checks.extend(_index_holds(now, documents, index, place, report))
    return Verification(checks=tuple(checks))


def _check(name: str, faults: list[str], proved: str, severity: Severity = "error") -> Check:
    if not faults:
        return Check(name=name, ok=True, severity=severity, message=proved)
    more = f"; and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
    return Check(name=name, ok=False, severity=severity, message="; ".join(faults[:_NAMED]) + more)


def _source_is_unchanged(before: SourceTree, now: SourceTree) -> Check:
    faults = [f"{path!r} is gone" for path in before.by_path if path not in now.by_path]
    faults += [f"{path!r} is new" for path in now.by_path if path not in before.by_path]
    both = [path for path in before.by_path if path in now.by_path]
    faults += [f"{path!r} has changed" for path in both if before.by_path[path] != now.by_path[path]]
    unread = sum(1 for file in now.listing.files if file.kind == "unread")
    by_size = f"; {unread} of them compared by size alone" if unread else ""
    return _check("source is unchanged", faults, f"{len(both)} files have the hashes they had at detection{by_size}")


def _evidence_exists(stack: TechStack, now: SourceTree) -> Check:
    cited = list(_evidence_of(stack))
    faults = []
    for each in cited:
        file = now.by_path.get(each.path)
        if file is None:
            faults.append(f"{each.path!r} is cited, but is not there")
        elif each.line is not None and file.kind == "text" and each.line > max(file.lines, 1):
            faults.append(f"{str(each)!r} is cited, but the file has {file.lines} lines")
    return _check("evidence exists", faults, f"{len(cited)} findings cite files and lines that are there")


def _evidence_of(stack: TechStack) -> Iterator[Evidence]:
    yield from (each.evidence for each in stack.technologies)
    yield from (each.evidence for each in stack.commands)
    yield from (each.evidence for each in stack.entry_points)
    yield from (each.evidence for each in stack.licenses)
    yield from (each.evidence for each in stack.ci)
    for manifest in stack.manifests:
        yield Evidence(path=manifest.path)
        yield from (each.evidence for each in manifest.dependencies)


def _documents_are_as_written(documents: Documents, out: Path) -> Iterator[Check]:
    for file in documents.files:
        name = f"{file.path} is as written"
        try:
            content = (out / file.path).read_bytes()
        except OSError as error:
            yield _check(name, [f"it cannot be read ({error.strerror})"], "")
            continue
        found = hashlib.sha256(content).hexdigest()
        faults = [f"its SHA-256 is {found[:12]}…, written was {file.sha256[:12]}…"] if found != file.sha256 else []
        yield _check(name, faults, f"{len(content)} bytes with SHA-256 {found[:12]}…")


def _links_resolve(documents: Documents, out: Path) -> Iterator[Check]:
    checker = LinkChecker()
    for file in documents.files:
        text = _read(out / file.path)
        links = links_of(parse(text))
        faults = [
            f"line {link.line}: {fault}" for link in links if (fault := checker.fault(out / file.path, link.target))
        ]
        yield _check(f"links of {file.path} resolve", faults, f"{len(links)} links lead to what is there")


def _commands_exist(documents: Documents, out: Path, resolver: CommandResolver) -> Iterator[Check]:
    missing: dict[str, None] = {}
    for file in documents.files:
        commands = list(dict.fromkeys(commands_of(parse(_read(out / file.path)))))
        faults = []
        for line in commands:
            found = resolver.resolve(line)
            if found.fault:
                faults.append(f"{line!r}: {found.fault}")
            missing |= dict.fromkeys(found.missing)
        if commands:
            yield _check(f"commands of {file.path} exist", faults, f"{len(commands)} commands call what is declared")
    faults = [f"{program!r} is not installed here" for program in missing]
    yield _check("programs are installed", faults, "every program that the commands need is installed", "warning")


def _read(place: Path) -> str:
    try:
        return as_text(place.read_bytes())
    except OSError:
        return ""


def _index_holds(
    now: SourceTree, documents: Documents, index: KnowledgeIndex, out: Path, report: Progress
) -> Iterator[Check]:
    place = out / index.path
    try:
        found = hashlib.sha256(place.read_bytes()).hexdigest()
    except OSError as error:
        yield _check("index is as built", [f"it cannot be read ({error.strerror})"], "")
        return
    faults = [f"its SHA-256 is {found[:12]}…, built was {index.sha256[:12]}…"] if found != index.sha256 else []
    yield _check("index is as built", faults, f"SHA-256 {found[:12]}…")
    try:
        with closing(open_index(place)) as connection:
            yield _chunks_stand_in_files(connection, now, index, out, report)
            yield _documents_are_indexed(connection, documents)
        yield _index_answers(place, documents)
    except (ProjectError, sqlite3.Error) as error:
        yield _check("index opens", [str(error)], "")


def _chunks_stand_in_files(
    connection: sqlite3.Connection, now: SourceTree, index: KnowledgeIndex, out: Path, report: Progress
) -> Check:
    faults: list[str] = []
    count = 0
    last, lines = ("", ""), list[str]()
    rows = connection.execute("SELECT origin, path, start, end, sha256, text FROM chunks ORDER BY id")
    for origin, path, start, end, sha256, content in rows:
        if count % 500 == 0:
            report(f"verifying chunks: {count} of {index.chunks}")
        count += 1
        if (origin, path) != last:
            last = (origin, path)
            lines = (_read(out / path) if origin == "docs" else now.text(path) or "").split("\n")
        if digest(content) != sha256 or "\n".join(lines[start - 1 : end]) != content:
            faults.append(f"lines {start}-{end} of {path!r} are not what the index holds")
    if count != index.chunks:
        faults.append(f"it holds {count} chunks, built were {index.chunks}")
    return _check("index matches the files", faults, f"{count} chunks stand in the files, word for word")


def _documents_are_indexed(connection: sqlite3.Connection, documents: Documents) -> Check:
    known = dict(connection.execute("SELECT path, sha256 FROM files WHERE origin = 'docs'").fetchall())
    lost = [file.path for file in documents.files if known.get(file.path) != file.sha256]
    faults = [f"{path!r} is not in it as written" for path in lost]
    return _check("documents are indexed", faults, f"{len(documents.files)} documents can be searched")


def _index_answers(place: Path, documents: Documents) -> Check:
    questions = [file.path.partition(".")[0] for file in documents.files]
    faults = [f"nothing answers {question!r}" for question in questions if not query(place, question, limit=1)]
    return _check("index answers", faults, f"{len(questions)} questions were answered")
