"""Why no connection came about, as the operator reads it."""

import pytest

from baton.runs.client_connection import connection_fault

TRANSPORT = "Failed client connect: Server connection error: tonic::transport::Error(Transport, {})"
CALL = "Failed client connect: `get_system_info` call error after connection: Status {{ code: {}, message: {} }}"
CERTIFICATE = TRANSPORT.format("ConnectError(Custom {{ kind: InvalidData, error: InvalidCertificate({}) }})")


def fault(said: str, *, address: str = "cluster:7233", tls: bool = True) -> str:
    """Return the line about what the SDK's core said."""
    return connection_fault(RuntimeError(said), {"target_host": address, "namespace": "baton", "tls": tls})


class TestConnectionFault:
    """`connection_fault`; what the core says is as version 1.35 says it."""

    @pytest.mark.parametrize(
        ("said", "meaning", "remedy"),
        [
            pytest.param(
                CERTIFICATE.format("ExpiredContext { time: UnixTime(2), not_after: UnixTime(1) }"),
                "the service's certificate has expired",
                "renew it, or set this machine's clock",
                id="an expired certificate",
            ),
            pytest.param(
                CERTIFICATE.format("UnknownIssuer"),
                "the service's certificate is of an authority that is not trusted here",
                "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
                id="another authority",
            ),
            pytest.param(
                CERTIFICATE.format(
                    'NotValidForNameContext { expected: DnsName("cluster"), presented: ["DnsName(\\"other.org\\")"] }'
                ),
                "the service's certificate is for another name, 'other.org'",
                "TEMPORAL_TLS_SERVER_NAME",
                id="another name",
            ),
            pytest.param(
                TRANSPORT.format("InconsistentKeys(KeyMismatch)"),
                "the client's key is not that of its certificate",
                "TEMPORAL_TLS_CLIENT_KEY_PATH",
                id="another key",
            ),
            pytest.param(
                TRANSPORT.format("PrivateKeyParseError"),
                "the client's certificate or key cannot be read",
                "unencrypted",
                id="an encrypted key",
            ),
            pytest.param(
                "Must have both client cert and private key or neither",
                "a client certificate without its key",
                "TEMPORAL_TLS_CLIENT_KEY_PATH",
                id="a certificate alone",
            ),
            pytest.param(
                TRANSPORT.format(
                    "ConnectError(Custom { kind: InvalidData, error: InvalidMessage(InvalidContentType) })"
                ),
                "it speaks no TLS at this port",
                "TEMPORAL_TLS=false",
                id="TLS towards a port without",
            ),
            pytest.param(
                CALL.format("Unauthenticated", '"Request unauthorized."'),
                "it refuses: Request unauthorized;",
                "TEMPORAL_API_KEY",
                id="a key that the service refuses",
            ),
            pytest.param(
                CALL.format(
                    "Internal",
                    '"protocol error: received message with invalid compression flag: 60 (valid flags are 0 and 1) '
                    'while receiving response with status: 401 Unauthorized", metadata: MetadataMap {}',
                ),
                "a proxy before it answers 401 Unauthorized;",
                "TEMPORAL_API_KEY",
                id="a key that a proxy refuses",
            ),
            pytest.param(
                CALL.format("Unavailable", '"protocol error: … while receiving response with status: 502 Bad Gateway"'),
                "a proxy answers 502 Bad Gateway;",
                "leads to a service that runs",
                id="a proxy before nothing",
            ),
            pytest.param(
                CALL.format("Unknown", '"transport error", source: Some(hyper::Error(Io, BrokenPipe))'),
                "it was closed before the service answered",
                "TEMPORAL_TLS_CLIENT_CERT_PATH",
                id="no client certificate",
            ),
            pytest.param(
                TRANSPORT.format('ConnectError(ConnectError("dns error", Custom { kind: Uncategorized, error: "…" }))'),
                "the host's name is not known",
                "check the address",
                id="an unknown host",
            ),
            pytest.param(
                "invalid target URL: invalid port number",
                "this is not an address (invalid port number)",
                "host:port",
                id="no address",
            ),
        ],
    )
    def test_it_says_what_is_wrong_and_what_to_do(self, said: str, meaning: str, remedy: str) -> None:
        """A server that answers and refuses is not told as one that is off."""
        line = fault(said)

        assert line.startswith(f"no connection to cluster:7233 (namespace 'baton'): {meaning}")
        assert remedy in line
        assert "baton dev" not in line

    def test_a_connection_without_tls_that_is_closed_may_want_it(self) -> None:
        """The remedy depends on what was tried."""
        line = fault(CALL.format("Internal", '"h2 protocol error: http2 error"'), tls=False)

        assert "does it want TLS? TEMPORAL_TLS=true" in line

    def test_an_address_without_a_port_is_told_as_that(self) -> None:
        """It would be tried at port 80."""
        refused = 'ConnectError("tcp connect error", 127.0.0.1:80, Os { code: 111, message: "Connection refused" })'

        line = fault(TRANSPORT.format(refused), address="localhost", tls=False)

        assert "the address has no port; write TEMPORAL_ADDRESS" in line

    def test_where_nobody_listens_a_server_can_be_started(self) -> None:
        """The innermost message of the system's says what happened."""
        refused = 'ConnectError("tcp connect error", 127.0.0.1:1, Os { code: 111, message: "Connection refused" })'

        line = fault(TRANSPORT.format(refused))

        assert line.startswith(
            "no Temporal server answers at cluster:7233 (namespace 'baton'): Connection refused. "
            "Start one with `baton dev`"
        )
