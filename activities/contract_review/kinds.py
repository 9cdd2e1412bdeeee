"""What a clause is about, and what sort of contract it stands in: by words of its title, then by its own.

A title weighs more than any number of words below it. A clause that says nothing of its own has its parent's kind.
"""

import re
from collections.abc import Sequence

from activities.contract_review.records import Clause, ContractType, Kind

_LOOKED_AT = 4_000  # characters of a clause; what it is about is said early

# Kind, words of a title, words of the text. The first of equals wins, so the narrow ones stand before the broad.
_TABLE: tuple[tuple[Kind, str, str], ...] = (
    (
        "definitions",
        r"definitions?|interpretation|defined terms",
        r"(?:shall )?ha(?:s|ve) the (?:following )?meanings?",
    ),
    ("renewal", r"renewals?|auto-?renewal", r"automatically renew\w*|successive (?:terms?|periods?)|renewal term"),
    ("suspension", r"suspension", r"suspend (?:the|access|any|all|provision)|right to suspend"),
    (
        "termination",
        r"terminat\w+|expiry|cancellation",
        r"terminate (?:this|the) agreement|may terminate|material breach|upon termination|effect of termination",
    ),
    (
        "term",
        r"(?:initial |subscription |contract )?term|duration|commencement|term and .*",
        r"initial term|commences? on",
    ),
    ("service_levels", r"service levels?|availability|sla|support", r"uptime|availability of|service credits?"),
    (
        "payment",
        r"fees?|payments?|charges?|prices?|pricing|invoic\w+|compensation|late payment|taxes|expenses",
        r"invoices?|payable|fees?\b|late payment|interest at|net \d+",
    ),
    (
        "liability",
        r"(?:limitations? of |limits? (?:of|on) )?liabilit(?:y|ies)|exclusions? of liability|damages",
        r"aggregate liability|be liable (?:to \w+ )?for|liability of|(?:indirect|consequential)[\w, ]{0,60} damages"
        r"|liability (?:\w+ )?(?:is|be) (?:un)?limited",
    ),
    ("indemnity", r"indemnit(?:y|ies)|indemnification", r"indemnif\w+|hold harmless"),
    ("insurance", r"insurances?", r"maintain[\w ,]{0,40} insurance|insurance (?:policy|cover\w*)"),
    (
        "data_protection",
        r"data (?:protection|privacy|processing|security)|privacy|personal (?:data|information)|security of data",
        r"personal (?:data|information)|data subjects?|controllers?|gdpr|sub-?processors?",
    ),
    (
        "warranty",
        r"warrant(?:y|ies)|representations?.*|disclaimers?",
        r"warrants? that|represents? and warrants?|as is\b",
    ),
    (
        "confidentiality",
        r"confidential\w*|non-?disclosure|use of confidential.*",
        r"confidential information|receiving party|disclosing party|in confidence",
    ),
    (
        "intellectual_property",
        r"intellectual property.*|ip(?:r| rights)?|ownership.*|work product|licen[cs]e.*|title",
        r"intellectual property|right, title and interest|work product|moral rights"
        r"|grants? (?:to )?\w+ a [\w,\- ]{0,60}licen[cs]e",
    ),
    (
        "non_compete",
        r"non-?compet\w+|exclusivity|restrictive covenants?",
        r"compet(?:e|es|ing) with|competing (?:business|products?)",
    ),
    ("non_solicitation", r"non-?solicit\w+", r"solicit (?:or|any|the|for)|hire any"),
    (
        "audit",
        r"audits?|records.*|inspection",
        r"audit(?:s|ors?)? (?:the|of|and|any)|inspect[\w ,]{0,40} (?:books|records|premises)",
    ),
    ("assignment", r"assign\w+.*|transfer", r"assign (?:this|the|its|any)|transfer this agreement"),
    (
        "change",
        r"(?:changes?|amendments?|variations?|modifications?).*",
        r"(?:modify|amend|change|vary|revise)s? (?:these|this|the) (?:terms|agreement|fees)",
    ),
    ("force_majeure", r"force majeure|events? beyond.*", r"force majeure|beyond its reasonable control"),
    ("dispute_resolution", r"dispute.*|arbitration|mediation", r"arbitrat\w+|mediation|settled amicably"),
    (
        "governing_law",
        r"governing law.*|applicable law|law.*|jurisdiction.*",
        r"governed by|laws of|exclusive jurisdiction|law (?:shall )?appl(?:y|ies)",
    ),
    ("notices", r"notices?|communications", r"notices? (?:under|shall be|must be)[\w ]{0,40}(?:in writing|sent)"),
    ("entire_agreement", r"entire agreement|whole agreement", r"entire agreement|supersedes"),
    (
        "services",
        r"services?|scope.*|deliverables?|statement of work|the platform|purpose|acceptance.*|use of .*",
        r"shall (?:provide|perform|deliver) (?:the )?(?:services|deliverables)|purpose of",
    ),
)
_RULES = [
    (kind, re.compile(rf"(?i)^(?:{title})$|\b(?:{title.replace('.*', '')})\b"), re.compile(rf"(?i)\b(?:{words})"))
    for kind, title, words in _TABLE
]

_LOOSE: tuple[Kind, ...] = ("general", "services", "parties")
"""Kinds that say little of what stands below them."""

_TYPES: tuple[tuple[ContractType, str], ...] = (
    ("nda", r"non-?disclosure|confidentiality agreement|\bnda\b"),
    (
        "saas",
        r"software[- ]as[- ]a[- ]service|\bsaas\b|subscription (?:terms|agreement)|cloud|online service"
        r"|terms of (?:service|use)",
    ),
    ("employment", r"employment|contract of service"),
    ("services", r"services|consult\w+|master|statement of work|professional|supply|supplier|contractor"),
)

EXPECTED: dict[ContractType, tuple[Kind, ...]] = {
    "services": (
        "payment",
        "termination",
        "liability",
        "confidentiality",
        "intellectual_property",
        "warranty",
        "insurance",
        "governing_law",
    ),
    "saas": (
        "payment",
        "termination",
        "liability",
        "confidentiality",
        "data_protection",
        "service_levels",
        "warranty",
        "governing_law",
    ),
    "nda": ("definitions", "confidentiality", "term", "governing_law"),
    "employment": ("payment", "termination", "confidentiality", "governing_law"),
    "other": ("termination", "liability", "governing_law"),
}
"""The kinds of clauses that a contract of each sort is expected to have."""


def kind_of(title: str, text: str, inherited: Kind = "general") -> Kind:
    """Return what a clause is about.

    Args:
        title: Its own title, empty if it has none.
        text: Its words.
        inherited: The kind of the clause it belongs to.

    Example:
        >>> kind_of("Limitation of Liability", ""), kind_of("", "Each party shall keep ...", "confidentiality")
        ('liability', 'confidentiality')
    """
    best: Kind = inherited
    most = 0 if inherited in _LOOSE else 2
    beginning = text[:_LOOKED_AT]
    for kind, in_title, in_text in _RULES:
        found = in_title.search(title) if title else None
        score = (12 if found[0].lower() == title.lower() else 8) if found else 0
        score += min(4, len({match.group().lower() for match in in_text.finditer(beginning)}))
        if score > most:
            best, most = kind, score
    return best


def names(kind: Kind, title: str) -> bool:
    """Return whether a title names a kind, alone or beside others.

    Example:
        >>> names("termination", "TERM AND TERMINATION"), names("liability", "Warranty")
        (True, False)
    """
    return any(each == kind and in_title.search(title) is not None for each, in_title, _ in _RULES)


def type_of(title: str, clauses: Sequence[Clause]) -> ContractType:
    """Return what sort of contract it is: by its title, else by what its preamble says."""
    preamble = clauses[0].text[:_LOOKED_AT] if clauses else ""
    for place in (title, preamble):
        for kind, words in _TYPES:
            if re.search(rf"(?i){words}", place):
                return kind
    return "other"
