"""The golden set: conversations of any length with decisions, constraints, flags and numbers planted in them.

They are made and not stored: the same length, language and seed always give the same conversation. What is planted
is written as agents and people write it, with and without a label, and most of what is around it is talk.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle

from baton import estimate_tokens
from baton.core.turns import Turn

LENGTHS = (5_000, 10_000, 20_000, 50_000)
"""The lengths of the document, in tokens (S3-7.1.3-b)."""
LANGUAGES = ("en", "de", "fr")

_TALK = {
    "en": (
        ("I read", "We looked at", "The agent went through", "Then we came to", "I had another look at", "Let me open"),
        (
            "the supplier agreement",
            "the notes from the kick-off",
            "the annex on service levels",
            "the change request",
            "the old proposal",
            "the mail from procurement",
            "the minutes",
            "the part about subcontractors",
        ),
        (
            "and it reads like the usual template",
            "and most of it is boilerplate",
            "which says little that is new",
            "and compared it with the version from last year",
            "while the extraction was running",
            "but found nothing out of the ordinary",
            "and made a short note for later",
        ),
    ),
    "de": (
        (
            "Ich habe",
            "Wir haben gemeinsam",
            "Der Agent hat",
            "Danach haben wir",
            "Heute Morgen habe ich",
            "Zuletzt haben wir",
        ),
        (
            "den Liefervertrag",
            "die Notizen vom Auftakt",
            "den Anhang zum Service",
            "den Änderungsantrag",
            "das alte Angebot",
            "die Nachricht vom Einkauf",
            "das Protokoll",
            "den Teil über Unterauftragnehmer",
        ),
        (
            "gelesen und wenig Neues gefunden",
            "mit der alten Fassung verglichen",
            "noch einmal durchgesehen",
            "geöffnet und kurz besprochen",
            "neben der laufenden Auswertung überflogen",
            "für später beiseite gelegt",
        ),
    ),
    "fr": (
        ("J'ai relu", "Nous avons parcouru", "L'agent a ouvert", "Ensuite nous avons regardé", "Ce matin j'ai repris"),
        (
            "le contrat du fournisseur",
            "les notes de la réunion",
            "l'annexe sur les services",
            "la demande de modification",
            "l'ancienne proposition",
            "le message des achats",
            "le compte rendu",
            "la partie sur les prestataires",
        ),
        (
            "et le texte ressemble au modèle habituel",
            "sans rien trouver de nouveau",
            "pendant que l'extraction tournait",
            "puis comparé avec la version précédente",
            "et noté quelques mots pour plus tard",
        ),
    ),
}
"""Talk: a beginning, a thing, an end. Nothing in it needs to be kept."""

_DECISIONS = {
    "en": (
        "Decision: the {thing} team owns clause {n}, because nobody else has read it.",
        "We decided to use {thing} for the index. Reason: the other one locks the file.",
        "After a long talk we agreed that {thing} signs first.",
        "Let's go with {thing} and drop the second supplier.",
        "The legal team approved the wording of {thing}.",
    ),
    "de": (
        "Entscheidung: {thing} übernimmt Klausel {n}, weil sonst niemand sie kennt.",
        "Wir haben beschlossen, {thing} zu verwenden. Grund: das andere sperrt die Datei.",
        "Es wurde vereinbart, dass {thing} zuerst unterschreibt.",
        "Die Rechtsabteilung hat den Wortlaut von {thing} freigegeben.",
    ),
    "fr": (
        "Décision : {thing} reprend la clause {n}, parce que personne d'autre ne la connaît.",
        "Nous avons décidé de prendre {thing}. Car l'autre bloque le fichier.",
        "Il a été convenu que {thing} signe en premier.",
        "Le service juridique a validé le texte de {thing}.",
    ),
}
_CONSTRAINTS = {
    "en": (
        "max{thing}Tokens:{n}",
        "{thing} must never leave the EU.",
        "Answers about {thing} have to be in JSON, and only in JSON.",
        "The report on {thing} shall not exceed {n} pages.",
        "scoring_{thing}: iso31000",
    ),
    "de": (
        "max{thing}Seiten:{n}",
        "{thing} darf die EU nicht verlassen.",
        "Der Bericht über {thing} muss am Montag fertig sein.",
        "Vorgabe: {thing} bleibt unverändert.",
    ),
    "fr": (
        "max{thing}Pages:{n}",
        "{thing} ne doit jamais quitter l'Union.",
        "Le rapport sur {thing} doit être prêt lundi.",
        "Contrainte : {thing} reste tel quel.",
    ),
}
_FLAGS = {
    "en": (
        "Warning: the annex on {thing} is missing.",
        "Clause {n} of {thing} flagged as potentially unlimited liability.",
        "⚠ Nobody has read {thing}.",
        "The signature under {thing} is not yet there.",
        "Open question: who answers for {thing}?",
    ),
    "de": (
        "Achtung: der Anhang zu {thing} fehlt.",
        "Klausel {n} von {thing} ist als unbegrenzte Haftung markiert.",
        "Ungeklärt bleibt, wer für {thing} haftet.",
        "Die Unterschrift unter {thing} wurde nicht geprüft.",
    ),
    "fr": (
        "Attention : l'annexe sur {thing} manque.",
        "La clause {n} de {thing} est signalée comme responsabilité illimitée.",
        "Question ouverte : qui répond de {thing} ?",
        "La signature sous {thing} est non vérifiée.",
    ),
}
_NUMBERS = {
    "en": (
        ("The cap for {thing} is EUR {n},500,000 per year.", "EUR {n},500,000"),
        ("{thing} pays within {n} days.", "{n} days"),
        ("The file on {thing} has the id CR-2026-{n}.", "CR-2026-{n}"),
        ("We measured {n}.5 % for {thing}.", "{n}.5 %"),
        ("{thing} ends on 2027-03-{d}.", "2027-03-{d}"),
        ("Notice for {thing} is thirty-{w} days.", "thirty-{w} days"),
        ("The tool found {n} clauses in {thing}.", "{n} clauses"),
    ),
    "de": (
        ("Die Obergrenze für {thing} liegt bei {n}.500.000 €.", "{n}.500.000 €"),
        ("{thing} zahlt innerhalb von {n} Tagen.", "{n} Tagen"),
        ("Der Vorgang zu {thing} hat das Zeichen AZ-{n}/26.", "AZ-{n}/26"),
        ("{thing} endet am {d}. März 2027.", "{d}. März"),
        ("Die Kündigung von {thing} braucht fünfundzwanzig Tage.", "fünfundzwanzig Tage"),
    ),
    "fr": (
        ("Le plafond pour {thing} est de {n} 500 000 €.", "{n} 500 000 €"),
        ("{thing} paie sous {n} jours.", "{n} jours"),
        ("Le dossier de {thing} porte le numéro CR-{n}-F.", "CR-{n}-F"),
        ("{thing} se termine le {d} mars 2027.", "{d} mars"),
        ("Le préavis de {thing} est de trente jours.", "trente jours"),
    ),
}
_ROLES = ("user", "assistant", "tool")


@dataclass
class Golden:
    """A conversation, and what was planted in it.

    Attributes:
        turns: The conversation.
        decisions: Decisions, with the reason where it is a sentence of its own.
        constraints: Constraints.
        flags: Flags and warnings.
        numbers: Sentences with a number, and the number with its unit.
    """

    turns: list[Turn]
    decisions: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    numbers: list[tuple[str, str]] = field(default_factory=list)

    @property
    def verbatim(self) -> list[str]:
        return [*self.decisions, *self.constraints, *self.flags]


def history(tokens: int, *, languages: tuple[str, ...] = ("en",), seed: int = 1) -> Golden:
    """Return a conversation of about so many tokens, one thing planted in every second turn.

    Args:
        tokens: How long it is, never less.
        languages: The languages of its turns, in turn.
        seed: Another seed makes another conversation.
    """
    dice = random.Random(f"{tokens}/{languages}/{seed}")
    golden = Golden([])
    length, tongues, roles = 0, cycle(languages), cycle(_ROLES)
    while length < tokens:
        tongue = next(tongues)
        sentences = [_talk(dice, tongue) for _ in range(dice.randint(6, 14))]
        if len(golden.turns) % 2 == 0:
            sentences.insert(dice.randint(0, len(sentences)), _plant(golden, dice, tongue))
        content = "".join(_joined(sentences, dice))
        golden.turns.append(Turn(role=next(roles), content=content))
        length += estimate_tokens(content)
    return golden


def _talk(dice: random.Random, tongue: str) -> str:
    return " ".join(dice.choice(words) for words in _TALK[tongue]) + "."


def _plant(golden: Golden, dice: random.Random, tongue: str) -> str:
    number = len(golden.turns)
    # A name without a digit: a sentence with a number in it is kept for that alone, whatever else it says.
    letters = (chr(97 + number // 26**place % 26) for place in range(3))
    about: dict[str, str | int] = {"thing": f"Kappa{''.join(letters)}", "n": 101 + number}
    about |= {"d": 10 + number % 19, "w": ("two", "three", "four")[number % 3]}
    kind = (number // 2) % 4
    if kind == 3:
        sentence, value = (part.format(**about) for part in dice.choice(_NUMBERS[tongue]))
        golden.numbers.append((sentence, value))
        return sentence
    source, planted = [(_DECISIONS, golden.decisions), (_CONSTRAINTS, golden.constraints), (_FLAGS, golden.flags)][kind]
    sentence = dice.choice(source[tongue]).format(**about)
    planted.append(sentence)
    return sentence


def _joined(sentences: list[str], dice: random.Random) -> Iterator[str]:
    """Yield sentences with what stands between them: mostly a blank, now and then a new line or a list's mark."""
    for place, sentence in enumerate(sentences):
        yield sentence
        if place + 1 < len(sentences):
            # A rule of the form `key:value` has no full stop: it stands on a line of its own.
            apart = not sentence.endswith((".", "?")) or not sentences[place + 1].endswith((".", "?"))
            yield dice.choice(("\n", "\n- ")) if apart else dice.choice((" ", " ", " ", "\n", "\n- "))
