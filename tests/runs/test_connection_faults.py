"""The messages about failed connections."""

import pytest

from baton.runs.client_connection import server_error

TRANSPORT = "Failed client connect: Server connection error: tonic::transport::Error(Transport, {})"
CALL = "Failed client connect: `get_system_info` call error after connection: Status {{ code: {}, message: {} }}"


def describe_fault(core_message: str, *, address: str = "cluster:7233") -> str:
    """Return the message for an error of the SDK's core."""
    return str(server_error(RuntimeError(core_message), address, "baton"))


class TestConnectionFault:
    """`server_error`, with error texts of the SDK 1.35. `test_tls.py` tests real TLS errors."""

    @pytest.mark.parametrize(
        ("core_message", "meaning", "remedy"),
        [
            pytest.param(
                CALL.format("Unauthenticated", '"Request unauthorized."'),
                "the server refuses this client",
                "TEMPORAL_API_KEY",
                id="a key that the service refuses",
            ),
            pytest.param(
                CALL.format("Internal", '"protocol error while receiving response with status: 401 Unauthorized"'),
                "the server refuses this client",
                "TEMPORAL_API_KEY",
                id="a key that a proxy refuses",
            ),
            pytest.param(
                CALL.format("Unavailable", '"protocol error: … while receiving response with status: 502 Bad Gateway"'),
                "does not answer as expected",
                "check the port",
                id="a proxy without a backend",
            ),
            pytest.param(
                TRANSPORT.format('ConnectError(ConnectError("dns error", Custom { kind: Uncategorized, error: "…" }))'),
                "the host name cannot be resolved",
                "check the address",
                id="an unknown host",
            ),
            pytest.param("invalid target URL: invalid port number", "not an address", "host:port", id="no address"),
        ],
    )
    def test_the_message_has_the_reason_and_the_remedy(self, core_message: str, meaning: str, remedy: str) -> None:
        """A server that refuses is not reported as unreachable."""
        line = describe_fault(core_message)

        assert line.startswith("no connection to cluster:7233 (namespace 'baton'): ")
        assert meaning in line
        assert remedy in line
        assert "baton dev" not in line

    def test_an_address_without_a_port_is_reported(self) -> None:
        """The SDK would try port 80."""
        assert "write TEMPORAL_ADDRESS" in describe_fault("refused", address="localhost")

    def test_an_unreachable_server_can_be_started(self) -> None:
        """The innermost message of the system gives the reason."""
        refused = 'ConnectError("tcp connect error", 127.0.0.1:1, Os { code: 111, message: "Connection refused" })'

        line = describe_fault(TRANSPORT.format(refused))

        assert line.startswith(
            "no Temporal server answers at cluster:7233 (namespace 'baton'): Connection refused. "
            "Start one with `baton dev`"
        )
