"""What a rule is: a name, how much it says, and the phrases and patterns it is found by."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from baton.safety.detector.automata import Search, any_of, automaton, branching, one_of
from baton.safety.detector.phrases import CYRILLIC, LATIN, Alphabet, cores, pattern, squeezed, squeezed_cores
from baton.safety.scan import Category


@dataclass(frozen=True)
class Rule:
    """One sign of an attack.

    Attributes:
        name: Family and sign, for findings and audit: `override.earlier_orders`.
        points: How much it says, 1 to 10. A passage's score is the sum over its rules; 5 are worth a flag and
            10 a refusal (a pipeline's `baton.safety.scan.ScanPolicy` may move both).
        phrases: See `baton.safety.detector.phrases`.
        patterns: Rust patterns on text in lower case, for what is no phrase: markup, scripts without spaces.
        category: What kind of attack it is a sign of.
        squeezable: Whether it is also looked for in text of which only the letters are left.
        group: Of rules of one group only the strongest counts; a rule without one counts by itself.
        native: Whether it is looked for in text of its own script; otherwise in text brought down to ASCII.
    """

    name: str
    points: int
    phrases: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    category: Category = Category.PROMPT_INJECTION
    squeezable: bool = False
    group: str = ""
    native: bool = False

    @cached_property
    def pattern(self) -> str:
        """The pattern that occurs where the rule does."""
        return any_of([*(pattern(phrase, self._alphabet) for phrase in self.phrases), *self.patterns])

    @cached_property
    def cores(self) -> list[list[str]]:
        """The spellings of which one occurs where one of its phrases does."""
        return [way for phrase in self.phrases for way in cores(phrase, self._alphabet)]

    @cached_property
    def squeezed(self) -> list[str]:
        """The patterns of which one occurs where the rule does in a text of which only the letters are left.

        One automaton of all of them would take six times the time.
        """
        return [*map(squeezed, self.phrases), *self.patterns]

    @cached_property
    def squeezed_cores(self) -> list[str]:
        """The words of which one occurs where one of its phrases does, in a text of which only letters are left."""
        return [word for phrase in self.phrases for word in squeezed_cores(phrase)]

    @property
    def _alphabet(self) -> Alphabet:
        return CYRILLIC if self.native else LATIN


@dataclass(frozen=True)
class Family:
    """Rules that are searched for together first, and one by one only where their core occurs."""

    rules: tuple[Rule, ...]

    @property
    def native(self) -> bool:
        """Whether they are looked for in text of its own script."""
        return self.rules[0].native

    @cached_property
    def core(self) -> Search:
        """Finds something at least where one of the rules does."""
        return core_of(self.rules)

    @cached_property
    def all_in_one(self) -> Search:
        """Finds something exactly where one of the rules does."""
        return all_in_one(self.rules)

    def found_in(self, text: str, at_once: bool) -> Iterator[Rule]:
        """Yield the rules that occur in a passage.

        Args:
            text: The passage.
            at_once: Look for all of them at once before each of them is looked for.
        """
        if self.core(text) and (not at_once or self.all_in_one(text)):
            yield from (rule for rule in self.rules if automaton(rule.pattern)(text))


def rules_of(families: Iterable[Family]) -> Iterator[Rule]:
    """Yield the rules of several families."""
    return (rule for family in families for rule in family.rules)


def all_in_one(rules: Iterable[Rule]) -> Search:
    """Return a search that finds something exactly where one of the rules does.

    A word such as `ignore` occurs in ordinary work, and then this spares the searches for each of the rules. In text
    that is made of such words its automaton grows, and takes longer than they do.
    """
    return automaton(any_of(rule.pattern for rule in rules))


def core_of(rules: Iterable[Rule]) -> Search:
    """Return a search that finds something at least where one of the rules does, and is cheaper than they are.

    Words and markup are looked for apart: where something is found, in one automaton they would multiply each
    other's states.
    """
    return one_of(core_patterns(rules))


def core_patterns(rules: Iterable[Rule]) -> list[str]:
    """Return the patterns of which one occurs at least where one of the rules does: for words, and for markup."""
    rules = list(rules)
    ways = branching(way for rule in rules for way in rule.cores)
    marks = dict.fromkeys(pattern for rule in rules for pattern in rule.patterns)
    return [pattern for pattern in (ways, any_of(marks) if marks else "") if pattern]


def native_family(*rules: Rule) -> Family:
    """Return a family of rules that are looked for in text of its own script."""
    return Family(tuple(replace(rule, native=True) for rule in rules))
