"""A turn of an agent's conversation."""

from typing import Annotated

from baton.wire.records import NOT_NULL, Name, OpenRecord


class Turn(OpenRecord):
    """One turn of the conversation, word for word.

    Attributes:
        content: What was said.
        role: Who said it; absent where the sender does not know.
    """

    content: str
    role: Annotated[Name | None, NOT_NULL] = None
