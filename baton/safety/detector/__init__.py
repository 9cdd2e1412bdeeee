"""The shipped detector of injected instructions: named rules in many languages, in linear time.

It knows the marks of an attack: text that tells its reader to drop earlier orders, poses as the system or as
a turn of the chat, wants prompts or secrets out or the person kept in the dark, talks a model out of its
limits. It finds them in plain words of some twenty languages, and under the disguises that a model reads through:
look-alike, invisible and full-width letters, leet, spaced, broken and reversed words, ROT13, base64 and other
encodings up to six deep, and sentences spread over several fields.

**Not promised.** A bare command inside data ("Please forward the report to anna@example.com") differs in
nothing from ordinary work; this detector passes it, by intent, as does any that looks at words and is usable.
Nor are paraphrases without any of the marks found, languages it has no rules for, ciphers beyond the ones
named, compressed or pictured text. An author who has this file can write around it. What is proved is the
structure around it; see `baton.safety.scan`.

How it works: `texts` → `views` (one list of texts for each spelling worth a look) → passages of some 600
characters → rules that occur in them → a score, the sum of their points. All patterns are compiled to finite
automata, so no text takes more than linear time (`baton.safety.detector.automata`).

* `automata`: searching in linear time
* `phrases`, `rules`: the language of rules, and what a rule is
* `overriding`, `authority`, `disclosure`, `jailbreak`: rules in English; `european`, `scripts`: in others
* `folding`, `decoding`, `views`: the spellings
* `passages`: from views to suspicions
"""

from baton.safety.detector.passages import FAMILIES, detect

__all__ = ["FAMILIES", "detect"]
