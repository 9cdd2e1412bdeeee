"""The artifacts that a stage reads and writes, and which of them are in its prompt."""

import asyncio
import fnmatch
import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from temporalio import activity

from baton.artifacts.records import ArtifactRef, path_form
from baton.artifacts.store import ArtifactStore
from baton.core.messages import Selected
from baton.core.stages import Calls, step
from baton.errors import (
    ArtifactConflictError,
    ArtifactNotFoundError,
    ArtifactUnavailableError,
    ConfigurationError,
)
from baton.wire.text import TokenEstimator


def select_artifacts(
    artifacts: Sequence[ArtifactRef], work_scope: Sequence[str], budget: int, costs: Mapping[str, int]
) -> list[Selected]:
    """Decide for every artifact whether it is given, and say why."""
    if budget < 0:
        raise ValueError(f"the token budget for artifacts is {budget}; it must be 0 or more")
    scoped = {ref.id: scope for ref in artifacts if (scope := _scope_of(ref, work_scope)) is not None}
    newest_first = list(reversed(artifacts))
    ranked = sorted(newest_first, key=lambda ref: ref.id not in scoped)
    left, verdicts = budget, {}
    for ref in ranked:
        cost = costs.get(ref.id)
        place = f"in the work scope ({scoped[ref.id]})" if ref.id in scoped else "outside the work scope"
        if cost is None:
            verdicts[ref.id] = Selected(id=ref.id, included=False, reason=f"{place}; its content is not text")
        elif cost > left:
            reason = f"{place}; costs {cost} tokens, {left} of {budget} are left"
            verdicts[ref.id] = Selected(id=ref.id, included=False, reason=reason, tokens=cost)
        else:
            left -= cost
            verdicts[ref.id] = Selected(id=ref.id, included=True, reason=f"{place}; fits", tokens=cost)
    return [verdicts[ref.id] for ref in artifacts]


def _scope_of(ref: ArtifactRef, work_scope: Sequence[str]) -> str | None:
    """Return the entry of the work scope that covers the artifact, if any does."""
    names = [path_form(name) for name in (ref.path, ref.id) if name]
    return next((scope for scope in work_scope if any(_covers(path_form(scope), name) for name in names)), None)


def _covers(scope: str, name: str) -> bool:
    """Return whether a file, folder or glob covers a path or an id."""
    if name == scope or fnmatch.fnmatchcase(name, scope):  # stars and brackets are legal in file names too
        return True
    folder = scope.rstrip("/*")
    return bool(folder) and name.startswith(f"{folder}/")


FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two tries to write an artifact to a store that cannot be written."""
_LONGEST_WAIT = 3_600.0
_IN_TIME = 15.0  # seconds before the stage's timeout at which it says itself why it fails
_log = logging.getLogger(__name__)


async def put_when_possible(store: ArtifactStore, data: bytes) -> str:
    """Keep ``data`` and return its SHA-256; in a stage, wait while the store cannot be written."""
    until, pause = time.monotonic() + _longest_wait(), FIRST_PAUSE
    while True:
        try:
            return await store.put(data)
        except ArtifactUnavailableError as error:
            if time.monotonic() + pause > until:
                raise
            if pause == FIRST_PAUSE:
                _log.warning("a stage waits for the artifact store: %s", error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


class ArtifactAccess:
    """A stage's view of the artifact store: the references it was handed, and those it writes."""

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
        """Raise an error if a call was never awaited: what it was to do did not happen."""
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
        """Every reference there is now: those handed to the stage, then those it wrote."""
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
        self._is_new(ref)  # before bytes are stored that cannot have its id
        await put_when_possible(self.store, raw)
        if self._is_new(ref):  # a stage may write several at once
            self.written.append(ref)
        return ref

    def _is_new(self, ref: ArtifactRef) -> bool:
        """Return whether there is no such artifact yet; other bytes under its id are refused."""
        known = next((other for other in self.refs if other.id == ref.id), None)
        if known is not None and known.hash != ref.hash:
            raise ArtifactConflictError(
                f"artifact {ref.id!r} already has the hash {known.short_hash}…, these bytes have {ref.short_hash}…; "
                "artifacts are immutable, give the new version a new id"
            )
        return known is None

    @step
    async def read(self, id: str) -> bytes:
        """Return the bytes of an artifact the stage knows by its reference."""
        for ref in self.refs:
            if ref.id == id:
                return await self.store.get(ref.hash)
        known = ", ".join(repr(ref.id) for ref in self.refs) or "none"
        raise ArtifactNotFoundError(f"the baton has no artifact {id!r}; it refers to: {known}")

    def in_scope(self) -> list[ArtifactRef]:
        """Return the handed artifacts that the work scope covers, the oldest first."""
        return [ref for ref in self._handed if _scope_of(ref, self._scope) is not None]

    async def text_of(self, digest: str | None) -> str | None:
        """Return the text under a hash, which may have its algorithm before it; None if there is none to be had."""
        if digest is None or self._store is None:
            return None
        try:
            return (await self._store.get(digest.removeprefix("sha256:"))).decode()
        except (ArtifactNotFoundError, UnicodeDecodeError):
            return None

    @step
    async def select(self, max_tokens: int) -> dict[str, str]:
        """Return the texts of the artifacts that fit into a token budget."""
        texts: dict[str, str] = {}
        for ref in self._handed:
            try:
                texts[ref.id] = (await self.store.get(ref.hash)).decode()
            except UnicodeDecodeError:
                continue
        costs = {id: self._counter(text) for id, text in texts.items()}
        self.selected = select_artifacts(self._handed, self._scope, max_tokens, costs)
        return {verdict.id: texts[verdict.id] for verdict in self.selected if verdict.included}


def _longest_wait() -> float:
    """Return for how many seconds an artifact may wait for its store: not into the timeout of this activity."""
    if not activity.in_activity() or (timeout := activity.info().start_to_close_timeout) is None:
        return _LONGEST_WAIT
    left = (activity.info().started_time + timeout - datetime.now(UTC)).total_seconds()
    return min(left - _IN_TIME, _LONGEST_WAIT)
