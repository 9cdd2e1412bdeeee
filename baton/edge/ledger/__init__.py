"""The audit ledger: append-only, one hash chain for each task, in a SQLite file or a Postgres database.

```
ledger.py       Ledger: append, trace, verify, cost, tail, checkpoint, move, export, restore
writing.py      each event once, no forks, one flush for all that waits
reading.py      the trace as one query, over both tiers
cold.py         old records as compressed segments in the artifact store
checkpoints.py  the signed root of everything        anchors.py    what is kept outside
bundles.py      evidence files, verified offline     exporting.py  writing them
storing.py      records into tables, bundles restored content.py    a record's bytes, compressed
database.py     the port;  sqlite.py, postgres.py, opening.py
schema.py       making and upgrading the tables, and rights to them;  guards.py, migrations/
```
The records, the chain and the proofs themselves are pure: `baton.protocol.audit` and its neighbours.
"""

from baton.edge.ledger.anchors import AnchorFile
from baton.edge.ledger.bundles import verify_bundle
from baton.edge.ledger.cold import SegmentManifest, segments_of
from baton.edge.ledger.ledger import HOT, Ledger, LedgerOptions
from baton.edge.ledger.opening import open_database
from baton.edge.ledger.schema import migrate

__all__ = [
    "HOT",
    "AnchorFile",
    "Ledger",
    "LedgerOptions",
    "SegmentManifest",
    "migrate",
    "open_database",
    "segments_of",
    "verify_bundle",
]
