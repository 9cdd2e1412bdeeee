"""What of an agent's texts a worker notes, and how much work that is."""

from datetime import UTC, datetime

from baton.contract.activity_transcript import MAX_CHARACTERS, TranscriptLog


def now() -> datetime:
    return datetime(2026, 11, 29, tzinfo=UTC)


def test_each_message_is_cleaned_once() -> None:
    """A request repeats the whole conversation, and masking a long one takes long."""
    cleaned: list[str] = []

    def clean(text: str) -> str:
        cleaned.append(text)
        return text.replace("pa55-word", "[withheld]")

    log = TranscriptLog(clean, now)
    conversation = [("user", f"message {number}: pa55-word") for number in range(20)]
    for length in range(1, 21):
        log.ask("agent", conversation[:length])

    transcript = log.record([], is_needed=False)
    assert transcript is not None
    assert cleaned == [text for _, text in conversation]
    assert [len(request.asked) for request in transcript.requests] == [*range(1, 21)]
    assert [message.text for message in transcript.asked(transcript.requests[-1])] == [
        f"message {number}: [withheld]" for number in range(20)
    ]


def test_a_transcript_has_an_end() -> None:
    """Whoever reads it holds it in memory, and an agent may be led to fetch without end."""
    log = TranscriptLog(lambda text: text, now)
    for number in range(30):
        log.ask("agent", [("tool", f"{number}" + "x" * 1_000_000)])
    log.answered("y" * 1_000_000)

    transcript = log.record([], is_needed=False)
    assert transcript is not None
    texts = [*(message.text for message in transcript.messages), transcript.answer]
    assert MAX_CHARACTERS <= sum(map(len, texts)) < MAX_CHARACTERS * 1.01
    assert len(transcript.messages) == 30
