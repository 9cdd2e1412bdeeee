"""Connecting to a Temporal server the way the Temporal CLI does: profiles, environment, then defaults."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client, Plugin
from temporalio.envconfig import ClientConfig
from temporalio.runtime import Runtime
from temporalio.service import RPCError

from baton.artifacts.store import default_store
from baton.codec.conversion import data_converter
from baton.errors import ServerError
from baton.runs.client_connection_errors import connection_fault

DEFAULT_ADDRESS = "localhost:7233"
DEFAULT_TASK_QUEUE = "baton"

_SOURCE = re.compile(r" *\d* *\|")


@dataclass(frozen=True)
class Connection:
    """Where to connect to, and as whom.

    What is None comes from the environment (`TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_API_KEY`,
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
            ServerError: The file that was named is not there, or it or the profile cannot be used.

        Example:
            >>> Connection(address="127.0.0.1:7233", namespace="baton").settings()["target_host"]
            '127.0.0.1:7233'
        """
        named = self.config_file or os.environ.get("TEMPORAL_CONFIG_FILE")
        if named and not Path(named).exists():  # the SDK would use the defaults: another server
            raise ServerError(
                f"there is no connection file {str(named)!r}; correct --config or TEMPORAL_CONFIG_FILE, or leave it out"
            )
        try:
            loaded = ClientConfig.load_client_connect_config(
                profile=self.profile or os.environ.get("TEMPORAL_PROFILE"),
                config_file=str(self.config_file) if self.config_file else None,
            )
        except OSError as error:
            raise ServerError(
                f"the connection settings name the file {str(error.filename)!r}, which cannot be read: "
                f"{error.strerror}; correct the profile or the TEMPORAL_TLS_… variable that names it"
            ) from error
        except (RuntimeError, ValueError) as error:
            # Not `from error`: it shows the line of the file, where the key may stand.
            raise ServerError(
                f"the connection settings cannot be used: {_without_source(str(error))}; "
                f"check {named or 'temporal.toml'}, the profile's name and the TEMPORAL_… variables"
            ) from None
        settings: dict[str, Any] = dict(loaded)
        settings["target_host"] = self.address or settings.get("target_host") or DEFAULT_ADDRESS
        settings["namespace"] = self.namespace or settings.get("namespace") or "default"
        return settings


def _without_source(said: str) -> str:
    """Return in one line what is wrong with a file, without the line of the file that a parser draws below it."""
    told = (line.strip() for line in said.splitlines() if not _SOURCE.match(line))
    return ": ".join(filter(None, told))


async def connect(
    connection: Connection | None = None,
    *,
    plugins: Sequence[Plugin] = (),
    identity: str | None = None,
    runtime: Runtime | None = None,
) -> Client:
    """Return a client for the server that the connection names.

    Args:
        connection: Where to; the environment and profile decide what it leaves open.
        plugins: Give `BatonPlugin()` here. Without any plugin the client still reads and writes payloads as Baton does,
            but gives the runs it starts no search attributes, seals nothing, and reads nothing that is encrypted.
        identity: Who this is, for the server's records.
        runtime: The SDK's runtime, for metrics.

    Returns:
        A connected client.

    Raises:
        ServerError: The server cannot be reached, or refuses; says what to do.
    """
    settings = (connection or Connection()).settings()
    if identity:
        settings["identity"] = identity
    if not plugins:  # the SDK's own converter would stumble over the first compressed payload
        settings["data_converter"] = data_converter(default_store())
    try:
        return await Client.connect(**settings, plugins=plugins, runtime=runtime)
    except (RPCError, RuntimeError, ValueError) as error:
        raise ServerError(connection_fault(error, settings)) from error
