"""The artifacts that a stage reads and writes, and the choice of those in its prompt."""

import asyncio
import fnmatch
import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

from temporalio import activity

from baton.artifacts.store import ArtifactStore
from baton.core.artifacts import ArtifactRef, normalize_path
from baton.core.messages import Selected
from baton.core.stages import Calls, step
from baton.errors import (
    ArtifactConflictError,
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ArtifactUnavailableError,
    ConfigurationError,
)
from baton.wire.store_clock import now_utc
from baton.wire.text import TokenEstimator


def select_artifacts(
    artifacts: Sequence[ArtifactRef], work_scope: Sequence[str], budget: int, costs: Mapping[str, int]
) -> list[Selected]:
    """Decide for each artifact whether it is included, and why."""
    if budget < 0:
        raise ValueError(f"the token budget for artifacts is {budget}; it must be 0 or more")
    scoped = {ref.id: scope for ref in artifacts if (scope := _find_scope(ref, work_scope)) is not None}
    newest_first = list(reversed(artifacts))
    ranked = sorted(newest_first, key=lambda ref: ref.id not in scoped)
    remaining, verdicts = budget, {}
    for ref in ranked:
        cost = costs.get(ref.id)
        place = f"in the work scope ({scoped[ref.id]})" if ref.id in scoped else "outside the work scope"
        if cost is None:
            verdicts[ref.id] = Selected(id=ref.id, included=False, reason=f"{place}; its content is not text")
        elif cost > remaining:
            reason = f"{place}; costs {cost} tokens, {remaining} of {budget} are left"
            verdicts[ref.id] = Selected(id=ref.id, included=False, reason=reason, tokens=cost)
        else:
            remaining -= cost
            verdicts[ref.id] = Selected(id=ref.id, included=True, reason=f"{place}; fits", tokens=cost)
    return [verdicts[ref.id] for ref in artifacts]


def _find_scope(ref: ArtifactRef, work_scope: Sequence[str]) -> str | None:
    """Return the first entry of the work scope that covers the artifact."""
    names = [normalize_path(name) for name in (ref.path, ref.id) if name]
    return next((scope for scope in work_scope if any(_covers(normalize_path(scope), name) for name in names)), None)


def _covers(scope: str, name: str) -> bool:
    """Return whether a file, folder or glob covers a path or id."""
    if name == scope or fnmatch.fnmatchcase(name, scope):  # stars and brackets are legal in file names too
        return True
    folder = scope.rstrip("/*")
    return bool(folder) and name.startswith(f"{folder}/")


MIN_PAUSE, MAX_PAUSE = 1.0, 60.0
"""Seconds between two attempts to write an artifact."""
_MAX_WAIT = 3_600.0
_TIMEOUT_MARGIN = 15.0  # seconds before the activity's timeout at which the stage reports the reason itself
_log = logging.getLogger(__name__)


async def put_when_possible(store: ArtifactStore, data: bytes) -> str:
    """Store ``data`` and return its SHA-256; in a stage, wait while the store is not writable."""
    deadline, pause = time.monotonic() + max_wait(), MIN_PAUSE
    while True:
        try:
            return await store.put(data)
        except ArtifactUnavailableError as error:
            if time.monotonic() + pause > deadline:
                raise
            if pause == MIN_PAUSE:
                _log.warning("a stage waits for the artifact store: %s", error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE)


class ArtifactAccess:
    """A stage's access to the artifact store: the references handed to it, and those it wrote."""

    def __init__(
        self,
        store: ArtifactStore | None,
        handed: list[ArtifactRef],
        scope: list[str],
        counter: TokenEstimator,
    ) -> None:
        self._store = store
        self._calls = Calls("the stage", shows_arguments=False)
        self._handed = handed
        self._scope = scope
        self._counter = counter
        self.written: list[ArtifactRef] = []
        self.selected: list[Selected] = []

    def check(self) -> None:
        """Raise if a call was never awaited, because then it had no effect."""
        self._calls.check()

    @property
    def store(self) -> ArtifactStore:
        """The worker's store."""
        if self._store is None:
            raise ConfigurationError(
                "this worker has no artifact store; give one to BatonPlugin(WorkerParts(artifacts=…)), "
                "or in a test to StageContext.for_test(artifacts=MemoryArtifactStore())"
            )
        return self._store

    @property
    def refs(self) -> list[ArtifactRef]:
        """All references: those handed to the stage, then those it wrote."""
        return [*self._handed, *self.written]

    @step
    async def write(
        self, id: str, data: bytes | str, *, type: str, path: str | None = None, summary: str | None = None
    ) -> ArtifactRef:
        """Store a work product and return the reference for the baton."""
        raw = data.encode() if isinstance(data, str) else data
        ref = ArtifactRef(
            id=id, type=type, hash=hashlib.sha256(raw).hexdigest(), size=len(raw), path=path, summary=summary
        )
        self._is_new(ref)  # before the bytes are stored
        await put_when_possible(self.store, raw)
        if self._is_new(ref):  # a stage may write several at the same time
            self.written.append(ref)
        return ref

    def _is_new(self, ref: ArtifactRef) -> bool:
        """Return whether the artifact is new; refuse other bytes under its id."""
        existing = next((other for other in self.refs if other.id == ref.id), None)
        if existing is not None and existing.hash != ref.hash:
            raise ArtifactConflictError(
                f"artifact {ref.id!r} already has the hash {existing.short_hash}…, these bytes have {ref.short_hash}…; "
                "artifacts are immutable, give the new version a new id"
            )
        return existing is None

    @step
    async def read(self, id: str) -> bytes:
        """Return the bytes of an artifact that the stage has a reference to."""
        for ref in self.refs:
            if ref.id == id:
                return await self._load(ref)
        ids = ", ".join(repr(ref.id) for ref in self.refs) or "none"
        raise ArtifactNotFoundError(f"the baton has no artifact {id!r}; it refers to: {ids}")

    def in_scope(self) -> list[ArtifactRef]:
        """Return the handed artifacts in the work scope, oldest first."""
        return [ref for ref in self._handed if _find_scope(ref, self._scope) is not None]

    async def _load(self, ref: ArtifactRef) -> bytes:
        try:
            return await self.store.get(ref.hash)
        except (ArtifactNotFoundError, ArtifactCorruptError) as error:
            raise type(error)(f"{error} (it is {ref.id!r} of the baton)") from None

    async def text_of(self, digest: str | None, *, required: bool = False) -> str | None:
        """Return the text with a hash, which may start with `sha256:`; None if it is not text.

        Args:
            digest: The hash; None has no text.
            required: Raise if the store has lost it; otherwise it is None too.
        """
        if digest is None or self._store is None:
            return None
        try:
            return (await self._store.get(digest.removeprefix("sha256:"))).decode()
        except UnicodeDecodeError:
            return None
        except ArtifactNotFoundError:
            if required:
                raise
            return None

    async def text(self, ref: ArtifactRef) -> str | None:
        """Return an artifact's text; None if it is not text, or the worker has no store."""
        if self._store is None:
            return None
        try:
            return (await self._load(ref)).decode()
        except UnicodeDecodeError:
            return None

    @step
    async def select(self, max_tokens: int) -> dict[str, str]:
        """Return the texts of the artifacts that fit into a token budget."""
        texts: dict[str, str] = {}
        for ref in self._handed:
            try:
                texts[ref.id] = (await self._load(ref)).decode()
            except UnicodeDecodeError:
                continue
        costs = {id: self._counter(text) for id, text in texts.items()}
        self.selected = select_artifacts(self._handed, self._scope, max_tokens, costs)
        return {verdict.id: texts[verdict.id] for verdict in self.selected if verdict.included}


def max_wait() -> float:
    """Return how many seconds a write may wait for its store without reaching the activity's timeout."""
    if not activity.in_activity() or (timeout := activity.info().start_to_close_timeout) is None:
        return _MAX_WAIT
    took = now_utc() - activity.info().started_time
    if not timedelta(0) <= took <= timeout:  # the server's clock differs from this one
        took = timedelta(0)
    return min((timeout - took).total_seconds() - _TIMEOUT_MARGIN, _MAX_WAIT)
