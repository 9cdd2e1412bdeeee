"""Attestations of records, read and verified by the libraries that others verify with, none of ours."""

import base64
import hashlib
import json
from typing import Any

import pytest
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

from baton.ledger.attestations import PAYLOAD_TYPE, PROVENANCE, RECORD, attest
from baton.ledger.records import AuditEntry, AuditRecord, Kind
from tests.ledger.material import KEY, NOW, TASK, Key, chain, completion_entry, entry, message

COMMIT, BASE = "ab" * 20, "cd" * 20
DIFF = {"id": "diff", "type": "diff", "hash": "0f" * 32, "size": 12}
OFFERED = {"offered": True, "branch": "baton/add", "commit": COMMIT, "base": BASE}
TRUSTED = SSlibKey.from_crypto(KEY.private.public_key(), keyid=KEY.key_id)


def verified(line: bytes, key: Any = TRUSTED) -> dict[str, Any]:
    """Return the statement in an envelope, as the usual libraries verify and read it."""
    envelope = Envelope.from_dict(json.loads(line))
    envelope.verify([key], 1)
    assert envelope.payload_type == PAYLOAD_TYPE
    Statement.copy_from_pb(json_format.Parse(envelope.payload, statement_pb2.Statement())).validate()
    statement: dict[str, Any] = json.loads(envelope.payload)
    return statement


def delivered(**offered: Any) -> list[AuditRecord]:
    """Return the records of a task whose last stage offered a branch after a person approved."""
    order = message(0, step={"params": {"repository": "/srv/app", "patch": "+" * 600}}, currentState={"goal": "Add"})
    approval = AuditEntry(
        kind=Kind.DECISION, task_id=TASK, event_id="q-1", status="APPROVE", timestamp=NOW, actor="ann", message={}
    )
    answer = {"output": OFFERED | offered, "baton_patch": {"artifacts": [DIFF]}}
    return chain(entries=[entry(0, message=order), approval, completion_entry(answer, agent="offer-branch")])


class TestAttest:
    def test_each_record_is_one_statement_that_others_verify(self) -> None:
        """The header is whole, so that the chain can be followed, and the message is only a digest."""
        records = chain(4)
        statements = [verified(line) for line in attest(records, KEY)]

        assert [statement["predicateType"] for statement in statements] == [RECORD] * 4
        assert [statement["predicate"]["header"] for statement in statements] == [record.members for record in records]
        for statement, record in zip(statements, records, strict=True):
            assert statement["predicate"]["recordHash"] == f"sha256:{record.hash.hex()}"
            [subject] = statement["subject"]
            assert subject["digest"] == {"sha256": hashlib.sha256(record.message).hexdigest()}

    def test_the_subjects_are_the_artifacts(self) -> None:
        """Wherever the message has them, each once: a verifier finds the statement by the file's own digest."""
        plan = {"id": "plan", "type": "plan", "hash": "1e" * 32}
        state = {"currentState": {"artifacts": [plan, DIFF]}, "step": {"inputs": {"change": [DIFF]}}}
        record = chain(entries=[entry(0, message=message(0, **state))])
        [statement] = map(verified, attest(record, KEY))

        assert statement["subject"] == [
            {"name": "plan", "digest": {"sha256": "1e" * 32}},
            {"name": "diff", "digest": {"sha256": "0f" * 32}},
        ]

    @pytest.mark.parametrize(
        "like",
        [
            pytest.param({"id": "a", "type": "b", "hash": "short"}, id="another hash"),
            pytest.param({"id": "a", "type": "b", "hash": "0f" * 32, "by": "c"}, id="more members"),
        ],
    )
    def test_what_only_looks_like_an_artifact_is_no_subject(self, like: dict[str, str]) -> None:
        """A record says what it refers to in one form only."""
        [statement] = map(verified, attest(chain(entries=[entry(0, message={"state": like})]), KEY))

        assert [subject["name"] for subject in statement["subject"]] == [f"{TASK}/1"]

    def test_no_text_of_a_message_is_in_a_statement(self) -> None:
        """Whoever gets it learns who handed on when, at what cost, and nothing else."""
        [line] = attest(chain(entries=[entry(0, message=message(0, taskDescription="a secret plan"))]), KEY)

        assert "secret plan" not in json.dumps(verified(line))

    @pytest.mark.parametrize("part", ["payload", "payloadType", "signatures"])
    def test_a_changed_envelope_is_refused(self, part: str) -> None:
        """By the verifier's library, whichever member is changed."""
        [line] = attest(chain(1), KEY)
        envelope = json.loads(line)
        changes = {
            "payload": base64.b64encode(base64.b64decode(envelope["payload"]).replace(b"agent-0", b"agent-9")).decode(),
            "payloadType": "application/json",
            "signatures": [{**envelope["signatures"][0], "sig": base64.b64encode(bytes(64)).decode()}],
        }
        with pytest.raises(VerificationError):
            Envelope.from_dict({**envelope, part: changes[part]}).verify([TRUSTED], 1)

    def test_another_key_of_that_name_verifies_nothing(self) -> None:
        """The name of a key proves nothing."""
        [line] = attest(chain(1), KEY)
        other = SSlibKey.from_crypto(Key("other").private.public_key(), keyid=KEY.key_id)
        with pytest.raises(VerificationError):
            verified(line, other)


class TestProvenance:
    def test_an_offered_branch_has_one(self) -> None:
        """In SLSA's form: the commit, its base, the parameters, who approved, the diffs and test runs."""
        statements = [verified(line) for line in attest(delivered(), KEY)]
        assert [statement["predicateType"] for statement in statements] == [RECORD, RECORD, RECORD, PROVENANCE]
        predicate = statements[-1]["predicate"]
        json_format.ParseDict(predicate, provenance_pb2.Provenance())
        build, details = predicate["buildDefinition"], predicate["runDetails"]

        assert statements[-1]["subject"] == [{"name": "refs/heads/baton/add", "digest": {"gitCommit": COMMIT}}]
        assert build["resolvedDependencies"] == [{"digest": {"gitCommit": BASE}, "uri": "/srv/app"}]
        assert build["externalParameters"]["goal"] == "Add"
        assert set(build["externalParameters"]["patch"]) == {"digest"}
        assert [decision["actor"] for decision in build["internalParameters"]["decisions"]] == ["ann"]
        assert details["byproducts"] == [{"name": "diff", "digest": {"sha256": "0f" * 32}}]

    @pytest.mark.parametrize(
        "offered",
        [
            pytest.param({"offered": False}, id="withdrawn"),
            pytest.param({"commit": "main"}, id="no commit"),
            pytest.param({"branch": 7}, id="no branch"),
            pytest.param({"base": None}, id="no base"),
        ],
    )
    def test_anything_else_that_a_stage_returns_has_none(self, offered: dict[str, Any]) -> None:
        """A statement without a digest of what was made would prove nothing."""
        assert [verified(line)["predicateType"] for line in attest(delivered(**offered), KEY)] == [RECORD] * 3

    def test_a_failed_stage_offers_nothing(self) -> None:
        """Only what a stage returned counts."""
        failed = completion_entry({"output": OFFERED}, agent="offer-branch").model_copy(update={"status": "FAILED"})
        assert [verified(line)["predicateType"] for line in attest(chain(entries=[failed]), KEY)] == [RECORD]
