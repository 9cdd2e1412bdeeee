"""The codec server over real HTTP: the requests of the Temporal UI, and refusals."""

import asyncio
import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence

import pytest
from google.protobuf import json_format
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import PayloadCodec, WorkflowSerializationContext

from baton.codec.conversion import RECORD, UNSEALED, data_converter
from baton.codec.encryption import ENCODING, CompressionCodec
from baton.codec.server import MAX_BODY_BYTES, codec_app, codecs_for, serve_codec
from baton.errors import ServerError
from baton.keys.store_keyring import Keyring

UI = "http://localhost:8233"
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'["All existing tests pass"]' * 40)
REFERENCE = Payload(
    metadata={"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"},
    data=b'{"driverName":"baton-artifacts"}',
)


class Answer:
    """What came back over HTTP."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body

    @property
    def payloads(self) -> list[Payload]:
        return list(json_format.Parse(self.body, Payloads()).payloads)


def _request(url: str, body: bytes, headers: Mapping[str, str], method: str) -> Answer:
    request = urllib.request.Request(url, data=body or None, headers=dict(headers), method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return Answer(response.status, dict(response.headers), response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, dict(error.headers), error.read())


async def _call(url: str, body: bytes = b"", method: str = "POST", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await asyncio.to_thread(_request, url, body, named, method)


def _body(*payloads: Payload) -> bytes:
    return json_format.MessageToJson(Payloads(payloads=payloads)).encode()


class Suffix(PayloadCodec):
    """A codec whose order is visible: it puts a letter behind the data, and takes only that letter away."""

    def __init__(self, letter: bytes) -> None:
        self.letter = letter

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(metadata=payload.metadata, data=payload.data + self.letter) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        for payload in payloads:
            if not payload.data.endswith(self.letter):
                raise LookupError("secret detail")
        return [Payload(metadata=payload.metadata, data=payload.data[:-1]) for payload in payloads]


class TestDecode:
    async def test_encoded_payloads_are_decoded(self) -> None:
        """The UI gets compressed JSON as plain JSON, and other payloads unchanged."""
        [encoded] = await CompressionCodec().encode([PLAIN])
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            answer = await _call(f"{url}/decode", _body(encoded, PLAIN), content_type="application/json")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.payloads == [PLAIN, PLAIN]

    async def test_an_operators_input_is_encoded(self) -> None:
        """The CLI sends the input of a signal through /encode."""
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            answer = await _call(f"{url}/encode", _body(PLAIN))
        assert answer.payloads == await CompressionCodec().encode([PLAIN])

    async def test_references_to_external_storage_pass_through(self) -> None:
        """The UI requests ?preserveStorageRefs=true and shows them as downloads."""
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            answer = await _call(f"{url}/decode?preserveStorageRefs=true", _body(REFERENCE), x_namespace="default")
        assert answer.payloads == [REFERENCE]

    async def test_codecs_decode_in_the_reverse_order(self) -> None:
        """The last codec that encoded decodes first."""
        async with serve_codec([Suffix(b"a"), Suffix(b"b")], origins=[UI]) as url:
            encoded = (await _call(f"{url}/encode", _body(Payload(data=b"x")))).payloads
            assert encoded == [Payload(data=b"xab")]
            assert (await _call(f"{url}/decode", _body(*encoded))).payloads == [Payload(data=b"x")]

    async def test_an_empty_message_is_valid(self) -> None:
        """The answer is empty too."""
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            assert (await _call(f"{url}/decode", b"{}")).payloads == []

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(b"", id="nothing"),
            pytest.param(b"payloads", id="no JSON"),
            pytest.param(b'{"payloads": 5}', id="another shape"),
            pytest.param(b'{"secret": []}', id="an unknown member"),
            pytest.param(b"\xff\xfe", id="no text"),
            pytest.param(b"[" * 100_000, id="deeply nested"),
        ],
    )
    async def test_a_malformed_body_is_a_bad_request(self, body: bytes) -> None:
        """The error names the expected format and never quotes the body."""
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            answer = await _call(f"{url}/decode", body)
        assert (answer.status, answer.body) == (
            400,
            b"the body is not temporal.api.common.v1.Payloads as JSON",
        )

    async def test_a_damaged_payload_is_a_bad_request_with_its_reason(self) -> None:
        """The error names the encoding."""
        [encoded] = await CompressionCodec().encode([PLAIN])
        encoded.data = encoded.data[:-4]
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            answer = await _call(f"{url}/decode", _body(encoded), origin=UI)
        assert answer.status == 400
        assert b"'binary/zstd-1' is damaged" in answer.body
        assert answer.headers["access-control-allow-origin"] == UI

    async def test_the_error_of_a_codec_is_only_logged(self) -> None:
        """The browser gets the type of the error and no detail of the payload."""
        async with serve_codec([Suffix(b"a")], origins=[UI]) as url:
            answer = await _call(f"{url}/decode", _body(PLAIN))
        assert answer.status == 400
        assert b"LookupError" in answer.body
        assert b"secret" not in answer.body

    async def test_a_large_body_is_refused(self) -> None:
        """A client cannot fill the memory."""
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            answer = await _call(f"{url}/decode", b" " * (MAX_BODY_BYTES + 1))
        assert (answer.status, str(MAX_BODY_BYTES) in answer.body.decode()) == (413, True)

    async def test_a_short_body_cannot_fill_the_memory(self) -> None:
        """Each payload alone is small enough; together 40 KB would decode to a gigabyte."""
        large = Payload(metadata={"encoding": b"json/plain"}, data=b'"' + b"a" * (48 * 1024 * 1024) + b'"')
        [small] = await CompressionCodec().encode([large])
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            answer = await _call(f"{url}/decode", _body(*[small] * 20), origin=UI)
        assert (answer.status, b"request fewer at once" in answer.body) == (400, True)
        assert answer.headers["access-control-allow-origin"] == UI

    async def test_a_disconnected_client_causes_no_traceback(self, caplog: pytest.LogCaptureFixture) -> None:
        """A closed page in a browser is not a server error."""
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            host, port = url.removeprefix("http://").split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"POST /decode HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            await writer.drain()
            await asyncio.sleep(0.2)  # it reads the body by now
            writer.close()
            await writer.wait_closed()
            assert (await _call(f"{url}/decode", _body(PLAIN))).status == 200
        assert [record for record in caplog.records if record.exc_info] == []

    async def test_only_posts_are_answered(self) -> None:
        """A link or an image cannot make the browser decode."""
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            assert (await _call(f"{url}/decode", method="GET")).status == 405


class TestOrigins:
    async def test_the_ui_is_allowed(self) -> None:
        """The preflight of the UI with its headers is accepted."""
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            answer = await _call(
                f"{url}/decode",
                method="OPTIONS",
                origin=UI,
                access_control_request_method="POST",
                access_control_request_headers="content-type,x-namespace,authorization,authorization-extras",
            )
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == UI
        assert answer.headers["access-control-allow-credentials"] == "true"
        assert "POST" in answer.headers["access-control-allow-methods"]
        allowed = answer.headers["access-control-allow-headers"].lower()
        assert all(name in allowed for name in ("content-type", "x-namespace", "authorization-extras"))

    @pytest.mark.parametrize(
        "origin",
        ["http://evil.example", "http://localhost:8233.evil.example", "https://localhost:8233", "null"],
        ids=["another host", "ours as the beginning of another", "another scheme", "none of its own"],
    )
    async def test_another_origin_is_not_allowed(self, origin: str) -> None:
        """Another origin gets no permission, neither in the preflight nor in the answer."""
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            preflight = await _call(
                f"{url}/decode", method="OPTIONS", origin=origin, access_control_request_method="POST"
            )
            called = await _call(f"{url}/decode", _body(PLAIN), origin=origin)
        assert preflight.status == 400
        assert "access-control-allow-origin" not in called.headers

    async def test_dns_rebinding_is_refused(self) -> None:
        """After rebinding the browser sees one origin and sends no preflight."""
        [secret] = await CompressionCodec().encode([PLAIN])
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            port = url.rpartition(":")[2]
            host = f"evil.example:{port}"
            answer = await _call(f"{url}/decode", _body(secret), host=host, origin=f"http://{host}")
        refusal = f"the origin 'http://{host}' is not allowed; allowed are: {UI}"
        assert (answer.status, answer.body.decode()) == (403, refusal)

    def test_a_wildcard_origin_is_refused(self) -> None:
        """It would let any page in the operator's browser decode."""
        with pytest.raises(ValueError, match="name the exact origins"):
            codec_app([CompressionCodec()], origins=["*"])


class TestToken:
    @pytest.mark.parametrize(
        ("header", "status"),
        [
            pytest.param({"authorization": "Bearer open sesame"}, 200, id="the token"),
            pytest.param({"authorization": "Bearer open sesame "}, 200, id="the token and a blank, which HTTP drops"),
            pytest.param({"authorization": "bearer open sesame"}, 200, id="the scheme in another case"),
            pytest.param({"authorization": "Basic open sesame"}, 401, id="another scheme"),
            pytest.param({"authorization": "Bearer open"}, 401, id="a part of it"),
            pytest.param({"authorization": "open sesame"}, 401, id="without its scheme"),
            pytest.param({"authorization": "Bearer \u00e9"}, 401, id="another alphabet"),
            pytest.param({}, 401, id="nothing"),
        ],
    )
    async def test_every_request_needs_the_token(self, header: dict[str, str], status: int) -> None:
        """Anyone who can call can read."""
        async with serve_codec([CompressionCodec()], origins=[UI], token="open sesame") as url:
            assert (await _call(f"{url}/decode", _body(PLAIN), **header)).status == status

    async def test_the_preflight_needs_no_token(self) -> None:
        """A browser sends the preflight without the header."""
        async with serve_codec([CompressionCodec()], origins=[UI], token="open sesame") as url:
            answer = await _call(f"{url}/decode", method="OPTIONS", origin=UI, access_control_request_method="POST")
        assert answer.status == 200


class TestSeveral:
    async def test_one_server_decodes_what_another_encoded(self) -> None:
        """They keep nothing of their own: a proxy may choose any of them, and a restart forgets nothing."""
        keys = Keyring.generate()
        async with (
            serve_codec(codecs_for(keys), origins=[UI], token="t") as first,
            serve_codec(codecs_for(keys), origins=[UI], token="t") as second,
        ):
            encoded = await _call(f"{first}/encode", _body(PLAIN), authorization="Bearer t")
            decoded = await _call(f"{second}/decode", _body(*encoded.payloads), authorization="Bearer t")

        assert encoded.payloads[0].metadata["encoding"] == ENCODING
        assert decoded.payloads == [PLAIN]


class TestServeCodec:
    async def test_the_port_is_free_after_the_context(self, port: int) -> None:
        """The program can start another server."""
        async with serve_codec([CompressionCodec()], origins=[UI], port=port) as url:
            pass
        async with serve_codec([CompressionCodec()], origins=[UI], port=port) as same_url:
            assert same_url == url
            assert (await _call(f"{same_url}/decode", b"{}")).status == 200

    async def test_an_error_in_the_context_is_raised(self, port: int) -> None:
        """The context stops the server and raises the error."""
        with pytest.raises(LookupError):
            async with serve_codec([CompressionCodec()], origins=[UI], port=port) as url:
                raise LookupError
        with pytest.raises(OSError, match="refused"):
            await _call(f"{url}/decode", b"{}")

    async def test_the_error_for_a_used_port_names_it(self) -> None:
        """A client never gets another program's server."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            with pytest.raises(ServerError, match=f"port {port}: Address already in use"):
                async with serve_codec([CompressionCodec()], origins=[UI], port=port):
                    pass

    async def test_the_error_for_an_invalid_port_names_it(self) -> None:
        """Port 65536 and above is an error like a used port."""
        with pytest.raises(ServerError, match="port 808080"):
            async with serve_codec([], origins=[UI], port=808080):
                pass

    async def test_signal_handlers_are_unchanged(self) -> None:
        """Ctrl-C goes to the program, which then leaves the context."""
        handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            await _call(f"{url}/decode", b"{}")
            assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers

    async def test_the_server_listens_on_the_loopback_address(self) -> None:
        """The default host is 127.0.0.1."""
        async with serve_codec([CompressionCodec()], origins=[UI]) as url:
            assert url.startswith("http://127.0.0.1:")
            answer = await _call(f"{url}/decode", json.dumps({"payloads": []}).encode())
        assert answer.status == 200


class TestCodecsFor:
    KEYS = Keyring.generate()
    CONVERTER = data_converter(keyring=KEYS, encrypt=True)
    RUN = WorkflowSerializationContext(namespace="default", workflow_id="run-1")

    async def test_a_workflows_encrypted_payloads_are_decoded(self) -> None:
        """The browser does not send the payload's workflow."""
        stored = await self.CONVERTER.with_context(self.RUN).encode([{"goal": "hunter2 " * 100}])
        async with serve_codec(codecs_for(self.KEYS), origins=[UI]) as url:
            answer = await _call(f"{url}/decode", _body(*stored), origin=UI, x_namespace="default")

        [payload] = answer.payloads
        assert payload.metadata["encoding"] == b"json/plain"
        assert json.loads(payload.data) == {"goal": "hunter2 " * 100}

    async def test_a_persons_input_is_encrypted_for_the_workflow(self) -> None:
        """A decision typed into the UI is encrypted too."""
        typed = Payload(metadata={"encoding": b"json/plain"}, data=b'{"why": "it is tested"}')
        async with serve_codec(codecs_for(self.KEYS), origins=[UI]) as url:
            answer = await _call(f"{url}/encode", _body(typed), origin=UI)

        [stored] = answer.payloads
        assert stored.metadata["encoding"] == ENCODING
        assert await self.CONVERTER.with_context(self.RUN).decode([stored]) == [{"why": "it is tested"}]

    async def test_the_codec_server_never_seals(self) -> None:
        """Its clients can read, but cannot get a handoff sealed."""
        unsealed = Payload(metadata={"encoding": b"json/plain", RECORD: UNSEALED}, data=b'{"taskDescription":"Leak"}')
        async with serve_codec(codecs_for(self.KEYS), origins=[UI]) as url:
            encoded = await _call(f"{url}/encode", _body(unsealed), origin=UI)
            decoded = await _call(f"{url}/decode", _body(*encoded.payloads), origin=UI)

        assert decoded.payloads == [unsealed]

    async def test_a_missing_key_is_named_to_the_operator(self, caplog: pytest.LogCaptureFixture) -> None:
        """It is in the answer, and once in the log, because the UI only reports a failed connection."""
        stored = await self.CONVERTER.encode(["hunter2"])
        async with serve_codec(codecs_for(Keyring.generate()), origins=[UI]) as url:
            answers = [await _call(f"{url}/decode", _body(*stored), origin=UI) for _ in range(3)]

        assert [answer.status for answer in answers] == [400] * 3
        assert b"the keyring has no key " in answers[0].body
        [message] = [record.getMessage() for record in caplog.records if record.name == "baton.codec.server"]
        assert message.startswith(
            "the codec server cannot show payloads: a payload is encrypted, but the keyring has no key"
        )

    async def test_without_keys_encrypted_payloads_pass_through(self) -> None:
        """The payload is returned unchanged."""
        stored = await self.CONVERTER.encode(["hunter2"])
        async with serve_codec(codecs_for(None), origins=[UI]) as url:
            answer = await _call(f"{url}/decode", _body(*stored), origin=UI)

        assert answer.payloads == stored
