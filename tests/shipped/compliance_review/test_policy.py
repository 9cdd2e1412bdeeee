"""Reading a policy: TOML, Markdown with a block for each rule, and files with faults."""

from pathlib import Path

import pytest

from activities.compliance_review.policy import read_policy
from activities.compliance_review.records import ComplianceError
from tests.shipped.compliance_review.material import SAMPLES, policy

RULE = 'id = "A-1"\ntitle = "t"\nkind = "status"'


def toml(*rules: str) -> str:
    return 'name = "n"\nversion = "1"\n' + "".join(f"[[rules]]\n{rule}\n" for rule in rules)


class TestReadPolicy:
    def test_takes_markdown_for_the_same_as_toml(self) -> None:
        """Prose is for people: the same rules are the same policy, with the same digest."""
        told, explained = read_policy(SAMPLES / "policy.toml"), read_policy(SAMPLES / "policy.md")
        assert told == explained
        assert told.digest == explained.digest
        assert [rule.id for rule in told.rules] == ["REC-1", "ACC-1", "DPA-1", "QUO-1", "ATT-1", "PHR-1", "APP-1"]

    def test_takes_prose_and_examples_and_a_windows_editors_mark(self, tmp_path: Path) -> None:
        """A heading of prose is no rule, a block beside a rule's own no fault, and `TOML` is TOML."""
        text = "# P 1\n## Scope: all of us\nWords.\n## A-1: t\n```text\nan example\n```\n```TOML\nkind='status'\n```\n"
        (tmp_path / "p.md").write_text(text, "utf-8-sig")
        assert [rule.id for rule in read_policy(tmp_path / "p.md").rules] == ["A-1"]

    def test_takes_types_of_files_however_people_write_them(self, tmp_path: Path) -> None:
        """`.exe` or `ZIP` is no type that an attachment is told to have: as it stood, it forbade nothing."""
        rule = RULE.replace("status", "attachments")
        told = [f"{rule}\nforbidden = ['exe', 'zip']", f"{rule}\nforbidden = ['.exe', ' ZIP']"]
        for name, one in zip(("a.toml", "b.toml"), told, strict=True):
            (tmp_path / name).write_text(toml(one))
        assert read_policy(tmp_path / "a.toml") == read_policy(tmp_path / "b.toml")

    def test_takes_domains_however_people_write_them(self) -> None:
        """They are the same in any case, and mail programs show those of other scripts as they are spoken."""
        read = policy({"id": "R-1", "kind": "recipients", "own": ["Own.Example", "@b.example", "müller.example"]})
        assert getattr(read.rules[0], "own", ()) == ("own.example", "b.example", "xn--mller-kva.example")

    def test_gives_another_digest_to_other_rules(self, tmp_path: Path) -> None:
        """A threshold that is moved is another policy."""
        moved = (SAMPLES / "policy.toml").read_text().replace("above = 25000", "above = 90000")
        (tmp_path / "policy.toml").write_text(moved)
        assert read_policy(tmp_path / "policy.toml").digest != read_policy(SAMPLES / "policy.toml").digest

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            pytest.param("p.txt", "x", "found '.txt', expected .toml or .md", id="another format"),
            pytest.param("p.toml", None, "cannot be read", id="no file"),
            pytest.param("p.toml", "name = ", "cannot be read: ", id="no TOML"),
            pytest.param("p.toml", "", "cannot be used: name: Field required", id="nothing in it"),
            pytest.param("p.toml", toml(), "rules: Field required", id="no rules"),
            pytest.param("p.toml", toml(RULE, RULE), "more than one rule A-1", id="an id twice"),
            pytest.param(
                "p.toml", toml(RULE.replace("status", "vibes")), r"rules.0: Input tag 'vibes'[^;]*$", id="no such kind"
            ),
            pytest.param(
                "p.toml", toml(RULE + "\nacepted = ['x']"), "rules.0.status.acepted: Extra", id="a typing mistake"
            ),
            pytest.param(
                "p.toml",
                toml(RULE.replace("status", "attachments") + "\nforbidden = ['tar.gz']"),
                "rules.0.attachments.forbidden.0: String should match",
                id="a type that no attachment has",
            ),
            pytest.param(
                "p.md",
                "# P 1\n```toml\nkind='status'\n```\n",
                "at line 2 belongs to no rule",
                id="a block below the title",
            ),
            pytest.param(
                "p.md",
                "# P 1\n## A-1: t\n```toml\nkind='status'\n```\n```toml\nx=1\n```",
                "at line 6 belongs to no rule",
                id="two blocks",
            ),
            pytest.param("p.md", "# P 1\n## A-1: t\nNo block.", "the rule A-1 has no block of TOML", id="no block"),
            pytest.param(
                "p.md",
                "# P 1\n## A-1: t\n```toml\nkind='status'\n```\n## Phrases: u\n~~~\nkind='status'\n~~~\n",
                "the rule Phrases has no block of TOML",
                id="a block that is not said to be TOML",
            ),
            pytest.param(
                "p.md",
                "# P 1\n## A-1: t\n```toml\nkind='status'\n```\n## B-2: u\nSome words.\n",
                "the rule B-2 has no block of TOML",
                id="one of two rules without a block",
            ),
        ],
    )
    def test_names_what_is_wrong(self, tmp_path: Path, name: str, content: str | None, message: str) -> None:
        """A policy that cannot be used is refused before anything is decided by half of it."""
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(ComplianceError, match=message):
            read_policy(tmp_path / name)
