"""`baton handoff`: orders to pipelines of other companies, in files."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from baton import Budget
from baton.cli.ledger_sources import Keys, LedgerOption, NameOption, make_safeguards
from baton.cli.operations import operate
from baton.cli.options import ExitCode, OptionGroup
from baton.cli.session import (
    STAGE_HELP,
    RunArgument,
    Session,
    Target,
    WhoOption,
    YesOption,
    command,
    parse_usd,
    resolve_user,
)
from baton.client import DEFAULT_TASK_QUEUE, AcceptHandoff, ExportHandoff
from baton.errors import BatonError
from baton.keys.store_keys import PublicKeys
from baton.protocol import SealError, open_order, verify_receipt

_READ_BYTES = 4 * 1024 * 1024 + 1  # one more than an order may have

OrderArgument = Annotated[
    Path, typer.Argument(metavar="ORDER", help="The relay file.", exists=True, dir_okay=False, show_default=False)
]
TrustOption = Annotated[
    Path,
    typer.Option(
        "--trust",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="The other company's public keys, as its `baton keys public` wrote them.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Doing(OptionGroup):
    """The options of who exports or accepts an order, and of where it is recorded."""

    who: WhoOption = None
    why: Annotated[str, typer.Option("--why", help="The reason, for the ledger.")] = ""
    yes: YesOption = False
    ledger: LedgerOption = None
    name: NameOption = None


@command
async def export(
    session: Session,
    run: RunArgument,
    step: Annotated[str, typer.Argument(metavar="STEP", help=f"The step: {STAGE_HELP}.", show_default=False)],
    *,
    doing: Doing,
    to: Annotated[
        str | None, typer.Option("--to", metavar="PIPELINE", help="Who receives it; by default the stage's name.")
    ] = None,
    audience: Annotated[
        str | None, typer.Option("--audience", metavar="NAME", help="The only company that may accept it.")
    ] = None,
    hours: Annotated[float, typer.Option("--hours", min=0.02, max=24, help="How long it may be accepted.")] = 24.0,
) -> None:
    """Write the handoff of a step as an order to a pipeline of another company, to the output.

    The file has the signed handoff, its contract, the digests, the public key and the head of the task's chain. The
    task, the contract, the baton and the inputs leave; personal data, the conversation and secrets do not. The export
    is recorded in the ledger.
    """
    target, by = Target.of(run), resolve_user(doing.who)
    safeguards = make_safeguards(session, doing.ledger, doing.name)
    client = await session.client()
    async with safeguards.opened() as opened:
        operation = ExportHandoff(
            client, opened.gate, target.workflow_id, step, to, audience, timedelta(hours=hours), target.run_id
        )
        order = await operate(session, operation, "export it?", by=by, why=doing.why, yes=doing.yes)
    session.write(order.decode())


@command
async def accept(
    session: Session,
    order: OrderArgument,
    trust: TrustOption,
    *,
    doing: Doing,
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", metavar="NAME", help="Accept only an order for this pipeline.")
    ] = None,
    audience: Annotated[
        str | None, typer.Option("--audience", metavar="NAME", help="The name that this company goes by.")
    ] = None,
    budget: Annotated[str | None, typer.Option("--budget", metavar="USD", help="What the run may spend.")] = None,
    task_queue: Annotated[
        str, typer.Option("--task-queue", metavar="NAME", envvar="BATON_TASK_QUEUE", help="The workers' task queue.")
    ] = DEFAULT_TASK_QUEUE,
) -> None:
    """Start a pipeline with the order in a relay file, and write the receipt for its sender to the output.

    The file is verified with the sender's public keys, and its handoff judged like any other: schema, receiver, age,
    contract, safety. The answer is recorded first. One order starts one run, however often it comes. The exit code is
    1 if it is rejected; the receipt says why.
    """
    by, opened_order = resolve_user(doing.who), open_order(_read(order), read_trust(trust))
    limit = None if budget is None else Budget(initial_micro_usd=parse_usd(budget, "--budget"))
    safeguards = make_safeguards(session, doing.ledger, doing.name)
    client = await session.client()
    async with safeguards.opened() as opened:
        operation = AcceptHandoff(
            client, opened.gate, opened_order, pipeline, audience, task_queue, limit, session.artifacts
        )
        accepted = await operate(session, operation, "accept it?", by=by, why=doing.why, yes=doing.yes)
    session.write(accepted.signed + "\n")
    if not accepted.receipt.verdict:
        session.say(f"rejected: {accepted.receipt.verdict.details}", "red")
        raise typer.Exit(ExitCode.FAILURE)
    session.say(f"{accepted.workflow_id} {'started' if accepted.started else 'was started before'}", "green")


@command
async def confirm(
    session: Session,
    order: OrderArgument,
    receipt: Annotated[
        Path, typer.Argument(metavar="RECEIPT", help="The receipt.", exists=True, dir_okay=False, show_default=False)
    ],
    trust: TrustOption,
) -> None:
    """Verify the receipt of an order that this company exported. It needs no server.

    The exit code is 1 if the order was rejected, or the receipt is not one of the other company for this order.
    """
    own = Keys.of(None).public
    if own is None:
        raise BatonError("there are no keys here to verify the order with; name this company's with BATON_KEYS")
    try:
        answer = verify_receipt(_read(receipt).strip(), read_trust(trust), open_order(_read(order), own).raw)
    except SealError as error:
        raise BatonError(f"{str(receipt)!r} is not the receipt of this order: {error}") from error
    if session.json:
        session.write_json(answer)
    else:
        session.show(f"{answer.verdict.answer.value} on {answer.at.isoformat()}, on record as {answer.anchor}")
    if not answer.verdict:
        session.say(answer.verdict.details or "", "red")
        raise typer.Exit(ExitCode.FAILURE)


def _read(file: Path) -> bytes:
    """Return what a file has, and of a too large one no more than shows that."""
    with file.open("rb") as opened:
        return opened.read(_READ_BYTES)


def read_trust(file: Path) -> PublicKeys:
    """Return another company's public keys."""
    try:
        return PublicKeys.from_json(_read(file))
    except BatonError as error:
        raise BatonError(f"{str(file)!r}: {error}") from error
