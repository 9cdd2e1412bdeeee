"""Attacks on handoffs by somebody who reaches the server and has no key: genuine messages, copied and played again."""

from uuid import uuid4

from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import Client

from baton.errors import HistoryError
from baton.wire.names import HANDOFF


async def copy_handoff(client: Client, workflow_id: str, run_id: str | None = None) -> Payload:
    """Return the first handoff that a run received, sealed, as the server stores it.

    Args:
        client: A client of the receiver's namespace; it needs no keys.
        workflow_id: The receiver.
        run_id: Its run; the newest by default.

    Raises:
        HistoryError: The run has received none.
    """
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    async for event in handle.fetch_history_events():
        signal = event.workflow_execution_signaled_event_attributes
        if signal.signal_name == HANDOFF:
            return signal.input.payloads[0]
    raise HistoryError(f"{workflow_id!r} has received no handoff; hand one off to it first")


async def play_again(client: Client, workflow_id: str, handoff: Payload) -> None:
    """Send a copied handoff to the newest run of a workflow, which has to refuse it unless it may accept it.

    Args:
        client: A client of the namespace to attack, which may be another one.
        workflow_id: The workflow to attack.
        handoff: From `copy_handoff`.

    Example:
        ```python
        await play_again(client, "risk-7", await copy_handoff(client, "risk-7", first_run_id))
        ```
    """
    request = SignalWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow_id),
        signal_name=HANDOFF,
        request_id=str(uuid4()),
        input=Payloads(payloads=[handoff]),
    )
    await client.workflow_service.signal_workflow_execution(request, retry=True)
