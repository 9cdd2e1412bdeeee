"""Connects a program to Temporal with the settings of the Temporal CLI, and ends its process."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from temporalio.client import Client, Plugin, WorkflowFailureError
from temporalio.envconfig import ClientConfig
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode

from baton.artifacts.store import default_store
from baton.codec.conversion import data_converter
from baton.errors import ServerError
from baton.sdk import exit_process
from baton.sdk.failure_logs import print_failure

DEFAULT_ADDRESS = "localhost:7233"
DEFAULT_TASK_QUEUE = "baton"
"""The task queue of workers and runs unless `BATON_TASK_QUEUE` or the caller names another."""

_SOURCE_LINE = re.compile(r" *\d* *\|")


UNREACHABLE_STATUSES = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.PERMISSION_DENIED,
)
"""The statuses of a call that say that the server cannot be used, not that it refused what was asked."""


@dataclass(frozen=True)
class Connection:
    """The server, namespace and profile to connect with.

    A value of None comes from the environment (`TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_API_KEY`,
    `TEMPORAL_TLS_…`) or from the profile in `temporal.toml`; the same variables and file serve the Temporal
    CLI.

    Attributes:
        address: Host and port of the server.
        namespace: The namespace.
        profile: The profile in the file; `TEMPORAL_PROFILE`, else `default`.
        config_file: The file; `TEMPORAL_CONFIG_FILE`, else the Temporal CLI's own.
    """

    address: str | None = None
    namespace: str | None = None
    profile: str | None = None
    config_file: Path | None = None

    def settings(self) -> dict[str, Any]:
        """Return the arguments for `Client.connect`.

        Raises:
            ServerError: The configuration file does not exist, or it or the profile cannot be used.

        Example:
            >>> Connection(address="127.0.0.1:7233", namespace="baton").settings()["target_host"]
            '127.0.0.1:7233'
        """
        config_file = self.config_file or os.environ.get("TEMPORAL_CONFIG_FILE")
        if config_file and not Path(config_file).exists():  # the SDK would use the defaults: another server
            raise ServerError(
                f"there is no connection file {str(config_file)!r}; correct --config or TEMPORAL_CONFIG_FILE, or leave "
                "it out"
            )
        try:
            client_config = ClientConfig.load_client_connect_config(
                profile=self.profile or os.environ.get("TEMPORAL_PROFILE"),
                config_file=str(self.config_file) if self.config_file else None,
            )
        except OSError as error:
            raise ServerError(
                f"the connection settings name the file {str(error.filename)!r}, which cannot be read: "
                f"{error.strerror}; correct the profile or the TEMPORAL_TLS_… variable that names it"
            ) from error
        except (RuntimeError, ValueError) as error:
            # Not `from error`: its text quotes the file, which may contain the key.
            raise ServerError(
                f"the connection settings cannot be used: {_strip_source(str(error))}; "
                f"check {config_file or 'temporal.toml'}, the profile's name and the TEMPORAL_… variables"
            ) from None
        settings: dict[str, Any] = dict(client_config)
        settings["target_host"] = self.address or settings.get("target_host") or DEFAULT_ADDRESS
        settings["namespace"] = self.namespace or settings.get("namespace") or "default"
        return settings


def _strip_source(message: str) -> str:
    """Return a parser's message on one line, without the lines that quote the file."""
    lines = (line.strip() for line in message.splitlines() if not _SOURCE_LINE.match(line))
    return ": ".join(filter(None, lines))


async def connect(
    connection: Connection | None = None,
    *,
    plugins: Sequence[Plugin] = (),
    identity: str | None = None,
    runtime: Runtime | None = None,
) -> Client:
    """Return a connected client.

    Args:
        connection: The server; the environment and profile fill in what it lacks.
        plugins: Pass `BatonPlugin()` here. Without plugins the client uses Baton's payload format, but sets no search
            attributes on the runs it starts, seals nothing, and cannot read encrypted payloads.
        identity: The client's identity, for the server's records.
        runtime: The SDK's runtime, for metrics.

    Returns:
        A connected client.

    Raises:
        ServerError: The server is unreachable or refuses the connection; says what to do.
    """
    settings = (connection or Connection()).settings()
    if identity:
        settings["identity"] = identity
    if not plugins:  # the SDK's own converter cannot read compressed payloads
        settings["data_converter"] = data_converter(default_store())
    try:
        return await Client.connect(**settings, plugins=plugins, runtime=runtime)
    except (RPCError, RuntimeError, ValueError) as error:
        raise server_error(error, settings["target_host"], settings["namespace"]) from error


_FAULTS: tuple[tuple[str, str, str, str], ...] = (
    (
        r"Namespace \S+ is not found",
        "The namespace does not exist",
        "the server has no such namespace",
        "name another with --namespace or TEMPORAL_NAMESPACE, or create it (temporal operator namespace create)",
    ),
    (
        r"invalid target URL|HttpsUriWithoutTlsSupport",
        "The Temporal server's address is wrong",
        "this is not an address",
        "write TEMPORAL_ADDRESS, or the profile's address, as host:port, for example localhost:7233",
    ),
    (
        r"both client cert and private key|ParseError|KeyMismatch",
        "The client certificate cannot be used",
        "the client's certificate and key cannot be used",
        "TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH name a PEM certificate and its unencrypted key",
    ),
    (
        r"InvalidCertificate\((\w+)",
        "The Temporal server's certificate is not valid",
        "the server's certificate is not valid ({})",
        "check its dates and this machine's clock, its authority (TEMPORAL_TLS_SERVER_CA_CERT_PATH) and its name "
        "(TEMPORAL_TLS_SERVER_NAME)",
    ),
    (
        r"(AlertReceived|Unauthenticated|PermissionDenied|status: 40[13])",
        "The Temporal server refuses this client",
        "the server refuses this client ({})",
        "check TEMPORAL_API_KEY, or the certificate of TEMPORAL_TLS_CLIENT_CERT_PATH",
    ),
    (
        r"dns error",
        "The Temporal server's host name is unknown",
        "the host name cannot be resolved",
        "check the address and this machine's DNS",
    ),
    (
        r"InvalidMessage\(|transport error|operation was canceled|http2 error|with status: \d+",
        "The Temporal server does not answer as expected",
        "the server there does not answer as expected",
        "check the port, and whether it wants TLS (TEMPORAL_TLS=true, or false) or a client certificate "
        "(TEMPORAL_TLS_CLIENT_CERT_PATH)",
    ),
)
"""Patterns in the core's error text, the cause in short, what they mean, and what to do; the first match wins."""


def _spell(status: RPCStatusCode) -> str:
    return status.name.title().replace("_", "")


def server_error(error: Exception, address: str, namespace: str) -> ServerError:
    """Return the error for a server that could not be connected to or asked: address, reason, remedy.

    Args:
        error: What the SDK raised.
        address: The server's address.
        namespace: The namespace.
    """
    message, where = str(error), f"{address} (namespace {namespace!r})"
    if isinstance(error, RPCError) and error.status in (RPCStatusCode.UNAUTHENTICATED, RPCStatusCode.PERMISSION_DENIED):
        message = f"{_spell(error.status)}: {message}"
    if not re.search(r":\d+$", address):
        message = "invalid target URL"  # port 80 would be tried
    for pattern, title, meaning, remedy in _FAULTS:
        if match := re.search(pattern, message):
            fault = ServerError(f"no connection to {where}: {meaning.format(*match.groups())}; {remedy}")
            fault.title = title
            return fault
    causes = re.findall(r'message: "([^"]+)"', message)
    return ServerError(
        f"no Temporal server answers at {where}: {causes[-1] if causes else message}. Start one with `baton dev`, "
        "or name another with --address, TEMPORAL_ADDRESS or a profile in temporal.toml"
    )


_TERMINATED = 128 + signal.SIGTERM


def run_and_exit(main: Coroutine[Any, Any, Any]) -> NoReturn:
    """Run ``main`` like `asyncio.run`, then end the process; the last line of a script or worker.

    SIGTERM cancels ``main`` as Ctrl-C does, so a worker in it lets its stages finish (`BATON_GRACE_SECONDS`).

    The exit code is 0; 1 after an exception, whose traceback is printed, of a failed run only ``main``'s frames with
    the reason as the last line; 130 after Ctrl-C; 143 after SIGTERM.

    Args:
        main: The coroutine to run.

    Example:
        ```python
        if __name__ == "__main__":
            run_and_exit(main())
        ```
    """
    terminated: list[int] = []
    try:
        asyncio.run(_run_until_sigterm(main, terminated))
    except KeyboardInterrupt:
        exit_process(130)
    except asyncio.CancelledError:
        if not terminated:
            sys.excepthook(*sys.exc_info())
        exit_process(_TERMINATED if terminated else 1)
    except BaseException as error:  # any error is printed and ends the process
        if isinstance(error, WorkflowFailureError):
            print_failure(error, sys.stderr)
        else:
            sys.excepthook(*sys.exc_info())
        exit_process(1)
    exit_process(0)


async def _run_until_sigterm(main: Coroutine[Any, Any, Any], terminated: list[int]) -> None:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - asyncio.run makes one

    def stop() -> None:
        terminated.append(signal.SIGTERM)
        task.cancel()

    with contextlib.suppress(NotImplementedError):  # Windows has no such handlers
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await main
