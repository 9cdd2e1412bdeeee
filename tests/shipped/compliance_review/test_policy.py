"""Reading a policy: TOML, and files with faults."""

from pathlib import Path

import pytest

from activities.compliance_review.claims import ComplianceError
from activities.compliance_review.policy import read_policy
from tests.shipped.compliance_review.material import SAMPLES, policy

RULE = 'id = "A-1"\ntitle = "t"\nkind = "status"'


def toml(*rules: str) -> str:
    return 'name = "n"\nversion = "1"\n' + "".join(f"[[rules]]\n{rule}\n" for rule in rules)


class TestReadPolicy:
    def test_takes_domains_however_people_write_them(self) -> None:
        """Case does not matter, and domains may be in any script."""
        read = policy({"id": "R-1", "kind": "recipients", "own": ["Own.Example", "@b.example", "müller.example"]})
        assert getattr(read.rules[0], "own", ()) == ("own.example", "b.example", "xn--mller-kva.example")

    def test_gives_another_digest_to_other_rules(self, tmp_path: Path) -> None:
        """A changed threshold is another policy."""
        moved = (SAMPLES / "policy.toml").read_text().replace("max_days = 30", "max_days = 90")
        (tmp_path / "policy.toml").write_text(moved)
        assert read_policy(tmp_path / "policy.toml").digest != read_policy(SAMPLES / "policy.toml").digest

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            pytest.param("p.txt", "x", "is not TOML: ", id="another format"),
            pytest.param("p.toml", None, "cannot be read", id="no file"),
            pytest.param("p.toml", "name = ", "is not TOML: ", id="no TOML"),
            pytest.param("p.toml", "", "cannot be used: name: Field required", id="nothing in it"),
            pytest.param("p.toml", toml(), "rules: Field required", id="no rules"),
            pytest.param("p.toml", toml(RULE, RULE), "more than one rule A-1", id="an id twice"),
            pytest.param(
                "p.toml", toml(RULE.replace("status", "vibes")), r"rules.0: Input tag 'vibes'", id="no such kind"
            ),
            pytest.param(
                "p.toml", toml(RULE + "\nacepted = ['x']"), "rules.0.status.acepted: Extra", id="a typing mistake"
            ),
        ],
    )
    def test_names_what_is_wrong(self, tmp_path: Path, name: str, content: str | None, message: str) -> None:
        """An invalid policy is rejected before any decision."""
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(ComplianceError, match=message):
            read_policy(tmp_path / name)
