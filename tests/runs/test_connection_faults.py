"""Why no connection came about, as the operator reads it."""

import pytest

from baton.runs.client_connection import connection_fault

TRANSPORT = "Failed client connect: Server connection error: tonic::transport::Error(Transport, {})"
CALL = "Failed client connect: `get_system_info` call error after connection: Status {{ code: {}, message: {} }}"


def fault(said: str, *, address: str = "cluster:7233") -> str:
    """Return the line about what the SDK's core said."""
    return connection_fault(RuntimeError(said), {"target_host": address, "namespace": "baton"})


class TestConnectionFault:
    """`connection_fault`; what the core says is as version 1.35 says it. TLS itself is tried in `test_tls.py`."""

    @pytest.mark.parametrize(
        ("said", "meaning", "remedy"),
        [
            pytest.param(
                CALL.format("Unauthenticated", '"Request unauthorized."'),
                "it refuses this client",
                "TEMPORAL_API_KEY",
                id="a key that the service refuses",
            ),
            pytest.param(
                CALL.format("Internal", '"protocol error while receiving response with status: 401 Unauthorized"'),
                "it refuses this client",
                "TEMPORAL_API_KEY",
                id="a key that a proxy refuses",
            ),
            pytest.param(
                CALL.format("Unavailable", '"protocol error: … while receiving response with status: 502 Bad Gateway"'),
                "does not answer as expected",
                "check the port",
                id="a proxy before nothing",
            ),
            pytest.param(
                TRANSPORT.format('ConnectError(ConnectError("dns error", Custom { kind: Uncategorized, error: "…" }))'),
                "the host's name is not known",
                "check the address",
                id="an unknown host",
            ),
            pytest.param("invalid target URL: invalid port number", "not an address", "host:port", id="no address"),
        ],
    )
    def test_it_says_what_is_wrong_and_what_to_do(self, said: str, meaning: str, remedy: str) -> None:
        """A server that answers and refuses is not told as one that is off."""
        line = fault(said)

        assert line.startswith("no connection to cluster:7233 (namespace 'baton'): ")
        assert meaning in line
        assert remedy in line
        assert "baton dev" not in line

    def test_an_address_without_a_port_is_told_as_that(self) -> None:
        """It would be tried at port 80."""
        assert "write TEMPORAL_ADDRESS" in fault("refused", address="localhost")

    def test_where_nobody_listens_a_server_can_be_started(self) -> None:
        """The innermost message of the system's says what happened."""
        refused = 'ConnectError("tcp connect error", 127.0.0.1:1, Os { code: 111, message: "Connection refused" })'

        line = fault(TRANSPORT.format(refused))

        assert line.startswith(
            "no Temporal server answers at cluster:7233 (namespace 'baton'): Connection refused. "
            "Start one with `baton dev`"
        )
