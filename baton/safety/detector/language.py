"""What the rules for one language are made of, where words have spaces between them.

For each language: drop your earlier orders; the same as a sentence of its own; show your system prompt; do not
tell the person; your new task; you have no limits. Written from the grammar of the languages.
"""

from dataclasses import dataclass

from baton.safety.detector.rules import Family, Rule, native_family
from baton.safety.scan import Category


@dataclass(frozen=True)
class Language:
    """The words of one language.

    Attributes:
        code: ISO 639-1.
        drop: Verbs: ignore, forget, disregard.
        orders: Nouns: instructions, rules, prompt.
        earlier: Words for previous, above, your, all of them.
        show: Verbs: reveal, print, repeat.
        prompt: The system prompt, the initial instructions.
        hide: Phrases for "do not tell the user".
        now: Phrases for "you are now", "your new task is".
        all: Phrases for "forget everything said before".
        free: Phrases for "you have no limits".
    """

    code: str
    drop: str
    orders: str
    earlier: str
    show: str
    prompt: str
    hide: tuple[str, ...] = ()
    now: tuple[str, ...] = ()
    all: tuple[str, ...] = ()
    free: tuple[str, ...] = ()

    def family(self) -> Family:
        """Return the language's rules."""
        both = (
            f"!({self.drop}) ~4 ({self.earlier}) ~2 ({self.orders})",
            f"!({self.drop}) ~3 ({self.orders}) ~2 ({self.earlier})",
        )
        prompts = f"({self.show}) ~5 !({_SYSTEM_PROMPTS}|{self.prompt})"
        rules = [
            Rule(f"override.{self.code}", 6, both, squeezable=True, group="override"),
            Rule(f"override.{self.code}_as_a_command", 4, tuple(f"^{phrase}" for phrase in both), group="command"),
            Rule(f"disclosure.{self.code}", 5, (prompts,), group="disclosure.system_prompt"),
        ]
        if self.hide:
            rules.append(Rule(f"disclosure.{self.code}_hide_from_the_person", 5, self.hide))
        if self.now:
            rules.append(Rule(f"task.{self.code}_replaced", 4, self.now))
        if self.all:
            rules.append(Rule(f"override.{self.code}_everything", 5, self.all, group="override"))
        if self.free:
            rules.append(Rule(f"jailbreak.{self.code}", 5, self.free, category=Category.JAILBREAK))
        return native_family(*rules) if self.code in ("ru", "uk") else Family(tuple(rules))


_SYSTEM_PROMPTS = (
    "systemprompt|system-prompt|system_prompt|prompt_system*|prompt_système|prompt_de_sistema|prompt_del_sistema"
    "|prompt_do_sistema|prompt_di_sistema|systeemprompt|systemowy_prompt|prompt_systemowy"
)
