"""Attacks on relay files, by who handles one on the way and by a company that is trusted and lies."""

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from baton.handoff.store_order import MAX_ORDER_BYTES, Order, OrderError, open_order, sign_message, write_order
from baton.handoff.store_signing import seal
from baton.keys.store_keyring import Keyring
from baton.keys.store_keys import PublicKeys, Purpose
from baton.ledger.chain import ChainHead
from baton.wire.json_values import canonical_json, digest, loads_strict
from tests.handoff.material import EXAMPLE, TASK_ID
from tests.ledger.material import chain, head

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
ACME, MALLORY = Keyring.generate(), Keyring.generate()
TRUST = ACME.public()
CONTRACT = {"task": "Score it", "facts": [], "allowedTools": [], "forbiddenTools": []}
DIFF = {"id": "diff", "type": "diff", "hash": "0f" * 32}


def message() -> dict[str, Any]:
    """Return a handoff to another company, not yet signed."""
    return {**EXAMPLE, "step": {"contract": CONTRACT, "inputs": {"change": DIFF}}}


def signed_head(keyring: Keyring = ACME, task_id: str = TASK_ID) -> ChainHead:
    return head(chain(3, task_id=task_id, ledger="acme", signer=keyring.signer()))


def order(keyring: Keyring = ACME, **changes: Any) -> dict[str, Any]:
    """Return a genuine order as JSON."""
    made = sign_message(message() | changes, keyring)
    return dict(loads_strict(write_order(made, signed_head(keyring), keyring, at=NOW)))


def resealed(members: dict[str, Any], keyring: Keyring = ACME) -> bytes:
    """Return an order after a trusted signer changed it: the whole is signed again, as it is."""
    body = {name: value for name, value in members.items() if name not in ("keyId", "signature")}
    return seal(body, keyring, purpose=Purpose.SIGN)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the paths of all members of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    paths = [path] if path else []
    return paths + [below for name, member in items for below in leaves(member, (*path, name))]


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for name in path:
        value = value[name]
    return value


def changed(value: Any) -> Any:
    """Return another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value[:-1] + ("A" if value[-1:] != "A" else "B")
        case None:
            return "something"
        case list():
            return [*value, "more"]
        case _:
            return {**value, "more": 1}


GENUINE = order()


class TestGenuine:
    def test_it_opens_with_the_public_keys_alone(self) -> None:
        """Its message is what was signed, and receipts name these bytes."""
        opened = open_order(json.dumps(GENUINE).encode(), TRUST)

        assert opened.raw == canonical_json(GENUINE["message"])
        assert opened.receiver == GENUINE["message"]["toAgent"]["agentType"]
        assert [artifact.id for artifact in opened.order.artifacts] == ["diff"]

    @pytest.mark.parametrize(
        "rewritten",
        [
            pytest.param(lambda: json.dumps(GENUINE, indent=7), id="indented"),
            pytest.param(lambda: json.dumps(GENUINE, sort_keys=True), id="sorted"),
            pytest.param(lambda: json.dumps(GENUINE, indent=1).replace("\n", "\r\n"), id="with other line breaks"),
            pytest.param(lambda: json.dumps(GENUINE, ensure_ascii=True), id="with escapes"),
        ],
    )
    def test_a_mail_program_may_rewrite_its_form(self, rewritten: Callable[[], str]) -> None:
        """The signatures are over the canonical form."""
        assert open_order(rewritten().encode(), TRUST).raw == canonical_json(GENUINE["message"])


class TestOnTheWay:
    @pytest.mark.parametrize("path", leaves(GENUINE), ids=lambda path: "/".join(map(str, path)))
    def test_every_changed_member_is_refused(self, path: tuple[str | int, ...]) -> None:
        """Wherever somebody who has no key changes it."""
        forged = copy.deepcopy(GENUINE)
        at(forged, path[:-1])[path[-1]] = changed(at(forged, path))
        with pytest.raises(OrderError):
            open_order(json.dumps(forged).encode(), TRUST)

    @pytest.mark.parametrize("path", leaves(GENUINE), ids=lambda path: "/".join(map(str, path)))
    def test_every_missing_member_is_refused(self, path: tuple[str | int, ...]) -> None:
        """Also those that a schema would not miss."""
        forged = copy.deepcopy(GENUINE)
        del at(forged, path[:-1])[path[-1]]
        with pytest.raises(OrderError):
            open_order(json.dumps(forged).encode(), TRUST)

    def test_a_changed_digest_is_named_with_both_values(self) -> None:
        """What was found, what was expected, and what to do."""
        forged = copy.deepcopy(GENUINE)
        forged["message"]["taskDescription"] = "Pay Mallory"
        with pytest.raises(OrderError) as refused:
            open_order(json.dumps(forged).encode(), TRUST)

        assert GENUINE["digests"]["message"] in str(refused.value)
        assert "Mallory" not in str(refused.value)

    @pytest.mark.parametrize(
        "data",
        [
            pytest.param(b"", id="nothing"),
            pytest.param(b"[]", id="a list"),
            pytest.param(b"{}", id="an empty object"),
            pytest.param(b'{"format": "baton.order/1", "format": "baton.order/1"}', id="a member twice"),
            pytest.param(b"[" * 100_000, id="too deep"),
            pytest.param(b'{"a": ' + b"9" * 10_000 + b"}", id="a long number"),
            pytest.param(b"\xff\xfe", id="not UTF-8"),
            pytest.param(json.dumps({**GENUINE, "more": 1}).encode(), id="one member more"),
            pytest.param(json.dumps({**GENUINE, "format": "baton.order/2"}).encode(), id="another format"),
            pytest.param(json.dumps({**GENUINE, "artifacts": [DIFF] * 1_001}).encode(), id="too many artifacts"),
            pytest.param(json.dumps(GENUINE).encode() + b" " * MAX_ORDER_BYTES, id="too large"),
            pytest.param(
                json.dumps({**GENUINE, "message": {str(n): n for n in range(60_000)}}).encode(), id="too many values"
            ),
        ],
    )
    def test_what_is_not_an_order_is_refused(self, data: bytes) -> None:
        """Within bounds, and by an error of its own."""
        with pytest.raises(OrderError):
            open_order(data, TRUST)


class TestOtherSigners:
    def test_an_order_by_somebody_else_is_refused(self) -> None:
        """The public key in the file proves nothing."""
        with pytest.raises(OrderError, match="not among the trusted ones"):
            open_order(json.dumps(order(MALLORY)).encode(), TRUST)

    def test_a_name_of_a_trusted_key_is_not_that_key(self) -> None:
        """A forger may call their key as they like."""
        forged = loads_strict(resealed(GENUINE, MALLORY)) | {"keyId": GENUINE["keyId"]}
        with pytest.raises(OrderError):
            open_order(json.dumps(forged).encode(), TRUST)

    def test_a_seal_with_a_shared_secret_is_refused(self) -> None:
        """Others could not verify it, and whoever can could make it."""
        body = {name: value for name, value in GENUINE.items() if name not in ("keyId", "signature")}
        with pytest.raises(OrderError):
            open_order(seal(body, ACME), TRUST)

    def test_without_trusted_keys_nothing_opens(self) -> None:
        """An empty list trusts nobody."""
        with pytest.raises(OrderError, match="none"):
            open_order(json.dumps(GENUINE).encode(), PublicKeys([]))


class TestTrustedLiars:
    """A company that is trusted signs what does not hold together; the receiver finds it all the same."""

    @pytest.mark.parametrize(
        "lie",
        [
            pytest.param(
                {"digests": {**GENUINE["digests"], "message": f"sha256:{'00' * 32}"}}, id="digest of a message"
            ),
            pytest.param({"digests": {**GENUINE["digests"], "contract": f"sha256:{'00' * 32}"}}, id="of a contract"),
            pytest.param({"artifacts": []}, id="no artifacts"),
            pytest.param({"artifacts": [{**DIFF, "hash": "1e" * 32}]}, id="other artifacts"),
            pytest.param({"head": signed_head(MALLORY).to_json_object()}, id="another's head"),
            pytest.param({"head": signed_head(task_id="another").to_json_object()}, id="the head of another task"),
            pytest.param(
                {"head": signed_head().model_copy(update={"signature": None}).model_dump(exclude_none=True)},
                id="an unsigned head",
            ),
            pytest.param({"head": {**signed_head().to_json_object(), "sequence": 4}}, id="a head that moved"),
            pytest.param({"key": MALLORY.current(Purpose.SIGN).public.to_jwk()}, id="another's key"),
        ],
    )
    def test_a_part_that_does_not_fit_is_refused(self, lie: dict[str, Any]) -> None:
        """Though the signature over the whole holds."""
        with pytest.raises(OrderError):
            open_order(resealed({**GENUINE, **lie}), TRUST)

    def test_a_message_by_somebody_else_is_refused(self) -> None:
        """Who signs the order signs its message, or could forward what they may not order."""
        with pytest.raises(OrderError, match=MALLORY.current(Purpose.SIGN).id):
            open_order(write_order(order(MALLORY)["message"], signed_head(), ACME, at=NOW), TRUST)

    def test_a_message_for_a_run_of_the_sender_is_refused(self) -> None:
        """A handoff between stages, which somebody took from a history, is not an order."""
        inner = loads_strict(seal(message(), ACME, "default", purpose=Purpose.SIGN))
        with pytest.raises(OrderError):
            open_order(write_order(inner, signed_head(), ACME, at=NOW), TRUST)

    def test_a_message_without_a_contract_is_refused(self) -> None:
        """Nothing says what its receiver may know."""
        bare = sign_message({**message(), "step": {}}, ACME)
        digests = {**GENUINE["digests"], "message": digest(bare)}
        whole = {**GENUINE, "message": bare, "digests": digests, "artifacts": []}
        with pytest.raises(OrderError, match="contract"):
            open_order(resealed(whole), TRUST)

    def test_an_order_that_is_too_large_is_not_written(self) -> None:
        """Its receiver would not read it."""
        large = sign_message(message() | {"taskDescription": "x" * MAX_ORDER_BYTES}, ACME)
        with pytest.raises(OrderError, match="bytes"):
            write_order(large, signed_head(), ACME, at=NOW)


def test_the_members_are_those_that_are_attacked() -> None:
    """A new member would be attacked too."""
    assert set(GENUINE) == {field.alias for field in Order.model_fields.values()}
