"""Rules about rights: confidence, intellectual property, personal data, warranties, audits and the law."""

import re
from collections.abc import Iterator

from activities.contract_review.facts import PERIOD, days_in
from activities.contract_review.scope import Hit, Missing, Rule, Scope, Sentence

_FOREVER = re.compile(
    r"(?i)\bperpetu\w+|\bindefinite(?:ly)?\b|\bwithout (?:any )?limit (?:of|in) time\b|\bin perpetuity\b|\bforever\b"
)
_SECRETS = re.compile(r"(?i)\b(?:obligations?|duties|duty|confidential\w*|secret)\b")
_TRADE_SECRET = re.compile(r"(?i)\btrade secrets?\b")
_EXCLUDED = re.compile(r"(?i)\bpublic(?:ly)?\b|\bindependently develop|\balready (?:knew|known|in)\b")
_ASSIGNS = re.compile(
    r"(?i)\b(?:assigns?|transfers?|conveys?|hereby assign\w*)\b[^.;]{0,80}"
    r"\b(?:right, title and interest|all (?:intellectual property|rights|title|ownership)|ownership)\b"
)
_BEYOND = re.compile(
    r"(?i)\bpre-?existing\b|\bbackground\b|\bwhether or not\b|\b(?:ideas|suggestions|feedback)\b|\bany data\b"
    r"|\bmoral rights\b"
)
_VESTS = re.compile(
    r"(?i)\b(?:vests? in|belongs? to|(?:is|are|be|remains?|becomes?) (?:and (?:shall )?remains? )?(?:the )?"
    r"(?:(?:sole|exclusive)(?: and exclusive)? )?(?:property of|owned (?:solely |exclusively )?by))"
    r"\s+(?:the )?(\w[\w \-]{0,40})"
)
_MADE_FOR_US = re.compile(r"(?i)\b(?:deliverables|work product|results of the services)\b")
_PERSONAL = re.compile(r"(?i)\bpersonal (?:data|information)\b|\bdata subjects?\b|\bgdpr\b")
_TRANSFER = re.compile(
    r"(?i)\btransfer\b[^.;]{0,120}\b(?:any country|outside|third countr|affiliates|worldwide)"
    r"|\bprocess\b[^.;]{0,120}\bany country"
)
_SAFEGUARD = re.compile(
    r"(?i)\bstandard contractual clauses\b|\badequa(?:te|cy)\b|\bbinding corporate\b|\barticle 4[4-9]\b|\bconsent\b"
)
_DUTIES = (
    ("acts only on documented instructions", re.compile(r"(?i)\binstructions?\b")),
    (
        "reports breaches",
        re.compile(r"(?i)\bbreach\w*\b[^.;]{0,120}\bnotif|\bnotif\w*\b[^.;]{0,120}\bbreach|\bhours\b"),
    ),
    ("binds its sub-processors", re.compile(r"(?i)\bsub-?(?:processor|contract)\w*\b(?![^.;]{0,60}\bwithout\b)")),
    ("returns or deletes the data at the end", re.compile(r"(?i)\b(?:delet|return|eras|destroy)\w*\b")),
    ("keeps the data secure", re.compile(r"(?i)\bsecurity\b|\bsecure\b|\btechnical and organi[sz]ational\b")),
    ("helps with the rights of data subjects", re.compile(r"(?i)\bdata subjects?\b|\bassist\w*\b")),
)
_AS_IS = re.compile(
    r"(?i)[“\"']?\bas is\b|\bas available\b|\bdisclaims? (?:all|any) (?:other )?(?:representations|warrant)"
)
_AUDITS = re.compile(r"(?i)\b(?:audit|inspect)\b")
_UNANNOUNCED = re.compile(r"(?i)\bwithout (?:prior )?notice\b|\bat any time\b|\bunannounced\b")
_LAW = re.compile(
    r"(?i)\b(?:governed by|construed (?:in accordance with|under))\b[^.;]{0,60}?"
    r"\blaws? (?:of|in)\s+(?P<law>[^.;,]{2,80})"
)
_YEARS_AFTER = re.compile(r"(?i)\b(?:after|following|from|survive|beyond|for)\b")


def _forever(scope: Scope) -> Iterator[Hit]:
    for sentence, found in scope.matching(_FOREVER, "confidentiality", "term", "termination", "general"):
        if _SECRETS.search(sentence.text) and not _TRADE_SECRET.search(sentence.text):
            yield Hit(sentence, because=f"it says {found[0]!r}")


def _long_secrecy(scope: Scope) -> Iterator[Hit]:
    for sentence, _ in scope.matching(_YEARS_AFTER, "confidentiality"):
        years = max((days_in(found) // 365 for found in PERIOD.finditer(sentence.text)), default=0)
        if years > scope.policy.max_confidentiality_years and not _FOREVER.search(sentence.text):
            yield Hit(
                sentence,
                because=f"{years} years are more than the {scope.policy.max_confidentiality_years} of the policy",
            )


def _no_exclusions(scope: Scope) -> Iterator[Hit]:
    """Find duties of confidence from which nothing is excepted, not even what everybody knows."""
    about = list(scope.of_kind("confidentiality"))
    everywhere = (sentence.text for sentence in scope.of_kind("confidentiality", "definitions"))
    if about and not any(_EXCLUDED.search(text) for text in everywhere):
        yield Hit(about[0], because="what is public, or known already, is not excepted anywhere")


def _assigned(scope: Scope) -> Iterator[Hit]:
    for sentence, _ in scope.matching(_ASSIGNS):
        if scope.actor(sentence.text) in ("us", "both"):
            beyond = _BEYOND.search(sentence.text)
            yield Hit(sentence, consequence=5 if beyond else None, because=f"it says {beyond[0]!r}" if beyond else "")


def _deliverables(scope: Scope) -> Iterator[Hit]:
    for sentence, _ in scope.matching(_MADE_FOR_US, "intellectual_property"):
        owner = _VESTS.search(sentence.text)
        if owner and owner[1].lower().startswith(scope.them.lower()):
            yield Hit(sentence)


def _about_data(scope: Scope) -> list[Sentence]:
    """Return the sentences of clauses about personal data; of a contract without clauses, if one names a duty."""
    loose = scope.unparted.get("data_protection", [])
    named = any(words.search(sentence.text) for sentence in loose for _, words in _DUTIES)
    parted = [sentence for sentence in scope.sentences if sentence.unit.clause.kind == "data_protection"]
    return parted or (loose if named else [])


def _no_data_clause(scope: Scope) -> Iterator[Missing]:
    """Find personal data that are processed under no clause about them; the gaps of a clause are DPA-2."""
    if any(True for _ in scope.matching(_PERSONAL)) and not _about_data(scope):
        yield Missing("data_protection", "personal data are named, and nothing says how they are protected")


def _data_gaps(scope: Scope) -> Iterator[Hit]:
    about = _about_data(scope)
    personal = next((sentence for sentence in about if _PERSONAL.search(sentence.text)), None)
    if personal is None:
        return
    said = " ".join(sentence.text for sentence in about)
    gaps = [duty for duty, words in _DUTIES if not words.search(said)]
    if gaps:
        because = "nothing says that the processor " + ", ".join(gaps)
        clauses = tuple(sentence.unit.clause.id for sentence in about)
        yield Hit(personal, consequence=4 if len(gaps) > 2 else 3, because=because, more=clauses)


def _transfers(scope: Scope) -> Iterator[Hit]:
    for sentence, _ in scope.matching(_TRANSFER, "data_protection", "general", "confidentiality"):
        if not scope.clause_says(sentence, _SAFEGUARD):
            yield Hit(sentence)


def _as_is(scope: Scope) -> Iterator[Hit]:
    return (Hit(sentence) for sentence, _ in scope.matching(_AS_IS, "warranty", "liability", "general"))


def _audits(scope: Scope) -> Iterator[Hit]:
    for sentence, found in scope.matching(_AUDITS):
        if scope.subject(sentence.text, found.start()) == "them" and _UNANNOUNCED.search(sentence.text):
            yield Hit(sentence)


def _unusual_law(scope: Scope) -> Iterator[Hit]:
    for sentence, found in scope.matching(_LAW):
        law = found["law"].strip()
        if not any(re.search(rf"(?i)\b{re.escape(known)}\b", law) for known in scope.policy.accepted_laws):
            yield Hit(
                sentence, because=f"{law!r} is not among the {len(scope.policy.accepted_laws)} laws of the policy"
            )


RULES = (
    Rule(
        "CON-1",
        "Confidence never ends",
        "A duty without end cannot be managed, and some courts do not uphold it.",
        3,
        3,
        _forever,
    ),
    Rule(
        "CON-2",
        "Nothing is excepted from confidence",
        "Even what is public would have to be kept secret.",
        2,
        3,
        _no_exclusions,
    ),
    Rule("CON-3", "Confidence lasts long", "Records and staff must be managed for all that time.", 2, 2, _long_secrecy),
    Rule(
        "IPR-1", "{us} gives its rights away", "What {us} made, or will make, would belong to {them}.", 3, 4, _assigned
    ),
    Rule(
        "IPR-2",
        "{us} does not own what it pays for",
        "After the end {us} may not use it any more.",
        3,
        3,
        _deliverables,
    ),
    Rule(
        "DPA-1",
        "Personal data without protection",
        "Article 28 GDPR asks for a contract on processing; fines go with its lack.",
        4,
        4,
        _no_data_clause,
    ),
    Rule(
        "DPA-2",
        "The protection of personal data has gaps",
        "Article 28(3) GDPR lists what the contract must say.",
        3,
        3,
        _data_gaps,
    ),
    Rule(
        "DPA-3",
        "Personal data may go anywhere",
        "Chapter V GDPR asks for safeguards outside the Union.",
        3,
        4,
        _transfers,
    ),
    Rule("WAR-1", "Nothing is warranted", "{us} has no claim if it does not work.", 3, 3, _as_is),
    Rule(
        "AUD-1",
        "{them} may inspect at any time",
        "Visits disturb the work and show what is confidential.",
        2,
        3,
        _audits,
    ),
    Rule(
        "LAW-1",
        "The governing law is unusual",
        "A dispute would be costly to take up and hard to foresee.",
        2,
        4,
        _unusual_law,
    ),
)
"""The rules of this module."""
