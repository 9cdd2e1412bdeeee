"""Read a policy: rules with ids, from TOML, or from Markdown that explains each rule to people.

In Markdown each rule is a heading, `## REC-1: Recipients are known`, with one block of TOML below it; the prose around
the block is for people and decides nothing. The same rules give the same digest in either form.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from markdown_it import MarkdownIt
from pydantic import BeforeValidator, Field, ValidationError

from activities.compliance_review.records import ComplianceError, NamedDomain, Reference, Severity
from baton.wire.records import Record

_MOST_BYTES = 1_000_000
_MOST_FAULTS = 5
_HEADING = re.compile(r"(?P<id>[A-Za-z][A-Za-z0-9-]{0,19})\s*[:—–]\s*(?P<title>.+)")


def _extension(value: Any) -> Any:
    """Return a type of file as those of attachments are known: people write `.exe` and `EXE` as well."""
    return value.strip().removeprefix(".").lower() if isinstance(value, str) else value


# A type that no attachment can have would forbid nothing, unnoticed.
FileType = Annotated[str, BeforeValidator(_extension), Field(pattern=r"^[a-z0-9]{1,12}$")]
"""A type of attached files: the extension of their names, in lower case and without the dot."""
Phrase = Annotated[str, Field(min_length=2, max_length=120)]


class RuleTerms(Record):
    """What every rule has: an id, a sentence, what a violation amounts to, the last day on which it applies."""

    id: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,19}$")
    title: str = Field(min_length=1, max_length=200)
    severity: Severity = "block"
    valid_until: date | None = None


class RecipientsRule(RuleTerms):
    """Every recipient is one of us, at an allowed domain, or at the domain of a customer of one of the tiers."""

    kind: Literal["recipients"]
    own: tuple[NamedDomain, ...] = ()
    allowed: tuple[NamedDomain, ...] = ()
    blocked: tuple[NamedDomain, ...] = ()
    tiers: tuple[Reference, ...] = ()


class StatusRule(RuleTerms):
    """Every customer's account has an accepted status at the time of the decision."""

    kind: Literal["status"]
    accepted: tuple[Reference, ...] = ("active",)


class AgreementRule(RuleTerms):
    """Every customer signed an agreement that is in force; always, or only if something is attached."""

    kind: Literal["agreement"]
    agreement: Reference
    when: Literal["always", "attachments"] = "always"


class QuoteRule(RuleTerms):
    """Every amount that the e-mail names is that of a quote of at most so many days."""

    kind: Literal["quote"]
    max_days: int = Field(ge=0, le=3650)


class AttachmentsRule(RuleTerms):
    """What is attached is of allowed types (all, if none is listed), and not too much."""

    kind: Literal["attachments"]
    allowed: tuple[FileType, ...] = ()
    forbidden: tuple[FileType, ...] = ()
    max_kilobytes: int = Field(default=10_240, ge=0)
    max_count: int = Field(default=10, ge=0)


class PhrasesRule(RuleTerms):
    """Some phrases are never sent; they are found as whole words, in any case."""

    kind: Literal["phrases"]
    forbidden: tuple[Phrase, ...] = Field(min_length=1, max_length=200)


class ApprovalRule(RuleTerms):
    """An amount above a threshold, in whole units of a currency, needs the approval of a role, on record."""

    kind: Literal["approval"]
    above: int = Field(ge=0, le=10**12)
    currency: str = Field(pattern=r"^[A-Z]{3}$")
    role: Reference


Rule = Annotated[
    RecipientsRule | StatusRule | AgreementRule | QuoteRule | AttachmentsRule | PhrasesRule | ApprovalRule,
    Field(discriminator="kind"),
]
"""Any rule; `kind` says which."""


class Policy(Record):
    """A policy: its name, its version, and its rules, each id once."""

    name: str = Field(min_length=1, max_length=200)
    version: str = Field(min_length=1, max_length=40)
    rules: tuple[Rule, ...] = Field(min_length=1, max_length=100)

    @property
    def digest(self) -> str:
        """The SHA-256 of the policy's content, however its file is written."""
        return "sha256:" + hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def known_domains(self) -> frozenset[str]:
        """Return the domains that need no customer: our own, and those that the rules for recipients allow."""
        rules = [rule for rule in self.rules if isinstance(rule, RecipientsRule)]
        return frozenset(domain for rule in rules for domain in (*rule.own, *rule.allowed))

    def own_domains(self) -> frozenset[str]:
        """Return our own domains, as the rules for recipients name them."""
        return frozenset(domain for rule in self.rules if isinstance(rule, RecipientsRule) for domain in rule.own)


def read_policy(path: Path) -> Policy:
    r"""Return the policy of a file.

    Args:
        path: A `.toml` or `.md` file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "policy.md")
        ...     _ = file.write_text("# Mail 2026-1\n## REC-1: Known people\n```toml\nkind = 'recipients'\n```")
        ...     policy = read_policy(file)
        >>> policy.name, policy.version, policy.rules[0].id
        ('Mail', '2026-1', 'REC-1')
    """
    readers: dict[str, Callable[[str], dict[str, Any]]] = {
        ".toml": tomllib.loads,
        ".md": _of_markdown,
        ".markdown": _of_markdown,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ComplianceError(f"{path.name!r} is not a policy; found {path.suffix!r}, expected .toml or .md")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ComplianceError(f"the policy {path.name!r} is larger than {_MOST_BYTES:,} bytes")
        return policy_of(json.dumps(reader(path.read_text("utf-8-sig")), default=str), path.name)
    except OSError as error:
        raise ComplianceError(f"the policy {str(path)!r} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise ComplianceError(f"the policy {path.name!r} cannot be read: {error}") from None


def policy_of(data: str, name: str) -> Policy:
    """Return the policy of a JSON text; messages call it by ``name``."""
    try:
        policy = Policy.model_validate_json(data)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        if faults[0]["loc"] != ("rules",):  # where no rule fits, pydantic adds that there are none
            faults = [one for one in faults if one["loc"] != ("rules",) or one["type"] != "too_short"]
        what = (f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg']}" for one in faults[:_MOST_FAULTS])
        raise ComplianceError(f"the policy {name!r} cannot be used: {'; '.join(what)}") from None
    ids = [rule.id for rule in policy.rules]
    twice = sorted({id for id in ids if ids.count(id) > 1})
    if twice:
        raise ComplianceError(
            f"the policy {name!r} has more than one rule {', '.join(twice)}; give each an id of its own"
        )
    return policy


def _of_markdown(text: str) -> dict[str, Any]:
    """Return a policy in Markdown as the data of one in TOML: the title's last word is the version."""
    tokens = MarkdownIt("commonmark").parse(text)
    policy: dict[str, Any] = {"rules": []}
    current: dict[str, Any] | None = None
    headed: list[dict[str, Any]] = []
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            words = tokens[at + 1].content.strip()
            rule = _HEADING.fullmatch(words)
            if token.tag == "h1":
                name, _, version = words.rpartition(" ")
                policy |= {"name": name, "version": version}
            current = {"id": rule["id"], "title": rule["title"]} if rule and token.tag != "h1" else None
            if current and any(map(str.isdigit, current["id"])):  # `Scope: who it is for` is prose
                headed.append(current)
        elif token.type == "fence" and token.info.strip().lower() == "toml":
            if current is None or current in policy["rules"]:
                place = (token.map or [0])[0] + 1
                raise ComplianceError(
                    f"the block of TOML at line {place} belongs to no rule; put each below a heading of its own such "
                    "as '## REC-1: Recipients are known'"
                )
            current |= tomllib.loads(token.content)
            policy["rules"].append(current)
        elif token.type in ("fence", "code_block") and current is not None:
            headed.append(current)
    without = {rule["id"]: None for rule in headed if not any(rule is one for one in policy["rules"])}
    if without:
        raise ComplianceError(
            f"the rule {', '.join(without)} has no block of TOML below its heading, so it would not be applied; begin "
            "the block with ```toml, or word the heading without an id"
        )
    return policy
