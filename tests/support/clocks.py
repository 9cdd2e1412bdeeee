"""Clocks of this process that are off, as those of another machine may be."""

import sys
from datetime import datetime, timedelta, tzinfo
from typing import Any, Self

import pytest


def shift_clocks(monkeypatch: pytest.MonkeyPatch, off: timedelta) -> None:
    """Have all modules of Baton read a clock that is off; the server's is right."""

    class OfAnyTime(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, datetime)

    class Shifted(datetime, metaclass=OfAnyTime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return datetime.now(tz) + off  # type: ignore[return-value]

    for name, module in [*sys.modules.items()]:
        if name.startswith("baton.") and getattr(module, "datetime", None) is datetime:
            monkeypatch.setattr(module, "datetime", Shifted)
