"""One JSON request over HTTP, over TLS as well."""

import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Thread

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from baton.agents.http_post import MOST_BYTES, checked_url, key_from, post_json
from baton.errors import AgentError
from tests.chat_server import Reply, chat_server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a certificate for this machine that nobody knows, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "models")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(made.public_bytes(pem) + secret)
    return path


@contextmanager
def secure_server(certificate: Path) -> Iterator[str]:
    """Serve an empty object over TLS while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(HTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Leave it: a client that does not trust us goes away."""

    server = Server(("127.0.0.1", 0), Handler)
    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trusted.load_cert_chain(certificate)
    server.socket = trusted.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class TestPostJson:
    """`post_json`."""

    async def test_a_certificate_that_nobody_knows_is_refused_for_good(self, certificate: Path) -> None:
        """The key is not sent to somebody who only says who they are."""
        with secure_server(certificate) as url, pytest.raises(AgentError, match="cannot be trusted") as raised:
            await post_json(url, {}, {"Authorization": "Bearer x"}, seconds=10)
        assert raised.value.permanent

    async def test_an_authority_of_ones_own_is_trusted(self, certificate: Path) -> None:
        """By its file."""
        with secure_server(certificate) as url:
            answered = await post_json(url, {}, {}, seconds=10, ca_file=str(certificate))

        assert (answered.status, answered.body) == (200, b"{}")

    @pytest.mark.parametrize("text", [None, "no certificate"], ids=["no file", "nothing in it"])
    async def test_a_file_without_certificates_is_named(self, tmp_path: Path, text: str | None) -> None:
        """The worker may lack it while another one has it."""
        file = tmp_path / "authority.pem"
        if text is not None:
            file.write_text(text)
        with pytest.raises(AgentError, match=r"no certificates in '.*authority\.pem' on this worker") as raised:
            await post_json("https://127.0.0.1:9/", {}, {}, seconds=10, ca_file=str(file))
        assert not raised.value.permanent

    async def test_an_answer_that_is_too_large_is_not_read_to_its_end(self) -> None:
        """The worker's memory is not the endpoint's to fill."""
        reply = Reply(b"x" * (MOST_BYTES + 1))
        with chat_server(reply) as server, pytest.raises(AgentError, match="more than") as raised:
            await post_json(server.url, {}, {}, seconds=30)
        assert raised.value.permanent

    async def test_a_key_in_clear_goes_to_no_proxy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Plain HTTP is for this machine only, whatever the environment says."""
        with chat_server(Reply({"said": "yes"})) as proxy, chat_server(Reply({"said": "no"})) as server:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url)
            answered = await post_json(server.url, {}, {"Authorization": "Bearer x"}, seconds=10)
            assert answered.body == b'{"said": "no"}'
            monkeypatch.undo()
            await post_json(proxy.url, {}, {}, seconds=10)


class TestCheckedUrl:
    """`checked_url`."""

    @pytest.mark.parametrize(
        ("url", "secret"),
        [
            pytest.param("https://models.example/v1", True, id="a key over TLS"),
            pytest.param("http://127.0.0.1:8080/v1", True, id="a key to this machine"),
            pytest.param("http://models.example/v1", False, id="no key"),
        ],
    )
    def test_what_gives_no_key_away_is_taken(self, url: str, secret: bool) -> None:
        """As it is."""
        assert checked_url(url, secret=secret) == url


class TestKeyFrom:
    """`key_from`."""

    def test_no_variable_is_no_key(self) -> None:
        """An endpoint of one's own may ask for none."""
        assert key_from(None) is None

    @pytest.mark.parametrize("key", ["sk-…-01234567", "sk-01\n234567"], ids=["cut by a page", "two lines"])
    def test_what_no_header_can_carry_is_told_by_the_name_of_its_variable(
        self, monkeypatch: pytest.MonkeyPatch, key: str
    ) -> None:
        """It was copied wrongly; nothing of it is said."""
        monkeypatch.setenv("MODELS_KEY", key)
        with pytest.raises(AgentError, match="'MODELS_KEY' of this worker holds characters") as raised:
            key_from("MODELS_KEY")
        assert "sk-" not in str(raised.value)


def test_the_port_loads_no_framework() -> None:
    """A worker whose agents need none does not pay for them, and needs no extra installed."""
    code = (
        "import sys, baton.agents.port, baton.agents.subprocess_agent\n"
        "print(*{'pydantic_ai', 'openai', 'genai_prices', 'agents', 'langgraph', 'httpx2'} & {*sys.modules})"
    )
    fresh = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert fresh.stdout.strip() == ""
