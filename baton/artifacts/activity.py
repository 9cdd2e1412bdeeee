"""Where a stage reads and writes artifacts."""

import hashlib

from baton.artifacts.records import ArtifactRef
from baton.artifacts.selection import select_artifacts
from baton.artifacts.store import ArtifactStore
from baton.core.messages import Selected
from baton.errors import ArtifactConflictError, ArtifactNotFoundError
from baton.wire.tokens import TokenEstimator


class ArtifactDesk:
    """A stage's view of the artifact store: the references it was handed, and those it writes.

    Attributes:
        written: What the stage wrote, in order; appended to the baton's `artifacts` unless its patch sets them.
        selected: The last selection, with its reasons.
    """

    def __init__(
        self,
        store: ArtifactStore | None,
        handed: list[ArtifactRef],
        scope: list[str],
        counter: TokenEstimator,
    ) -> None:
        self._store = store
        self._handed = handed
        self._scope = scope
        self._counter = counter
        self.written: list[ArtifactRef] = []
        self.selected: list[Selected] = []

    @property
    def store(self) -> ArtifactStore:
        """The worker's store.

        Raises:
            RuntimeError: The worker has none.
        """
        if self._store is None:
            raise RuntimeError(
                "this worker has no artifact store; give one to BatonPlugin(WorkerParts(artifacts=…)), "
                "or in a test to StageContext.for_test(artifacts=MemoryArtifactStore())"
            )
        return self._store

    @property
    def refs(self) -> list[ArtifactRef]:
        """Every reference there is now: those handed to the stage, then those it wrote."""
        return [*self._handed, *self.written]

    async def write(
        self, id: str, data: bytes | str, *, type: str, path: str | None = None, summary: str | None = None
    ) -> ArtifactRef:
        """Store a work product and return the reference for the baton.

        Writing the same bytes under the same id again is harmless, as a stage that is run again does.

        Args:
            id: What stages call it; unique in the pipeline.
            data: The bytes, or a text to be stored as UTF-8.
            type: What kind of work product it is.
            path: The file or module it belongs to, for the work scope.
            summary: One line on what is in it.

        Returns:
            The reference, with hash and size in bytes.

        Raises:
            ArtifactConflictError: The id already names other bytes.
            RuntimeError: The worker has no store.
        """
        raw = data.encode() if isinstance(data, str) else data
        ref = ArtifactRef(
            id=id, type=type, hash=hashlib.sha256(raw).hexdigest(), size=len(raw), path=path, summary=summary
        )
        known = next((other for other in self.refs if other.id == id), None)
        if known is not None and known.hash != ref.hash:
            raise ArtifactConflictError(
                f"artifact {id!r} already has the hash {known.short_hash}…, these bytes have {ref.short_hash}…; "
                "artifacts are immutable, give the new version a new id"
            )
        await self.store.put(raw)
        if known is None:
            self.written.append(ref)
        return ref

    async def read(self, id: str) -> bytes:
        """Return the bytes of an artifact the stage knows by its reference.

        Raises:
            ArtifactNotFoundError: No reference has that id, or the store has lost its bytes.
            ArtifactCorruptError: The stored bytes no longer have their hash.
        """
        for ref in self.refs:
            if ref.id == id:
                return await self.store.get(ref.hash)
        known = ", ".join(repr(ref.id) for ref in self.refs) or "none"
        raise ArtifactNotFoundError(f"the baton has no artifact {id!r}; it refers to: {known}")

    async def select(self, max_tokens: int) -> dict[str, str]:
        """Return the texts of the artifacts that fit into a token budget (S1 L87, L90).

        Artifacts in the baton's work scope come first. Why each was taken or left out is in `selected`, and
        goes into the stage's record.

        Args:
            max_tokens: What the texts may cost together.

        Returns:
            Text by artifact id.
        """
        texts: dict[str, str] = {}
        for ref in self._handed:
            try:
                texts[ref.id] = (await self.store.get(ref.hash)).decode()
            except UnicodeDecodeError:
                continue
        costs = {id: self._counter(text) for id, text in texts.items()}
        self.selected = select_artifacts(self._handed, self._scope, max_tokens, costs)
        return {verdict.id: texts[verdict.id] for verdict in self.selected if verdict.included}
