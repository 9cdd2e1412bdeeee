"""The sentences of a user that forbid something, found by rules and quoted word for word.

The rules know common forms in English, German, French and Spanish. They find sentences and judge nothing: a sentence
too many costs a line of the contract, and one that they miss is still in the user's message.
"""

import re

from baton.wire.text import split_sentences

MAX_PROHIBITION_LENGTH = 500
"""The longest sentence that is quoted; a longer one is a pasted text and not a rule."""
MAX_PROHIBITIONS = 20
"""The most sentences that are quoted from one message, the first ones."""
_MAX_SEARCHED = 30_000  # characters, in less than a quarter of a second

_CLAUSE = r"(?:^|[,;:.(–—-]\s*|\b(?:please|and|but|then|so|also|or|you|bitte|und|aber|et|mais|y|pero|por favor,?)\s+)"
_PATTERNS = (
    # English
    _CLAUSE + r"(?:do not|don't|dont)\s+(?!worry|mind|hesitate|know|think|see|understand|have|need)\w",
    _CLAUSE + r"never\s+(?!mind|mind\b)\w",
    r"\b(?:must|may|shall|should|can)\s+(?:not|never)\b",
    r"\b(?:mustn't|shouldn't|cannot be|can't be)\s",
    r"\byou\s+(?:to not|not to|can't|cannot)\b",
    r"\b(?:not allowed|not permitted|forbidden|prohibited|off[- ]limits|hands off|under no circumstances)\b",
    r"\b(?:keep|stay)\s+(?:away from|out of|clear of|your hands off)\b",
    r"\bleave\b.{1,80}\b(?:alone|untouched|unchanged|as (?:it|they) (?:is|are))\b",
    _CLAUSE
    + r"no\s+(?:more\s+)?(?:changes|edits|commits|deploys?|deployments?|emails?|mails|calls|new dependencies)\b",
    # German
    r"\b(?:niemals|keinesfalls|auf keinen fall|unter keinen umständen|keineswegs)\b",
    r"\b(?:verboten|untersagt|(?:nicht|nie) (?:erlaubt|zulässig|gestattet)|finger weg|finger von)\b",
    r"\b(?:darf|darfst|dürft|dürfen|soll|sollst|sollt|sollen|sollte|sollten)\b.{0,80}\b(?:nicht|nie|kein\w*)\b",
    r"^(?:bitte,?\s+)?(?:nicht|nie|keine?n?)\s+\w",
    r"\bbitte\b.{0,80}\b(?:nicht|nie|keine?n?)\b",
    _CLAUSE
    + r"(?:änder|lösch|schick|send|verwend|benutz|nutz|veröffentlich|berühr|fass|rühr|mach|schreib|lad|ruf|nimm|"
    r"teil|lass)\w{0,4}\b.{0,80}\b(?:nicht|nie|keine?n?)\b",
    # French
    _CLAUSE + r"(?:ne\s+|n')\w+(?:[ -]\w+){0,2}\s+(?:pas|jamais|plus|aucune?)\b",
    r"\b(?:ne|n')\s*(?:faut|dois|doit|doivent|devez|peux|peut|peuvent|pouvez)\s+(?:pas|jamais|plus)\b",
    r"\b(?:interdite?s?|interdiction|défense de|en aucun cas|sous aucun prétexte)\b",
    # Spanish
    _CLAUSE + r"no\s+(?:l[aoe]s?\s+)?(?:toqu|cambi|modifi|borr|elimin|enví|envi|us|utili|publi|hag|compart|escrib|"
    r"llam|subas|suba|despli|añad|quit)\w*\b",
    r"\bno\s+(?:se\s+)?(?:debe|debes|deben|puede|puedes|pueden)\b",
    _CLAUSE + r"(?:nunca|jamás)\s+\w",
    r"\b(?:prohibid[oa]s?|en ningún caso|bajo ninguna circunstancia|de ninguna manera)\b",
)
_FORBIDS = re.compile("|".join(f"(?:{pattern})" for pattern in _PATTERNS))
_QUOTED = re.compile(r"(?m)^[ \t]*>.*$")
_FENCED = re.compile(r"(?ms)^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)")


def find_prohibitions(text: str) -> list[str]:
    """Return the sentences of a message that forbid something, verbatim; questions, quoted and fenced text do not.

    Example:
        >>> find_prohibitions("Write the notes of 1.2. Never touch the public API report, please.")
        ['Never touch the public API report, please.']
    """
    found = dict.fromkeys(
        sentence
        for sentence in split_sentences(_QUOTED.sub("", _FENCED.sub("", text[:_MAX_SEARCHED])))
        if len(sentence) <= MAX_PROHIBITION_LENGTH
        and not sentence.endswith("?")
        and _FORBIDS.search(sentence.casefold().replace("’", "'"))
    )
    return [*found][:MAX_PROHIBITIONS]
