"""A detector that asks a model: any HTTP service that classifies texts as Hugging Face's do."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.request import Request, urlopen

from pydantic import TypeAdapter

from baton.safety.scan import Category, Suspicion

_INJECTION, _JAILBREAK = Category.PROMPT_INJECTION, Category.JAILBREAK
_LABELS = {"INJECTION": _INJECTION, "JAILBREAK": _JAILBREAK, "LABEL_1": _INJECTION, "MALICIOUS": _INJECTION}
_MAX_RESPONSE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class _Score:
    label: str
    score: float


_RESPONSE = TypeAdapter(list[list[_Score]])


@dataclass(frozen=True)
class Classifier:
    """A text classifier behind the port `Detector`; use it in addition to the built-in detector.

    Every text is sent completely, in pieces. The request is `{"inputs": [["a text"], …]}`, the response
    `[[{"label": "INJECTION", "score": 0.98}, …], …]`, the format of Hugging Face's text-embeddings-inference at
    `/predict`.

    Attributes:
        url: The address of the service. It sees what agents hand over, so run your own.
        labels: The labels of attacks, and the category of each; other labels are harmless.
        name: Its name in findings.
        headers: Further HTTP headers, such as a token.
        piece: Characters per classified piece; limited by the model's window.
        batch: Texts per request.
        timeout: Seconds per request.

    Raises:
        OSError: The service cannot be reached or refuses; the gate then accepts no handoff.
        ValueError: Its response is invalid.

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
        """Return a suspicion for each text and category; a probability of 0.5 scores 5, from 0.95 on 10."""
        pieces = [(index, piece) for index, text in enumerate(texts) for piece in self._split(text)]
        strongest: dict[tuple[int, Category], int] = {}
        for start in range(0, len(pieces), self.batch):
            batch = pieces[start : start + self.batch]
            for (index, _), scores in zip(batch, self._classify([piece for _, piece in batch]), strict=True):
                for score in scores:
                    if score.label in self.labels:
                        key = (index, self.labels[score.label])
                        strongest[key] = max(strongest.get(key, 0), round(score.score * 10 + 0.05))
        return [Suspicion(at, category, (self.name,), points) for (at, category), points in strongest.items() if points]

    def _split(self, text: str) -> Iterator[str]:
        """Yield the pieces of a text; each repeats the last tenth of the previous one."""
        for start in range(0, max(1, len(text)), self.piece * 9 // 10):
            if piece := text[start : start + self.piece].strip():
                yield piece

    def _classify(self, texts: Sequence[str]) -> list[list[_Score]]:
        body = json.dumps({"inputs": [[text] for text in texts]}).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        with urlopen(Request(self.url, body, headers), timeout=self.timeout) as response:  # noqa: S310
            raw: Any = response.read(_MAX_RESPONSE_BYTES)
        scores = _RESPONSE.validate_json(raw)
        if len(scores) != len(texts):
            raise ValueError(f"{self.url} returned scores for {len(scores)} texts instead of {len(texts)}")
        return scores
