"""`baton cancel`."""

from rich.text import Text

from baton.cli.output import plain
from baton.cli.session import Session, command, who_is
from baton.cli.targets import RunArgument, Target, WhoOption, WhyOption, YesOption
from baton.errors import PipelineError
from baton.runs.cli_cards import heading
from baton.runs.client_reader import read_run
from baton.runs.client_record import RunStatus


@command
async def cancel(
    session: Session, run: RunArgument, why: WhyOption, who: WhoOption = None, yes: YesOption = False
) -> None:
    """Ask a run to cancel; its compensations run, and its children are asked too.

    Shows the run and asks for confirmation; without a terminal, --yes is required. Needs a worker to take effect.
    """
    target, by = Target.of(run), who_is(who)
    client = await session.client()
    with session.progress("reading the history"):
        record = await read_run(client, target.workflow_id, target.run_id)
    if record.status is not RunStatus.RUNNING:
        raise PipelineError(f"{target.workflow_id!r} cannot be canceled: it is {record.status.value}")
    if not session.json:
        session.err.print(heading(record))
    session.confirm(f"cancel {target.workflow_id!r}?", yes=yes, otherwise="nothing was canceled")
    handle = client.get_workflow_handle(target.workflow_id, run_id=target.run_id)
    await handle.cancel(reason=f"canceled by {by}: {why}")
    if session.json:
        session.write_json({"workflow_id": target.workflow_id, "run_id": record.run_id})
    else:
        session.show(Text.assemble(plain(target.workflow_id, "bold cyan"), " was asked to cancel"))
