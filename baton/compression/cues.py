"""The words by which a decision, a constraint, a flag or a number in words is known, in English, German and French.

A vocabulary is a text: words and phrases with commas between them, a star for any ending. All of it is folded: in
lower case, with `ss` for `ß`.
"""

import re


def vocabulary(*texts: str) -> re.Pattern[str]:
    """Return a pattern that finds the words of vocabularies in folded text, at the beginning of a word.

    Args:
        texts: Vocabularies, one for each language.

    Example:
        >>> found = vocabulary("decision*, go with")
        >>> [bool(found.search(text)) for text in ("two decisions", "go with it", "indecision", "go without")]
        [True, True, False, False]
    """
    words = [" ".join(word.split()) for text in texts for word in text.split(",")]
    patterns = [re.escape(word.removesuffix("*")) + ("" if word.endswith("*") else r"(?!\w)") for word in words if word]
    return re.compile(r"(?<!\w)(?:" + "|".join(patterns) + ")")


DECISION = vocabulary(
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
"""A decision was made."""

CONSTRAINT = vocabulary(
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
"""A rule holds."""

FLAG = vocabulary(
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
"""Something is wrong, open or dangerous."""

REASON = vocabulary(
    "because, reason, reasons, rationale, since, this is because, the reason*, so that, as it",
    "weil, denn, grund, gründe, begründung, da, damit",
    "parce qu*, car, raison*, motif*, puisqu*, afin",
)
"""A sentence that begins so gives the reason of the one before."""

LABEL = vocabulary(
    "decision*, decided, constraint*, requirement*, rule*, warning*, flag*, risk*, note*, todo, open question*",
    "entscheidung*, beschluss, vorgabe*, auflage*, bedingung*, warnung*, achtung, risiko, offene frage*",
    "décision*, contrainte*, exigence*, avertissement*, attention, alerte, risque*, questions ouvertes",
)
"""A line that begins so and goes on with a colon or a dash is one statement."""

NUMBER_WORDS = vocabulary(
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
"""A number that is spelled out; one is none, because `ein` and `un` are articles."""
