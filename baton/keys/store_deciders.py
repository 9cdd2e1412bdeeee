"""The file of deciders: who may decide about approvals, by which public keys, and who belongs to which group.

It holds no secret, and anyone who can write it decides who counts. `baton keys decider` makes an entry.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from baton.core.messages import Decision
from baton.keys.store_keys import KeyringError, PublicKey
from baton.ledger.chain import from_base64url, to_base64url
from baton.pipelines.approvals import GROUP, person

_MOST_BYTES = 1024 * 1024
_EPOCH = datetime.fromtimestamp(0, UTC)
_RAW_BYTES = 32


@dataclass(frozen=True)
class Deciders:
    """The people who may decide, as a file says.

    Attributes:
        keys: The public keys, by their ids, each with its owner.
        groups: The members of each group.
    """

    keys: Mapping[str, tuple[str, PublicKey]]
    groups: Mapping[str, frozenset[str]]

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Return what a file of deciders says.

        Raises:
            KeyringError: It cannot be read, or is not as it should be.
        """
        try:
            data = path.read_bytes()
            if len(data) > _MOST_BYTES:
                raise KeyringError(f"the file of deciders {str(path)!r} has more than {_MOST_BYTES:,} bytes")
            members = tomllib.loads(data.decode())
        except OSError as error:
            raise KeyringError(f"cannot read the file of deciders {str(path)!r}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise KeyringError(f"the file of deciders {str(path)!r} is not TOML: {error}") from error
        try:
            rows, groups = members.pop("decider", []), members.pop("groups", {})
            if members:
                raise ValueError(f"unknown {sorted(members)}; expected [[decider]] and [groups]")
            keys = dict(map(_entry, rows))
            if len(keys) < len(rows):
                raise ValueError("two keys have one id")
            return cls(keys, {str(name): frozenset(map(person, people)) for name, people in groups.items()})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise KeyringError(
                f"the file of deciders {str(path)!r} is not as it should be: {error}. It has entries as "
                "`baton keys decider` prints them, and [groups] such as: leads = ['ann', 'bob']"
            ) from error

    def refusal(self, decision: Decision, who: list[str], *, proof: bool) -> str | None:
        """Return why a person may not decide, or None.

        It checks that the signature over the whole decision is of a key of that person, and that the person is one of
        those who may decide. It does not check what the decision is about, and without ``proof`` not who sent it.
        """
        name = decision.who
        if decision.signature is not None or proof:
            owner, key = self.keys.get(decision.key or "", (None, None))
            if key is None:
                return f"the key {(decision.key or '')[:80]!r} is not in the workers' file of deciders"
            if owner is None or person(owner) != person(name):
                return f"the key {key.id!r} is that of {owner}, and the decision says it is of {name!r}"
            try:
                signature = from_base64url(decision.signature or "")
                is_theirs = key.verifies(decision.statement, signature)
            except ValueError:  # not base64url, or an answer that has no canonical form
                is_theirs = False
            if not is_theirs:
                return f"the signature is not that of {owner}'s key {key.id!r} over this decision"
        unknown = [one for one in who if one.startswith(GROUP) and one.removeprefix(GROUP) not in self.groups]
        if unknown:
            return f"the workers' file of deciders has no group {unknown[0].removeprefix(GROUP)!r}"
        if who and not any(self._is_of(name, one) for one in who):
            return f"{name!r} may not decide about {decision.approval!r}; {', '.join(who)} may"
        return None

    def _is_of(self, name: str, entry: str) -> bool:
        if entry.startswith(GROUP):
            return person(name) in self.groups[entry.removeprefix(GROUP)]
        return person(name) == person(entry)


def decider_entry(name: str, key: PublicKey) -> str:
    """Return the entry of a person's public key in the file of deciders."""
    text = json.dumps(name, ensure_ascii=False)
    return f'[[decider]]\nname = {text}\nid = "{key.id}"\nkey = "{to_base64url(key.raw)}"\n'


def _entry(row: Mapping[str, Any]) -> tuple[str, tuple[str, PublicKey]]:
    if row.keys() != {"name", "id", "key"}:
        raise ValueError(f"a decider has name, id and key; found {sorted(row)}")
    raw = from_base64url(row["key"])
    if len(raw) != _RAW_BYTES:
        raise ValueError(f"the key {row['id']!r} has {len(raw)} bytes; expected {_RAW_BYTES}")
    return str(row["id"]), (str(row["name"]), PublicKey(str(row["id"]), raw, _EPOCH))
