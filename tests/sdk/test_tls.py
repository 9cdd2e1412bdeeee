"""TLS connections through a proxy before the embedded server, as to a cluster's own certificate."""

import asyncio
import contextlib
import ipaddress
import ssl
import traceback
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from baton.client import Connection, connect
from baton.devserver import DevServer
from baton.errors import ServerError

NOW = datetime.now(UTC)
LOCALHOST = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, in files."""

    certificate: Path
    key: Path


class Authority:
    """An authority that signs certificates, with its own folder."""

    def __init__(self, folder: Path, name: str = "ours") -> None:
        self.folder, self.name = folder, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(self._sign(self.name, self.key, is_authority=True, ends=NOW + timedelta(days=1)))

    def issue(self, name: str, *names: x509.GeneralName, ends: datetime = NOW + timedelta(days=1)) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issued = Issued(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        issued.certificate.write_bytes(self._sign(subject, key, *names, ends=ends))
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return issued

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *names: x509.GeneralName,
        ends: datetime,
        is_authority: bool = False,
    ) -> bytes:
        builder = (
            x509.CertificateBuilder(self.name, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(NOW - timedelta(days=10))
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names or [x509.DNSName("nobody")]), critical=False)
        )
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Return the authority that this machine's client trusts."""
    trusted = Authority(tmp_path)
    monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", str(trusted.certificate))
    return trusted


@contextlib.asynccontextmanager
async def proxied(server: DevServer, certificate: Issued, clients: Authority | None = None) -> AsyncIterator[str]:
    """Serve TLS before the server; with ``clients``, only clients with a certificate of that authority pass."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    context.set_alpn_protocols(["h2"])
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.certificate)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        host, port = server.address.split(":")
        up, down = await asyncio.open_connection(host, int(port))
        with contextlib.closing(writer), contextlib.closing(down):
            await asyncio.gather(forward(reader, down), forward(up, writer))

    serving: list[asyncio.Task[None] | None] = []
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as proxy:
        try:
            yield f"localhost:{proxy.sockets[0].getsockname()[1]}"
        finally:
            for task in filter(None, serving):  # from Python 3.12 on, the server waits for its last connection
                task.cancel()


async def refusal(address: str) -> str:
    """Return the error of a connection to an address."""
    with pytest.raises(ServerError) as refused:
        await connect(Connection(address=address))
    return str(refused.value)


class TestTls:
    async def test_a_client_with_a_certificate_connects(
        self, server: DevServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each side shows a certificate of an authority that the other side trusts."""
        issued = authority.issue("client")
        monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", str(issued.certificate))
        monkeypatch.setenv("TEMPORAL_TLS_CLIENT_KEY_PATH", str(issued.key))

        async with proxied(server, authority.issue("server", *LOCALHOST), clients=authority) as address:
            client = await connect(Connection(address=address))

            assert await client.service_client.check_health()

    async def test_a_client_without_a_certificate_is_told_that_one_may_be_needed(
        self, server: DevServer, authority: Authority
    ) -> None:
        """The server closes the connection without a reason; the message says what to try."""
        async with proxied(server, authority.issue("server", *LOCALHOST), clients=authority) as address:
            message = await refusal(address)

        assert "TEMPORAL_TLS_CLIENT_CERT_PATH" in message
        assert "baton dev" not in message

    async def test_a_certificate_without_its_key_is_refused(
        self, authority: Authority, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The SDK checks it before it connects."""
        monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", str(authority.issue("client").certificate))

        assert "certificate and key cannot be used" in await refusal("localhost:1")

    async def test_an_expired_certificate_is_reported(self, server: DevServer, authority: Authority) -> None:
        """The server is not reported as unreachable."""
        expired = authority.issue("server", *LOCALHOST, ends=NOW - timedelta(days=1))

        async with proxied(server, expired) as address:
            assert "the server's certificate is not valid (Expired" in await refusal(address)

    async def test_a_certificate_for_another_name_is_reported_with_the_remedy(
        self, server: DevServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The variable in the message lets the client connect."""
        other = authority.issue("server", x509.DNSName("temporal.example.com"))

        async with proxied(server, other) as address:
            message = await refusal(address)
            monkeypatch.setenv("TEMPORAL_TLS_SERVER_NAME", "temporal.example.com")
            client = await connect(Connection(address=address))

            assert await client.service_client.check_health()
        assert "its name (TEMPORAL_TLS_SERVER_NAME)" in message

    async def test_an_unknown_authority_is_reported(
        self, server: DevServer, authority: Authority, tmp_path: Path
    ) -> None:
        """The remedy has the variable for the authority's certificate."""
        stranger = Authority(tmp_path, "theirs")

        async with proxied(server, stranger.issue("server", *LOCALHOST)) as address:
            message = await refusal(address)

        assert "is not valid (UnknownIssuer)" in message
        assert "TEMPORAL_TLS_SERVER_CA_CERT_PATH" in message

    async def test_tls_to_a_port_without_tls_is_reported(self, server: DevServer, authority: Authority) -> None:
        """The server is there, and does not use TLS."""
        assert "(TEMPORAL_TLS=true, or false)" in await refusal(server.address)

    async def test_a_connection_without_tls_is_told_that_it_may_be_needed(
        self, server: DevServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The message says how to switch it on."""
        monkeypatch.delenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH")

        async with proxied(server, authority.issue("server", *LOCALHOST)) as address:
            assert "whether it wants TLS (TEMPORAL_TLS=true" in await refusal(address)


class TestSettings:
    async def test_a_missing_configuration_file_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the defaults a misspelt path would silently lead to another server."""
        missing = tmp_path / "temporal.toml"

        with pytest.raises(ServerError, match=r"there is no connection file .*temporal\.toml"):
            Connection(config_file=missing).settings()
        monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(missing))
        with pytest.raises(ServerError, match=r"there is no connection file .*temporal\.toml"):
            Connection().settings()

    def test_an_unreadable_file_is_named_with_its_variable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The SDK raises the system's own error, without certificates or variables."""
        missing = str(tmp_path / "client.pem")
        monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", missing)
        monkeypatch.setenv("TEMPORAL_TLS_CLIENT_KEY_PATH", missing)

        with pytest.raises(ServerError, match=f"{missing}.*: No such file or directory; .*TEMPORAL_TLS_…"):
            Connection().settings()

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            pytest.param("api_key = my-secret", "string values must be quoted", id="no quotation marks"),
            pytest.param('api_key = "my-secret', "invalid basic string", id="one quotation mark"),
            pytest.param('api_key = ["my-secret"]', "expected a string", id="no text"),
        ],
    )
    def test_an_invalid_profile_is_reported_without_its_key(self, tmp_path: Path, line: str, why: str) -> None:
        """A worker's error ends in its log, where others read it."""
        file = tmp_path / "temporal.toml"
        file.write_text(f'[profile.default]\naddress = "localhost:1"\n{line}\n', encoding="utf-8")

        with pytest.raises(ServerError) as refused:
            Connection(config_file=file).settings()

        text = "".join(traceback.format_exception(refused.value))
        assert "secret" not in text
        assert "TOML parse error at line 3" in text
        assert why in text
        assert f"; check {file}" in text

    async def test_an_invalid_address_is_reported(self) -> None:
        """The SDK's `ValueError` would reach the operator as a traceback."""
        assert "this is not an address; write TEMPORAL_ADDRESS" in await refusal("localhost:99999")
