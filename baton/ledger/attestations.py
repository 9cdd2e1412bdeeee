"""Records of the ledger as in-toto attestations: statements in DSSE envelopes, which the usual verifiers read.

A statement repeats a record's header and hash, and no text of its message. Its subjects are the artifacts that the
message refers to, by their SHA-256; a record without any is about its message. Where a stage offered a git branch, as
the shipped `delivery` does, one more statement is its provenance in the form of SLSA, made of the records up to then.
It says what the ledger has, not that the machine which ran the stage was isolated.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import rfc8785

from baton.core.artifacts import ArtifactRef, find_artifacts
from baton.keys.claims import HeadSigner
from baton.ledger.records import AuditRecord, Kind
from baton.wire.base64url import to_base64url
from baton.wire.json_values import canonical_json, digest, format_digest, pae

PAYLOAD_TYPE = "application/vnd.in-toto+json"
"""The type of an envelope's payload."""
STATEMENT = "https://in-toto.io/Statement/v1"
"""The `_type` of a statement."""
RECORD = "urn:baton:predicate:audit-record:1"
"""The predicate of a statement about a record: its `header`, its hash, its place and the signature of its head."""
PROVENANCE = "https://slsa.dev/provenance/v1"
"""The predicate of a branch's provenance."""
BUILD_TYPE = "urn:baton:build:branch:1"
"""How a branch is made: by the stages of a task, whose parameters and digests are in the provenance."""

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MAX_PARAMETER_BYTES = 500  # of a longer one the provenance has the digest, as a handoff of an output


def attest(records: Sequence[AuditRecord], signer: HeadSigner) -> Iterator[bytes]:
    """Yield the envelopes of a task's verified records in order, a line of JSON each, and of the branches it offered.

    Args:
        records: The records, of an unbroken chain.
        signer: The ledger's key.
    """
    for number, record in enumerate(records, 1):
        yield envelope(_record_statement(record), signer)
        if (offered := _offered_branch(record)) is not None:
            yield envelope(_provenance(records[:number], offered), signer)


def envelope(statement: Mapping[str, Any], signer: HeadSigner) -> bytes:
    """Return a statement in a signed DSSE envelope, as a line of JSON."""
    payload, key_id = canonical_json(dict(statement)), signer.key_id  # the id first: a rotating signer chooses its key
    signature = base64.b64encode(signer.sign(pae(PAYLOAD_TYPE, payload))).decode()
    signatures = [{"keyid": key_id, "sig": signature}]
    members = {"payload": base64.b64encode(payload).decode(), "payloadType": PAYLOAD_TYPE, "signatures": signatures}
    return canonical_json(members) + b"\n"


def _record_statement(record: AuditRecord) -> dict[str, Any]:
    header = record.members
    subjects = _descriptors(find_artifacts(record.body))
    if not subjects:
        sha256 = header["messageHash"].removeprefix("sha256:")
        subjects = [{"name": f"{header['taskId']}/{header['sequence']}", "digest": {"sha256": sha256}}]
    predicate = {"header": header, "position": record.position, "recordHash": format_digest(record.hash)}
    if record.signature is not None:
        predicate["headSignature"] = to_base64url(record.signature)
    return {"_type": STATEMENT, "subject": subjects, "predicateType": RECORD, "predicate": predicate}


def _descriptors(artifacts: Iterable[ArtifactRef]) -> list[dict[str, Any]]:
    """Return artifacts as resource descriptors, each content of an id once."""
    unique = {(artifact.id, artifact.hash): artifact for artifact in artifacts}
    return [{"name": artifact.id, "digest": {"sha256": artifact.hash}} for artifact in unique.values()]


def _offered_branch(record: AuditRecord) -> dict[str, str] | None:
    """Return the branch, commit and base that a stage returned as offered, or None."""
    header = record.members
    if (header["kind"], header["status"]) != (Kind.COMPLETION, "RETURNED"):
        return None
    output = record.body.get("output") if isinstance(record.body, dict) else None
    if not isinstance(output, dict) or output.get("offered") is not True or not isinstance(output.get("branch"), str):
        return None
    commits = {name: output[name] for name in ("commit", "base") if isinstance(output.get(name), str)}
    if len(commits) < 2 or not all(map(_COMMIT.fullmatch, commits.values())):
        return None
    return {"branch": output["branch"], **commits}


def _provenance(records: Sequence[AuditRecord], offered: Mapping[str, str]) -> dict[str, Any]:
    """Return the provenance of the branch that the last of these records says was offered."""
    first, last = records[0].members, records[-1].members
    bodies = [record.body for record in records if isinstance(record.body, dict)]
    parameters = _parameters(bodies)
    dependency: dict[str, Any] = {"digest": {"gitCommit": offered["base"]}}
    if isinstance(repository := parameters.get("repository"), str):
        dependency["uri"] = repository
    decisions = [
        {"actor": header["actor"], "decision": header["status"], "at": header["timestamp"]}
        for header in (record.members for record in records)
        if header["kind"] == Kind.DECISION and "actor" in header
    ]
    return {
        "_type": STATEMENT,
        "subject": [{"name": f"refs/heads/{offered['branch']}", "digest": {"gitCommit": offered["commit"]}}],
        "predicateType": PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": parameters,
                "internalParameters": {
                    "stage": last.get("fromAgent", ""),
                    "task": last["taskId"],
                    "record": last["sequence"],
                    "recordHash": format_digest(records[-1].hash),
                    "decisions": decisions,
                },
                "resolvedDependencies": [dependency],
            },
            "runDetails": {
                "builder": {"id": f"urn:baton:ledger:{last['ledger']}"},
                "metadata": {
                    "invocationId": last.get("runId", last["taskId"]),
                    "startedOn": first["timestamp"],
                    "finishedOn": last["timestamp"],
                },
                "byproducts": _descriptors(find_artifacts(bodies)),
            },
        },
    }


def _parameters(bodies: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the goal and the parameters of the task's first handoff; of a long one its digest."""
    for body in bodies:
        step, state = body.get("step"), body.get("currentState")
        if not isinstance(step, dict) or not isinstance(state, dict):
            continue
        params = step.get("params")
        given = {"goal": state.get("goal"), **(params if isinstance(params, dict) else {})}
        return {
            name: value if len(rfc8785.dumps(value)) <= _MAX_PARAMETER_BYTES else {"digest": digest(value)}
            for name, value in given.items()
        }
    return {}
