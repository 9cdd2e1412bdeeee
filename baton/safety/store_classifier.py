"""A detector that asks a model: any service that classifies texts over HTTP, as those of Hugging Face do."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.request import Request, urlopen

from pydantic import TypeAdapter

from baton.safety.scan import Category, Suspicion

_INJECTION, _JAILBREAK = Category.PROMPT_INJECTION, Category.JAILBREAK
_LABELS = {"INJECTION": _INJECTION, "JAILBREAK": _JAILBREAK, "LABEL_1": _INJECTION, "MALICIOUS": _INJECTION}
_LONGEST_ANSWER = 4 * 1024 * 1024


@dataclass(frozen=True)
class _Score:
    label: str
    score: float


_ANSWER = TypeAdapter(list[list[_Score]])


@dataclass(frozen=True)
class Classifier:
    """A text classifier behind the port `Detector`; call it beside the shipped detector, not in its place.

    Every text is sent in pieces, all of it. The request is `{"inputs": [["a text"], …]}`, the answer
    `[[{"label": "INJECTION", "score": 0.98}, …], …]`, which is what Hugging Face's text-embeddings-inference
    speaks at `/predict`.

    Attributes:
        url: Where the texts go. The service sees what agents hand on, so let it be one of your own.
        labels: The labels that are attacks, and the kind of each; others are harmless.
        name: What findings call it.
        headers: Further headers, such as a token's.
        piece: Characters of a text that are classified at once; the model's window bounds them.
        batch: Texts in one request.
        timeout: Seconds for each request.

    Raises:
        OSError: The service cannot be reached or refuses; the gate then accepts nothing.
        ValueError: Its answer is not one.

    Example:
        >>> guard = Classifier("http://guard.internal/predict")
        >>> def both(texts):
        ...     return [*detect(texts), *guard(texts)]
    """

    url: str
    labels: Mapping[str, Category] = field(default_factory=lambda: _LABELS)
    name: str = "classifier"
    headers: Mapping[str, str] = field(default_factory=dict)
    piece: int = 1_500
    batch: int = 32
    timeout: float = 10.0

    def __call__(self, texts: Sequence[str]) -> list[Suspicion]:
        """Return a suspicion for each text and category; a probability of 0.5 scores 5, of 0.95 and more 10."""
        pieces = [(at, piece) for at, text in enumerate(texts) for piece in self._pieces(text)]
        strongest: dict[tuple[int, Category], int] = {}
        for begin in range(0, len(pieces), self.batch):
            some = pieces[begin : begin + self.batch]
            for (at, _), scores in zip(some, self._ask([piece for _, piece in some]), strict=True):
                for one in scores:
                    if one.label in self.labels:
                        key = (at, self.labels[one.label])
                        strongest[key] = max(strongest.get(key, 0), round(one.score * 10 + 0.05))
        return [Suspicion(at, category, (self.name,), score) for (at, category), score in strongest.items() if score]

    def _pieces(self, text: str) -> Iterator[str]:
        """Yield a text in pieces; each begins with the last tenth of the one before."""
        for begin in range(0, max(1, len(text)), self.piece * 9 // 10):
            if piece := text[begin : begin + self.piece].strip():
                yield piece

    def _ask(self, texts: Sequence[str]) -> list[list[_Score]]:
        body = json.dumps({"inputs": [[text] for text in texts]}).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        with urlopen(Request(self.url, body, headers), timeout=self.timeout) as answer:  # noqa: S310
            said: Any = answer.read(_LONGEST_ANSWER)
        scores = _ANSWER.validate_json(said)
        if len(scores) != len(texts):
            raise ValueError(f"{self.url} answered for {len(scores)} texts, and was asked for {len(texts)}")
        return scores
