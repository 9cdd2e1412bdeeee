"""What a command raises, as an exit code and a line."""

import pytest
from temporalio.client import WorkflowQueryFailedError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from baton.cli.options import ExitCode
from baton.cli.session import describe_error
from baton.errors import HistoryError, PatchError, ServerError


def call(status: RPCStatusCode, message: str) -> RPCError:
    """Return the failure of a call to the server."""
    return RPCError(message, status, b"")


class TestDescribeError:
    ERRORS = (
        pytest.param(ServerError("none there"), ExitCode.UNREACHABLE, "none there", id="no server"),
        pytest.param(HistoryError("no step 'x'"), ExitCode.FAILURE, "no step 'x'", id="no such step"),
        pytest.param(PatchError(["a: no", "b: no"]), ExitCode.FAILURE, "a: no; b: no", id="a refused patch"),
        pytest.param(
            WorkflowAlreadyStartedError("id-1", "P"), ExitCode.FAILURE, "'id-1' is open already", id="an id in use"
        ),
        pytest.param(
            call(RPCStatusCode.NOT_FOUND, "workflow not found for ID: x"),
            ExitCode.FAILURE,
            "baton list",
            id="no such run",
        ),
        pytest.param(
            call(RPCStatusCode.NOT_FOUND, "Namespace n is not found."),
            ExitCode.UNREACHABLE,
            "--namespace",
            id="no such namespace",
        ),
        pytest.param(call(RPCStatusCode.UNAVAILABLE, "gone"), ExitCode.UNREACHABLE, "gone", id="a server that left"),
        pytest.param(
            call(RPCStatusCode.PERMISSION_DENIED, "no"), ExitCode.UNREACHABLE, "permission_denied", id="no rights"
        ),
        pytest.param(
            WorkflowQueryFailedError("[TMPRL1100] Nondeterminism error: plan is not review"),
            ExitCode.FAILURE,
            "plan is not review; start a worker whose code fits",
            id="code that does not fit",
        ),
        pytest.param(
            WorkflowQueryFailedError("no such query"), ExitCode.FAILURE, "cannot be queried", id="another query"
        ),
        pytest.param(call(RPCStatusCode.INVALID_ARGUMENT, "bad"), ExitCode.FAILURE, "refused", id="a refused call"),
    )

    @pytest.mark.parametrize(("error", "code", "said"), ERRORS)
    def test_every_known_error_has_a_code_and_a_line(self, error: Exception, code: ExitCode, said: str) -> None:
        """A script can tell a refusal from an unreachable server."""
        verdict = describe_error(error)

        assert verdict is not None
        assert verdict[0] is code
        assert said in verdict[1]
        assert "\n" not in verdict[1]

    def test_a_bug_has_none(self) -> None:
        """An unexpected error keeps its traceback."""
        assert describe_error(KeyError("x")) is None
