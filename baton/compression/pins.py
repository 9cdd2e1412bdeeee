"""Statements that compression carries verbatim: decisions, constraints, flags and numbers, found by rules.

A model that summarises may silently drop them, so they are listed beside its summary (EAAPL-MAG006 §6.4, §11). The
rules keep too much rather than too little. They know English, German and French words, and numbers in any language; a
decision in other words is not found.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from baton.wire.text import split_line, split_lines


class PinKind(StrEnum):
    """Why a sentence is kept; the first kind that matches counts."""

    DECISION = "decision"
    """A decision, with its reason from the same or the next sentence."""
    CONSTRAINT = "constraint"
    """A rule, such as `key:value` or "must not"."""
    FLAG = "flag"
    """A warning, an open issue or an obstacle."""
    NUMBER = "number"
    """An amount, a date, an id or a measure: anything with a digit or a number word."""


def _vocabulary(*texts: str) -> re.Pattern[str]:
    """Return a pattern for the words of comma-separated lists, for casefolded text."""
    words = [" ".join(word.split()) for text in texts for word in text.split(",")]
    patterns = [re.escape(word.removesuffix("*")) + ("" if word.endswith("*") else r"(?!\w)") for word in words if word]
    return re.compile(r"(?<!\w)(?:" + "|".join(patterns) + ")")


_DECISION = _vocabulary(
    """
    decision*, decide, decided, chose, chosen, choose, agreed, approved, rejected, resolved to, resolved that,
    settled on, opted, go with, goes with, going with, went with, signed off, we use, we'll use, we will use, we keep,
    we'll keep, we will keep, we take, we'll take, we will take, we drop, we'll drop, we will drop, we shall, we adopt*,
    we picked, we selected, we concluded, let's use, let's keep, let's take, let's drop, let's adopt
    """,
    """
    entscheid*, entschied*, beschloss*, beschliess*, beschlüsse, beschluss*, gewählt, vereinbar*, festgelegt,
    abgelehnt, genehmigt, freigegeben, geeinigt, wir nehmen, wir verwenden, wir nutzen, wir setzen auf,
    wir bleiben bei
    """,
    """
    décision*, décid*, choisi*, retenu*, convenu*, opté*, approuvé*, rejeté*, validé*, accordé*, adopté*, tranché*,
    nous utilis*, on utilis*, nous gard*, on gard*, nous part*, on part sur
    """,
)

_CONSTRAINT = _vocabulary(
    """
    must, mustn't, shall, may not, never, only, always, cannot, not allowed, require, required, requires, requirement*,
    constraint*, mandatory, forbidden, prohibited, at most, at least, no more than, no less than, no later than,
    no fewer than, no earlier than, no longer than, not exceed*, deadline*, limit is, limit of, limited to, limit to,
    do not use, do not store, do not send, do not share, do not change, do not touch, do not deploy, don't use,
    don't store, don't send, don't share, don't change, don't touch, don't deploy, does not use, without exception,
    without approval
    """,
    """
    muss*, müss*, darf*, dürf*, niemals, nur, immer, höchstens, mindestens, spätestens, verboten, verpflichte*,
    vorgabe*, auflage*, bedingung*, einschränkung*, anforderung*, frist*, zwingend, nicht erlaubt, nicht zulässig,
    nicht überschreiten, vorgeschrieben, keinesfalls
    """,
    """
    doit, doivent, devons, devra, devront, jamais, uniquement, seulement, toujours, au plus, au moins, au maximum,
    au minimum, contrainte*, exigence*, obligatoire*, interdi*, délai*, échéance*, ne peut pas, ne peuvent pas,
    ne pouvons pas, ne pas, limité*, sans exception
    """,
)

_FLAG = _vocabulary(
    """
    warn*, caution*, flag, flags, flagged, alert*, danger*, blocked, blocker*, blocking, critical*, unresolved,
    open question*, open issue*, open point*, todo, to do, fixme, concern, concerns, concerned, breach*, violat*,
    unlimited, high risk*, higher risk*, risk:, risks:, risk of, risk that, at risk, error:, unsafe, confidential*,
    escalat*, not verified, not confirmed, not tested, not signed, not yet*, unverified, careful, beware, important,
    urgent*
    """,
    """
    warnung*, achtung, vorsicht*, gefahr*, gefähr*, kritisch*, blockier*, ungeklärt*, offene frage*, offene punkte,
    risiko:, hohes risiko, risiko dass, fehler:, verstoss*, verstösse*, verletz*, vertraulich*, bedenken,
    markiert, unbeschränkt*, unbegrenzt*, eskal*, wichtig*, dringend*, nicht geprüft, nicht bestätigt, nicht getestet,
    nicht unterschrieben
    """,
    """
    avertissement*, attention, alerte*, critique*, bloqu*, non résolu*, question ouverte, questions ouvertes,
    risque de, risque que, risque majeur, risque élevé, risque:, risque :, erreur:, erreur :, violation*,
    confidentiel*, signalé*, signaler, signalons, illimité*, inquiétude*, prudence, important*, non vérifié*,
    non confirmé*, non testé*, non signé*, escalad*
    """,
)

_REASON = _vocabulary(
    "because, reason, reasons, rationale, since, this is because, the reason*, so that, as it",
    "weil, denn, grund, gründe, begründung, da, damit",
    "parce qu*, car, raison*, motif*, puisqu*, afin",
)

_LABEL = _vocabulary(
    "decision*, decided, constraint*, requirement*, rule*, warning*, flag*, risk*, note*, todo, open question*",
    "entscheidung*, beschluss, vorgabe*, auflage*, bedingung*, warnung*, achtung, risiko, offene frage*",
    "décision*, contrainte*, exigence*, avertissement*, attention, alerte, risque*, questions ouvertes",
)

_NUMBER_WORDS = _vocabulary(
    """
    two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen, sixteen,
    seventeen, eighteen, nineteen, twenty, thirty, forty, fifty, sixty, seventy, eighty, ninety, hundred, hundreds,
    thousand, thousands, million, billion, dozen, half, double
    """,
    """
    zwei*, drei*, vier*, fünf*, sechs*, sieb*, acht, achtzehn, achtzig*, achthundert*, achttausend*, neun*, zehn*, elf,
    zwölf*, hundert*, tausend*, million*, milliarde*, dutzend, halb*, doppelt*, einhundert*, eintausend*, einund*
    """,
    """
    deux, trois, quatre*, cinq, sept, huit, neuf, dix, onze, douze, treize, quatorze, quinze, seize, vingt*, trente,
    quarante, cinquante, soixante, septante, nonante, cent, cents, mille, millions, milliard*, douzaine, demi*, double
    """,
)

_MAX_LABELLED_LENGTH = 600
_MAX_VALUE_LENGTH = 80
_DIGIT = re.compile(r"\d")
_EDGES = "\"'«»„“”‘’()[]{}<>.,;:!?…*_`"
_FLAG_SIGNS = re.compile("[⚠🚩❗‼⛔🛑]")
_LEADING_SIGNS = re.compile(r"\W*")
_AFTER_LABEL = re.compile(r"\w*\s*(?:\([^)]{0,60}\)|\d{1,4})?\s*[:—–]")
# `key:value` in one word; `key: value` and `"key": value` if the value is one word at the end of the line.
_KEY_VALUE_WORD = re.compile(r"(?!\S{1,80}\.\w{1,8}:\d)[A-Za-z_][A-Za-z0-9_.-]{0,80}:(?!//)[^\s:]")
_KEY_VALUE_LINE = re.compile(r"[\"'`]?[A-Za-z_][A-Za-z0-9_.-]{0,80}[\"'`]?: {0,4}[^\s:]\S{0,200},?")
_LIST_NUMBER = re.compile(r"\d{1,2}[.)]")
_MONTH = re.compile(
    r"(?:jan|feb|fév|mar|mär|apr|avr|ma[iy]|ju[nl]|jui|aug|aoû|sep|o[ck]t|nov|de[cz]|déc)", re.IGNORECASE
)
_HYPHEN = re.compile(r"[-‐‑]")


@dataclass(frozen=True)
class Pin:
    """A sentence of a conversation, and why it is kept."""

    kind: PinKind | None
    text: str


def split_statements(text: str) -> list[Pin]:
    """Split a text into sentences; a decision includes its reason from the next sentence."""
    pins: list[Pin] = []
    skip = False
    for (sentence, kind), (next_sentence, next_kind) in pairwise([*_classify_sentences(text), ("", None)]):
        if skip:
            skip = False
            continue
        is_reason = next_kind is not PinKind.DECISION and _match_start(_REASON, _fold(next_sentence)) is not None
        if kind is PinKind.DECISION and is_reason:
            sentence, skip = f"{sentence} {next_sentence}", True
        pins.append(Pin(kind, sentence))
    return pins


def classify(sentence: str) -> PinKind | None:
    """Return why a sentence is kept, or None if it need not be."""
    folded = _fold(sentence)
    if _DECISION.search(folded):
        return PinKind.DECISION
    if _CONSTRAINT.search(folded) or _has_key_value(sentence):
        return PinKind.CONSTRAINT
    if _FLAG.search(folded) or _FLAG_SIGNS.search(sentence):
        return PinKind.FLAG
    words = sentence.split()
    return PinKind.NUMBER if any(_has_number(word, index, words) for index, word in enumerate(words)) else None


def _classify_sentences(text: str) -> Iterator[tuple[str, PinKind | None]]:
    """Yield the sentences of a text with their kinds; a line with a label such as `Decision:` is one sentence."""
    for line in split_lines(text):
        is_labelled = len(line) <= _MAX_LABELLED_LENGTH and _has_label(_fold(line))
        for sentence in (line,) if is_labelled else split_line(line):
            kind = classify(sentence)
            yield sentence, PinKind.FLAG if is_labelled and kind in (None, PinKind.NUMBER) else kind


def _match_start(vocabulary: re.Pattern[str], folded: str) -> re.Match[str] | None:
    """Match a vocabulary at the first word of a text."""
    signs = _LEADING_SIGNS.match(folded)
    return vocabulary.match(folded, signs.end() if signs else 0)


def _has_label(folded: str) -> bool:
    """Return whether a line starts with a label, such as `Decision 3:`."""
    label = _match_start(_LABEL, folded)
    return label is not None and _AFTER_LABEL.match(folded, label.end()) is not None


def _has_number(word: str, index: int, words: list[str]) -> bool:
    """Return whether a word contains a number, other than that of a list item."""
    if len(word) > _MAX_VALUE_LENGTH:
        return False
    if _DIGIT.search(word):
        is_list_number = index == 0 and len(words) > 1 and _LIST_NUMBER.fullmatch(word)
        return not is_list_number or bool(_MONTH.match(words[1]))
    folded = _fold(word.strip(_EDGES))
    return any(_NUMBER_WORDS.match(part) for part in _HYPHEN.split(folded))


def _has_key_value(sentence: str) -> bool:
    """Return whether a sentence contains a rule of the form `key:value`."""
    if ":" not in sentence:
        return False
    if _KEY_VALUE_LINE.fullmatch(sentence):
        return True
    return any(":" in word and _KEY_VALUE_WORD.match(word.lstrip(_EDGES)) for word in sentence.split())


def _fold(text: str) -> str:
    """Return a text in lower case with composed accents."""
    return text.casefold() if text.isascii() else unicodedata.normalize("NFC", text).casefold()
