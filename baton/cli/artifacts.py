"""`baton artifact`: the work products of a run."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from baton import ArtifactRef
from baton.cli.options import ForceOption, refuse_overwrite
from baton.cli.output import make_table, plain
from baton.cli.session import RunArgument, Session, Target, command
from baton.client import read_run
from baton.client.faces import ArtifactStore
from baton.errors import PipelineError

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The artifact's id, as listed.", show_default=False)]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="The file to write; by default named like the artifact."),
]


@command
async def list_(session: Session, run: RunArgument) -> None:
    """List the artifacts of a run's current baton, and those with turns that left its conversation."""
    artifacts = await _list_artifacts(session, run)
    if session.json:
        session.write_json(artifacts)
        return
    if not artifacts:
        session.note("the run has no artifacts")
        return
    table = make_table("id", "type", "bytes", "path", "summary", right=("bytes",), whole=("id",))
    for artifact in artifacts:
        size = "" if artifact.size is None else f"{artifact.size:,}"
        id, type = plain(artifact.id, "bold"), plain(artifact.type)
        table.add_row(id, type, size, plain(artifact.path or ""), plain(artifact.summary or ""))
    session.show(table)


@command
async def cat(session: Session, run: RunArgument, id: IdArgument) -> None:
    """Write an artifact to the output, byte for byte.

    Careful on a terminal: the bytes come from a stage and may contain control sequences.
    """
    content = await _read_content(session, await _find_artifact(session, run, id))
    session.out.file.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


@command
async def save(
    session: Session, run: RunArgument, id: IdArgument, output: OutputOption = None, force: ForceOption = False
) -> None:
    """Save an artifact as a file in the current folder."""
    artifact = await _find_artifact(session, run, id)
    file = output or Path(_file_name(artifact))
    refuse_overwrite(file, force, "--output")
    file.write_bytes(await _read_content(session, artifact))
    if session.json:
        session.write_json({"file": str(file), "hash": artifact.hash})
    else:
        session.show(plain(f"saved {file}"))


@command
async def put(
    session: Session,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="The files.", show_default=False, exists=True)],
) -> None:
    """Put files into the artifact store, such as artifacts that it has lost; print their hashes.

    An artifact is found by its hash, so a run that waits for one continues once its bytes are back.
    """
    hashes = {str(file): await _store_of(session).put(file.read_bytes()) for file in files}
    if session.json:
        session.write_json([{"file": file, "hash": sha256} for file, sha256 in hashes.items()])
        return
    for file, sha256 in hashes.items():
        session.show(plain(f"{sha256}  {file}"))


async def _list_artifacts(session: Session, run: str) -> list[ArtifactRef]:
    target = Target.of(run)
    client = await session.client()
    with session.progress("reading the history"):
        record = await read_run(client, target.workflow_id, target.run_id)
    return record.artifacts


async def _find_artifact(session: Session, run: str, id: str) -> ArtifactRef:
    artifacts = await _list_artifacts(session, run)
    artifact = next((artifact for artifact in artifacts if artifact.id == id), None)
    if artifact is None:
        ids = ", ".join(repr(artifact.id) for artifact in artifacts) or "none"
        raise PipelineError(f"the run has no artifact {id!r}; it has: {ids}")
    return artifact


async def _read_content(session: Session, artifact: ArtifactRef) -> bytes:
    return await _store_of(session).get(artifact.hash)


def _store_of(session: Session) -> ArtifactStore:
    store = session.artifacts
    assert store is not None  # noqa: S101 - a session always opens a store
    return store


def _file_name(artifact: ArtifactRef) -> str:
    """Return a safe file name, because the stage chose id and path."""
    name = re.sub(r"[^\w.-]", "_", Path(artifact.path or "").name).lstrip(".")
    return name or re.sub(r"[^\w.-]", "_", artifact.id).lstrip(".") or "artifact"
