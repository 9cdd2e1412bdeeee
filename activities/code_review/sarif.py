"""The findings as SARIF 2.1.0, the format that code hosts and editors read (OASIS, Static Analysis Results)."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from activities.code_review.records import Finding, Review, Severity, Snapshot
from activities.code_review.reporting import not_analysed
from baton import __version__

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: dict[Severity, str] = {"high": "error", "medium": "warning", "low": "note"}
_SCORES: dict[Severity, str] = {"high": "8.0", "medium": "5.0", "low": "2.0"}
_ROOT = "SRCROOT"

Json = dict[str, Any]


def to_sarif(snapshot: Snapshot, reviews: Sequence[Review]) -> str:
    """Return the log: one run for each reviewer, with every finding, those suppressed in the source marked.

    Paths are relative to the source, under `SRCROOT`; nothing in the log differs from one review of the same
    snapshot to the next.

    Args:
        snapshot: The code under review.
        reviews: What the reviewers found.

    Returns:
        JSON.
    """
    runs = [_run(snapshot, review) for review in reviews]
    log: Json = {"$schema": SCHEMA, "version": "2.1.0", "runs": runs}
    return json.dumps(log, indent=1, ensure_ascii=False) + "\n"


def _run(snapshot: Snapshot, review: Review) -> Json:
    rules = _rules(review)
    index = {rule["id"]: place for place, rule in enumerate(rules)}
    paths = {file.path: place for place, file in enumerate(snapshot.files)}
    seen: dict[str, int] = {}
    return {
        "tool": {
            "driver": {
                "name": f"Baton code_review: {review.concern}",
                "version": __version__,
                "informationUri": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/",
                "rules": rules,
            },
            "extensions": [_component(one.name, one.version) for one in review.analysers],
        },
        "automationDetails": {"id": f"code_review/{review.concern}/"},
        "originalUriBaseIds": {_ROOT: {"description": {"text": f"The folder of {snapshot.name}"}}},
        "artifacts": [{"location": {"uri": quote(path), "uriBaseId": _ROOT}} for path in paths],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": f"Not analysed: {one.count} × {one.reason}"}}
                    for one in not_analysed(snapshot, [review])
                ],
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, index[one.rule], paths[one.path], seen) for one in review.findings],
    }


def _component(name: str, version: str) -> Json:
    return {"name": name, "version": version} if version else {"name": name}


def _rules(review: Review) -> list[Json]:
    """Return each rule that a finding names, once, under the gravest of its findings."""
    found: dict[str, Json] = {}
    for finding in review.findings:  # the gravest come first
        if finding.rule in found:
            continue
        rule: Json = {
            "id": finding.rule,
            "name": finding.name,
            "shortDescription": {"text": finding.name.replace("-", " ")},
            "defaultConfiguration": {"level": _LEVELS[finding.severity]},
            "properties": {"tags": _tags(finding), "precision": "high" if finding.confidence >= 85 else "medium"},
        }
        if finding.help.startswith("https://"):
            rule["helpUri"] = finding.help
        if review.concern == "security":
            rule["properties"]["security-severity"] = _SCORES[finding.severity]
        found[finding.rule] = rule
    return list(found.values())


def _tags(finding: Finding) -> list[str]:
    return [finding.concern, *([f"external/cwe/cwe-{finding.cwe:03}"] if finding.cwe else [])]


def _result(finding: Finding, rule: int, artifact: int, seen: dict[str, int]) -> Json:
    region: Json = {
        "startLine": finding.line,
        "startColumn": finding.column,
        "endLine": finding.end_line,
        **({"snippet": {"text": finding.code}} if finding.code else {}),
    }
    result: Json = {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "rank": float(finding.confidence),
        "message": {"text": finding.message + (f". {finding.advice}" if finding.advice else "")},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(finding.path), "uriBaseId": _ROOT, "index": artifact},
                    "region": region,
                }
            }
        ],
        "partialFingerprints": {"batonCode/v1": _fingerprint(finding, seen)},
        "properties": {"analysers": list(finding.by)},
    }
    if finding.suppressed:
        result["suppressions"] = [{"kind": "inSource"}]
    return result


def _fingerprint(finding: Finding, seen: dict[str, int]) -> str:
    """Return what stays the same when lines above the finding come and go.

    Two findings of one rule on equal lines of a file are told apart by their order.
    """
    key = json.dumps([finding.rule, finding.path, finding.code])
    seen[key] = seen.get(key, 0) + 1
    return hashlib.sha256(f"{key}:{seen[key]}".encode()).hexdigest()
