"""Stage verify-ready: check every claim of the earlier stages against the files as they are now.

Nothing is executed, so it is not checked whether commands succeed; links to other hosts are not followed.
"""

import hashlib
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from activities.project_init.detect import detect
from activities.project_init.files import Progress, SourceTree, survey
from activities.project_init.knowledge import digest, open_index, query
from activities.project_init.markdown import broken_links, commands_of, parse
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

_NAMED = 5
"""How many faults a message names."""


def verify(
    tree: SourceTree,
    stack: TechStack,
    documents: Documents,
    index: KnowledgeIndex,
    out: Path,
    progress: Progress | None = None,
) -> Verification:
    """Check what the earlier stages found and wrote."""
    report = progress or (lambda _: None)
    now = survey(tree.root, limits=tree.limits, progress=report)
    checks = [_source_is_unchanged(tree, now), _evidence_exists(stack, now)]
    report("verifying documents")
    checks += _documents_hold(documents, out, detect(now, report))
    report("verifying the index")
    checks += _index_holds(now, documents, index, out)
    return Verification(checks=tuple(checks))


def _check(name: str, faults: list[str], proved: str, *, warns: bool = False) -> Check:
    more = f"; and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
    message = "; ".join(faults[:_NAMED]) + more if faults else proved
    return Check(name=name, ok=not faults, severity="warning" if warns else "error", message=message)


def _source_is_unchanged(before: SourceTree, now: SourceTree) -> Check:
    faults = [f"{path!r} is gone" for path in before.by_path if path not in now.by_path]
    faults += [f"{path!r} is new" for path in now.by_path if path not in before.by_path]
    both = before.by_path.keys() & now.by_path.keys()
    faults += [f"{path!r} has changed" for path in sorted(both) if before.by_path[path] != now.by_path[path]]
    return _check("source is unchanged", faults, f"{len(both)} files have the hashes they had at detection")


def _evidence_exists(stack: TechStack, now: SourceTree) -> Check:
    cited = [each.evidence for each in stack.commands]
    cited += [wanted.evidence for manifest in stack.manifests for wanted in manifest.dependencies]
    cited += [Evidence(path=manifest.path) for manifest in stack.manifests]
    faults = []
    for each in cited:
        file = now.by_path.get(each.path)
        if file is None or (each.line or 1) > max(file.lines, 1):
            faults.append(f"{str(each)!r} is cited, but is not there")
    return _check("evidence exists", faults, f"{len(cited)} findings cite files and lines that exist")


def _documents_hold(documents: Documents, out: Path, now: TechStack) -> Iterator[Check]:
    declared = {each.line for each in now.commands}
    programs: set[str] = set()
    for file in documents.files:
        place = out / file.path
        try:
            content = place.read_bytes()
        except OSError as error:
            yield _check(f"{file.path} is as written", [f"it cannot be read ({error.strerror})"], "")
            continue
        found = hashlib.sha256(content).hexdigest()
        faults = [f"its SHA-256 is {found[:12]}…, written was {file.sha256[:12]}…"] if found != file.sha256 else []
        yield _check(f"{file.path} is as written", faults, f"{len(content)} bytes with SHA-256 {found[:12]}…")
        yield _check(f"links of {file.path} resolve", broken_links(place), "every relative link leads somewhere")
        commands = set(commands_of(parse(decode_text(content))))
        unknown = [f"{line!r} is not declared" for line in sorted(commands - declared)]
        if commands:
            yield _check(f"commands of {file.path} exist", unknown, f"{len(commands)} commands are declared")
        programs |= {line.rpartition("&& ")[2].split()[0] for line in commands}
    missing = [f"{program!r} is not installed here" for program in sorted(programs) if shutil.which(program) is None]
    yield _check("programs are installed", missing, "every program that the commands need is installed", warns=True)


def _index_holds(now: SourceTree, documents: Documents, index: KnowledgeIndex, out: Path) -> Iterator[Check]:
    place = out / index.path
    try:
        found = hashlib.sha256(place.read_bytes()).hexdigest()
        faults = [f"its SHA-256 is {found[:12]}…, built was {index.sha256[:12]}…"] if found != index.sha256 else []
        yield _check("index is as built", faults, f"SHA-256 {found[:12]}…")
        with closing(open_index(place)) as connection:
            yield _chunks_match(connection, now, index, out)
            known = dict(connection.execute("SELECT path, sha256 FROM files WHERE origin = 'docs'").fetchall())
        lost = [f"{file.path!r} is not in it" for file in documents.files if known.get(file.path) != file.sha256]
        yield _check("documents are indexed", lost, f"{len(documents.files)} documents can be searched")
        questions = [file.path.partition(".")[0] for file in documents.files]
        silent = [f"nothing answers {question!r}" for question in questions if not query(place, question, limit=1)]
        yield _check("index answers", silent, f"{len(questions)} questions were answered")
    except OSError as error:
        yield _check("index is as built", [f"it cannot be read ({error.strerror})"], "")
    except (ProjectError, sqlite3.Error) as error:
        yield _check("index opens", [str(error)], "")


def _chunks_match(connection: sqlite3.Connection, now: SourceTree, index: KnowledgeIndex, out: Path) -> Check:
    faults: list[str] = []
    count, last, lines = 0, ("", ""), list[str]()
    rows = connection.execute("SELECT origin, path, start, end, sha256, text FROM chunks ORDER BY id")
    for count, (origin, path, start, end, sha256, content) in enumerate(rows, 1):  # noqa: B007 - the count is used
        if (origin, path) != last:
            last = origin, path
            lines = (_document(out / path) if origin == "docs" else now.text(path) or "").split("\n")
        if digest(content) != sha256 or "\n".join(lines[start - 1 : end]) != content:
            faults.append(f"lines {start}-{end} of {path!r} are not what the index holds")
    if count != index.chunks:
        faults.append(f"it holds {count} chunks, built were {index.chunks}")
    return _check("index matches the files", faults, f"{count} chunks are in the files, word for word")


def _document(place: Path) -> str:
    try:
        return decode_text(place.read_bytes())
    except OSError:
        return ""
