"""Waivers: a person decides that a text which the safety scan rejected is a false alarm.

A waiver is for the text that was scanned, named by its digest: the same text passes in later handoffs of the run,
any other is rejected as before. Waivers travel in the signed handoff, so no sender can write one for itself, and none
comes back from a child pipeline, whose result is not signed.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from baton.core.verdict import Code, Finding, Verdict
from baton.safety.scan import LONGEST_PATH


def text_digest(message: Mapping[str, Any], pointer: str) -> str | None:
    """Return the digest of the text at a finding's pointer, or None where it is not certain which text that is."""
    if len(pointer) >= LONGEST_PATH:  # it may have been cut, and lead to something else
        return None
    value: Any = message
    keys: list[str] = []
    for token in pointer.split("/")[1:]:
        step = token.replace("~1", "/").replace("~0", "~")
        position = step[1:-1] if step.startswith("{") and step.endswith("}") else ""
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, Mapping) and position.isdecimal() and int(position) < len(value):
            keys.append([*value][int(position)])
            value = value[keys[-1]]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    if not keys and not isinstance(value, str):
        return None
    text = json.dumps([*keys, value if isinstance(value, str) else None])
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def digests_of(message: Mapping[str, Any], findings: Iterable[Finding]) -> list[str]:
    """Return the digests of the texts that a rejected message's safety findings are about, each once."""
    about = (text_digest(message, one.at) for one in findings if one.code is Code.SAFETY_VIOLATION)
    return [digest for digest in dict.fromkeys(about) if digest is not None]


def after_release(verdict: Verdict, message: Mapping[str, Any]) -> tuple[Verdict, str | None]:
    """Return a verdict without the findings that are waived, and the names of who waived them, or None."""
    step = message.get("step")
    released = step.get("released") if isinstance(step, Mapping) else None
    if not isinstance(released, Mapping) or verdict.valid:
        return verdict, None
    by: dict[str, None] = {}
    left = []
    for finding in verdict.findings:
        digest = text_digest(message, finding.at) if finding.code is Code.SAFETY_VIOLATION else None
        who = None if digest is None else released.get(digest)
        if isinstance(who, str):
            by[who] = None
        else:
            left.append(finding)
    return (Verdict.of(left), ", ".join(by)) if by else (verdict, None)
