"""`baton artifact`: the work products of a run."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from baton.artifacts.records import ArtifactRef
from baton.cli.options import ForceOption, refuse_overwrite
from baton.cli.output import make_table, plain
from baton.cli.session import RunArgument, Session, Target, command
from baton.errors import PipelineError
from baton.runs.client_reader import read_run

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The artifact's id, as listed.", show_default=False)]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Where to write it; by default a file of the artifact's name."),
]


@command
async def list_(session: Session, run: RunArgument) -> None:
    """List the artifacts of a run, as its baton has them now."""
    artifacts = await _artifacts(session, run)
    if session.json:
        session.write_json([one.model_dump(mode="json") for one in artifacts])
        return
    if not artifacts:
        session.note("the run has no artifacts")
        return
    table = make_table("id", "type", "bytes", "path", "summary", right=("bytes",), whole=("id",))
    for one in artifacts:
        size = "" if one.size is None else f"{one.size:,}"
        table.add_row(plain(one.id, "bold"), plain(one.type), size, plain(one.path or ""), plain(one.summary or ""))
    session.show(table)


@command
async def cat(session: Session, run: RunArgument, id: IdArgument) -> None:
    """Write an artifact to the output, byte for byte.

    On a terminal, look first: the bytes are what a stage wrote, and they may contain control sequences.
    """
    content = await _content(session, await _artifact(session, run, id))
    session.out.file.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


@command
async def save(
    session: Session, run: RunArgument, id: IdArgument, output: OutputOption = None, force: ForceOption = False
) -> None:
    """Save an artifact as a file in the current folder."""
    artifact = await _artifact(session, run, id)
    file = output or Path(_file_name(artifact))
    refuse_overwrite(file, force, "--output")
    file.write_bytes(await _content(session, artifact))
    if session.json:
        session.write_json({"file": str(file), "hash": artifact.hash})
    else:
        session.show(plain(f"saved {file}"))


async def _artifacts(session: Session, run: str) -> list[ArtifactRef]:
    """Return the artifacts of a run."""
    target = Target.of(run)
    client = await session.client()
    with session.progress("reading the history"):
        record = await read_run(client, target.workflow_id, target.run_id)
    return list(record.baton.artifacts)


async def _artifact(session: Session, run: str, id: str) -> ArtifactRef:
    """Return the artifact of an id."""
    artifacts = await _artifacts(session, run)
    found = next((one for one in artifacts if one.id == id), None)
    if found is None:
        ids = ", ".join(repr(one.id) for one in artifacts) or "none"
        raise PipelineError(f"the run has no artifact {id!r}; it has: {ids}")
    return found


async def _content(session: Session, artifact: ArtifactRef) -> bytes:
    """Return the bytes of an artifact."""
    store = session.parts.artifacts
    assert store is not None  # noqa: S101 - a session always opens one
    return await store.get(artifact.hash)


def _file_name(artifact: ArtifactRef) -> str:
    """Return a file name that leads nowhere else: what a stage named is data."""
    name = re.sub(r"[^\w.-]", "_", Path(artifact.path or "").name).lstrip(".")
    return name or re.sub(r"[^\w.-]", "_", artifact.id).lstrip(".") or "artifact"
