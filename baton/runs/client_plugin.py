"""`ClientPlugin`: the Temporal plugin of programs that start, read and decide pipelines, and run none."""

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from temporalio import client
from temporalio.service import ConnectConfig, GrpcCompression, ServiceClient

from baton.artifacts.store import ArtifactStore, default_store
from baton.codec.conversion import data_converter, in_namespace
from baton.keys.store_keyring import Keyring, KeySource
from baton.sdk.start_terms import StartTerms
from baton.wire.text import host_of, is_loopback


class ClientPlugin(client.Plugin):
    """The half of `BatonPlugin` that a client needs: it loads no worker, ledger or agent.

    Example:
        ```python
        client = await Client.connect("localhost:7233", plugins=[ClientPlugin()])
        ```
    """

    def __init__(
        self,
        artifacts: ArtifactStore | Literal["default"] | None = "default",
        *,
        keys: Keyring | KeySource | None = None,
        compress: bool = True,
        encrypt: bool = False,
        searchable: bool = True,
        interceptors: Sequence[client.Interceptor] = (),
    ) -> None:
        """Set up the plugin.

        Args:
            artifacts: Where the workers keep large payloads, by default as in `BATON_ARTIFACTS`; None for nowhere.
            keys: What decrypts payloads and seals what a run starts from; by default as in `BATON_KEYS`, if it is set.
            compress: Compress payloads.
            encrypt: Encrypt payloads.
            searchable: Set Baton's search attributes on new runs; the namespace must have them.
            interceptors: Further interceptors of the client, which come first.
        """
        keys = keys if isinstance(keys, KeySource) else KeySource(keys, from_environment=keys is None)
        store = default_store() if artifacts == "default" else artifacts
        self._converter = data_converter(store, compress=compress, keyring=keys, encrypt=encrypt)
        self._client_interceptors = [*interceptors, StartTerms(searchable=searchable)]

    def configure_client(self, config: client.ClientConfig) -> client.ClientConfig:
        """Configure a client, whose sealed messages name its namespace."""
        config["data_converter"] = in_namespace(self._converter, config["namespace"])
        config["interceptors"] = [*(config.get("interceptors") or []), *self._client_interceptors]
        return config

    async def connect_service_client(
        self, config: ConnectConfig, next: Callable[[ConnectConfig], Awaitable[ServiceClient]]
    ) -> ServiceClient:
        """Connect, without gzip to a server on this machine, where compression only takes time."""
        if config.grpc_compression is GrpcCompression.GZIP and is_loopback(host_of(config.target_host)):
            config = dataclasses.replace(config, grpc_compression=GrpcCompression.NONE)
        return await next(config)
