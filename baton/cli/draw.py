"""`baton draw`: a picture of a pipeline, from its code."""

from pathlib import Path
from typing import Annotated

import typer

from baton.cli.drawing import mermaid, svg
from baton.cli.options import ForceOption, refuse_overwrite
from baton.cli.pipeline_code import read_outline
from baton.cli.session import Session, command


@command
async def draw(
    session: Session,
    pipeline: Annotated[
        str, typer.Argument(metavar="FILE.py[:NAME]", help="Its file, and its name if the file has several.")
    ],
    as_svg: Annotated[bool, typer.Option("--svg", help="Draw an SVG instead of a Mermaid chart.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to a file; one named .svg is an SVG."),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Draw a pipeline from its code, before it runs.

    The code is read and not run. The picture has every way that it may take; what the code does not say is listed on
    stderr and in the picture.
    """
    file, _, name = pipeline.rpartition(":") if not pipeline.endswith(".py") else (pipeline, "", "")
    outline = read_outline(Path(file or pipeline), name or None)
    picture = svg(outline) if as_svg or (output is not None and output.suffix == ".svg") else mermaid(outline)
    for remark in outline.remarks:
        session.note(f"not known: {remark}")
    if output is not None:
        refuse_overwrite(output, force, "--output")
        output.write_text(picture, encoding="utf-8")
    if session.json:
        session.write_json({"pipeline": outline.name, "picture": picture, "remarks": outline.remarks})
    elif output is None:
        session.write(picture)
