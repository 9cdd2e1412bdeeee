"""Keys in the output of a running stage: no snapshot has a part of one, and what was shown never changes."""

import pytest

from baton.codec.secrets import WITHHELD, mask_secrets
from baton.core.streaming import PartKind
from baton.pipelines.activity_stream import StageStream

WORD, PHRASE, LINES = "correct-horse-battery-1", "correct horse battery", "first line\nsecond line"
LONGER = f"{WORD} and its salt"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQ IBADAN\nBgkqhk\n-----END RSA PRIVATE KEY-----"
SECRETS = {
    "a variable": WORD,
    "a variable with blanks": PHRASE,
    "a variable with lines": LINES,
    "as JSON spells it": LINES.replace("\n", "\\n"),
    "one that begins with another": LONGER,
    "the usual form": "sk-proj-0123456789abcdef",
    "a token": "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl",
    "a private key": PEM,
    "a private key without an end": PEM.partition("\n-----END")[0],
    "in an address": "postgres://ann:pa55-word@db:5432/x",
    "of a header": "Authorization: Bearer abcdefghijklmnop0123",
    "named": "api_key: 'abc123def456'",
    "named, with blanks": 'password  =  "abc123def456"',
    "named after a name": "password: password: abc123def456",
    "none": "bearer of the password: nobody has a private key",
}


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set variables that hold secrets."""
    for name, value in {"WORD": WORD, "PHRASE": PHRASE, "LINES": LINES, "LONGER": LONGER}.items():
        monkeypatch.setenv(f"{name}_KEY", value)


def watch(*pieces: str) -> str:
    """Return what a watcher reads of a text in pieces, who looks after each of them and at the end."""
    stream = StageStream(wanted=True, notify=lambda: None)
    whole, read, offset = mask_secrets("".join(pieces)), "", 0
    for number in range(len(pieces) + 1):
        if number < len(pieces):
            stream.text(pieces[number])
        else:
            stream.to_json()
        for part, end in stream.snapshot(1).after(offset):
            read, offset = read + part.text, end
        assert "".join(part.text for part in stream.snapshot(1).parts) == read
        assert whole.startswith(read)
    return read


@pytest.mark.parametrize("frame", ["The key is {} and the answer is 42, not 41.", "{}", "Keys:\n{}\n{}\n"])
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_a_watcher_reads_the_masked_text_once(secret: str, frame: str) -> None:
    """However the text is divided."""
    text = frame.format(*[secret] * frame.count("{}"))
    masked = mask_secrets(text)

    assert (WITHHELD in masked) == ("nobody" not in secret)
    assert watch(*text) == masked
    for place in range(len(text) + 1):
        assert watch(text[:place], text[place:]) == masked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("A baton is a sma", "A baton is a ", id="words"),
        pytest.param("It travels.\n", "It travels.\n", id="a line"),
        pytest.param("\u63a5\u529b\u68d2\u3002\u5b83", "\u63a5\u529b\u68d2\u3002", id="a sentence without blanks"),
        pytest.param("The password is correct, ann ", "The password is correct, ann ", id="the name of a secret"),
        pytest.param("The correct one ", "The correct one ", id="the first word of a secret"),
        pytest.param("x" * 10_000, "x" * 10_000, id="a word without an end"),
    ],
)
def test_words_are_shown_as_they_are_complete(text: str, shown: str) -> None:
    """A word waits for its end only."""
    stream = StageStream(wanted=True, notify=lambda: None)
    stream.text(text)

    assert "".join(part.text for part in stream.snapshot(1).parts) == shown


def test_a_tool_call_ends_the_text_before_it() -> None:
    """What was held back comes before the call."""
    stream = StageStream(wanted=True, notify=lambda: None)
    stream.text(f"I look {WORD[:10]}")
    stream.tool_called("search", {})
    stream.text("up")

    assert [(part["text"] if "text" in part else part["tool"]) for part in stream.to_json()] == [
        f"I look {WORD[:10]}",
        "search",
        "up",
    ]
    assert PartKind.TEXT.value in stream.to_json()[0]
