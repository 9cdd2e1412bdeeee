"""Agent definition files with front matter."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from baton.agents.definition_files import (
    MOST_BYTES,
    AgentFileError,
    agent_definition,
    front_matter,
    read_agent_file,
    read_agent_files,
)

STYLE = """---
name: agent-handoff
description: Standardized format for passing context between agents or from subagent to parent
used_by:
  - all-agents
  - multi-agent-workflows
---

# Agent Handoff Style
"""
"""The beginning of the agent-handoff document (L1-9)."""

_PIECES = (
    *("name: ", "a: ", "b:", "\n", "\n  - ", "- ", "[", "]", ", ", "{", "}", "'", "''", '"', "\\n", "\\x", "# c", " #"),
    *("#", ":", ": ", "x", "y z", "1.0", "true", "null", "~", "|", ">", "&a", "*a", "!t", "\t", "-", "?", "...", "%"),
    *("@", "`", "é", " ", ",", "=", "<<", "\u2028", "\x85", "\ufeff"),
)
_pieces = st.lists(st.sampled_from(_PIECES), max_size=8).map("".join)
_member = st.tuples(st.sampled_from(["a: ", "b: ", "c:\n  - ", "d: [", 'e: "', "f: '"]), _pieces).map("".join)
_lines = st.lists(st.sampled_from(["x", "y z", "a: b", "# c", " - d", "", " ", "  ", "   ", "- e"]), max_size=5)
_below = st.tuples(st.sampled_from(["g: |", "h: >", "i: |-", "j: >-", "k: |+", "l: >2"]), _lines).map(
    lambda made: "\n  ".join([made[0], *made[1]])
)
yaml_like = st.one_of(_pieces, st.lists(st.one_of(_member, _below), max_size=4).map("\n".join))
"""Texts at the edges of what front matter may be."""


def as_read(value: Any) -> Any:
    """Return what a YAML reader without types gives, as the front matter's reader gives it."""
    if isinstance(value, list):
        return tuple(as_read(one) for one in value)
    return "" if value is None else value


def definition(front: str) -> str:
    """Return a file's text with the given front matter."""
    return f"---\n{front}\n---\nDo it.\n"


class TestFrontMatter:
    """`front_matter`."""

    def test_the_documents_own_is_read(self) -> None:
        """S4-fm-a: name, description, and who uses it."""
        members, below = front_matter(STYLE)

        assert members == {
            "name": "agent-handoff",
            "description": "Standardized format for passing context between agents or from subagent to parent",
            "used_by": ("all-agents", "multi-agent-workflows"),
        }
        assert below == "# Agent Handoff Style"

    @given(yaml_like)
    def test_it_means_what_yaml_means_or_is_refused(self, text: str) -> None:
        """A file that other tools read means the same to Baton; an independent reader of YAML is the judge."""
        try:
            found, _ = front_matter(definition(text))
        except AgentFileError:
            return
        expected = yaml.load(f"{text}\n", yaml.BaseLoader) or {}

        assert found == {name: as_read(value) for name, value in expected.items()}

    @pytest.mark.parametrize(
        ("front", "expected"),
        [
            pytest.param("a: plain text, with (signs) - and more", "plain text, with (signs) - and more", id="plain"),
            pytest.param("a: x # a remark", "x", id="a remark behind"),
            pytest.param('a: "use it: \\"now\\"\\n"', 'use it: "now"\n', id="double quotes"),
            pytest.param("a: 'it''s: here' # so", "it's: here", id="single quotes"),
            pytest.param("a: [Read, 'Edit', \"Bash\"]", ("Read", "Edit", "Bash"), id="a list in brackets"),
            pytest.param("a: []", (), id="an empty list"),
            pytest.param("a:\n- x\n# between\n- y", ("x", "y"), id="a list below"),
            pytest.param("a:", "", id="nothing"),
            pytest.param("a: |\n  Use it: now\n\n    - x\n# so", "Use it: now\n\n  - x\n", id="lines below"),
            pytest.param("a: >-\n  Use it\n  when: now\n\n  or\n", "Use it when: now\nor", id="folded lines below"),
            pytest.param(
                "a: \U0001f469\u200d\U0001f4bb\u3000x", "\U0001f469\u200d\U0001f4bb\u3000x", id="joined signs"
            ),
            pytest.param("a: true", "true", id="a text that looks like a truth value"),
        ],
    )
    def test_texts_and_lists_are_read(self, front: str, expected: Any) -> None:
        """The kinds of values that such files have."""
        assert front_matter(definition(front))[0] == {"a": expected}

    @pytest.mark.parametrize(
        ("front", "line"),
        [
            pytest.param("a: >+\n  folded", 2, id="a folded text that keeps the breaks behind it"),
            pytest.param("a: >\n  folded\n   deeper", 4, id="a line that is not folded"),
            pytest.param("a: |\n   x\n  y", 4, id="a line before the margin"),
            pytest.param("a: |\n\n  x", 3, id="a text below a blank line"),
            pytest.param("a: &x y", 2, id="an anchor"),
            pytest.param("b: 1\na: !!python/object x", 3, id="a tag"),
            pytest.param("a: {b: c}", 2, id="an object"),
            pytest.param("a: Use it when: now", 2, id="a colon in a plain text"),
            pytest.param("a:\n  b: c", 3, id="an object below"),
            pytest.param("a: x\na: y", 3, id="a member twice"),
            pytest.param("a: x\n- y", 3, id="an item below a text"),
            pytest.param("a:\n  - x\n- y", 4, id="items that are not below each other"),
            pytest.param('a: "x" y', 2, id="text behind quotes"),
            pytest.param('a: "\\u0041"', 2, id="an escape"),
            pytest.param("a: [x", 2, id="a list that goes on"),
            pytest.param("\ta: x", 2, id="a tab"),
            pytest.param("b: x\na: ~ # none", 3, id="no value"),
            pytest.param("a: [x, null]", 2, id="no value in a list"),
            pytest.param("words", 2, id="no member"),
        ],
    )
    def test_what_else_yaml_can_say_is_refused_with_its_line(self, front: str, line: int) -> None:
        """Nothing is read as what its author did not mean."""
        with pytest.raises(AgentFileError, match=f"tester.md: line {line}: "):
            front_matter(definition(front), "tester.md")

    @pytest.mark.parametrize("text", ["", "name: x", "---\nname: x", "# Title\n---\nname: x\n---"])
    def test_it_must_be_there_and_end(self, text: str) -> None:
        """A rule further below is no front matter."""
        with pytest.raises(AgentFileError, match=r"line 1: .*'---'"):
            front_matter(text)


class TestAgentDefinition:
    """`agent_definition`."""

    def test_an_agent_with_the_style_answers_with_reports(self) -> None:
        """S4-int-a: the document's own definition."""
        found = agent_definition("---\nname: code-explorer\noutput_style: agent-handoff\n---")

        assert (found.name, found.output_style, found.reports) == ("code-explorer", "agent-handoff", True)
        assert not agent_definition(definition("name: x\noutput_style: concise")).reports

    def test_every_member_is_read(self) -> None:
        """S4-fm-a, S4-int-a; and what Baton gives no meaning is kept."""
        found = agent_definition(
            definition("name: tester\ndescription: Tests\nmodel: small-1\ntools: Read, Bash\nused_by: [ci]\ncolor: red")
        )

        assert (found.description, found.model, found.tools, found.used_by) == (
            "Tests",
            "small-1",
            ("Read", "Bash"),
            ("ci",),
        )
        assert (found.instructions, found.further) == ("Do it.", {"color": "red"})

    @pytest.mark.parametrize(
        ("front", "expected"),
        [
            ("name: x", None),
            ("name: x\ntools:", ()),
            ("name: x\ntools: []", ()),
            ("name: x\ntools: [a, b]", ("a", "b")),
        ],
    )
    def test_no_word_on_tools_is_not_the_same_as_no_tools(self, front: str, expected: tuple[str, ...] | None) -> None:
        """An empty list allows nothing; only its absence leaves the question to the pipeline."""
        assert agent_definition(definition(front)).tools == expected

    @pytest.mark.parametrize("front", ["description: x", "name:", 'name: " "', "name: [a]"])
    def test_an_agent_has_a_name(self, front: str) -> None:
        """S4-fm-a: one, and it says something."""
        with pytest.raises(AgentFileError, match="name"):
            agent_definition(definition(front))


class TestReadAgentFile:
    """`read_agent_file` and `read_agent_files`."""

    def test_files_from_any_editor_are_read(self, tmp_path: Path) -> None:
        """A byte order mark and CRLF change nothing."""
        file = tmp_path / "a.md"
        file.write_bytes(b"\xef\xbb\xbf" + STYLE.replace("\n", "\r\n").encode())

        assert read_agent_file(file).used_by == ("all-agents", "multi-agent-workflows")

    @pytest.mark.parametrize(
        "line",
        ["model: a" + " " * 400_000 + "b", " " * 400_000 + "x: y", "tools:" + "\n- a" * 200_000],
        ids=["blanks inside", "blanks before", "a long list"],
    )
    def test_the_largest_file_is_read_in_one_pass(self, tmp_path: Path, line: str) -> None:
        """However its signs are arranged; with the square of its length it would take minutes."""
        (tmp_path / "long.md").write_text(definition(f"name: first\n{line}"), encoding="utf-8")
        try:
            found = read_agent_file(tmp_path / "long.md").name
        except AgentFileError as error:
            found = str(error)

        assert found == "first" or "is neither" in found

    def test_a_folder_holds_several(self, tmp_path: Path) -> None:
        """In the order of the files; other files are left alone."""
        (tmp_path / "b.md").write_text(definition("name: second"), encoding="utf-8")
        (tmp_path / "a.md").write_text(definition("name: first"), encoding="utf-8")
        (tmp_path / "c.txt").write_text("no agent", encoding="utf-8")

        assert [one.name for one in read_agent_files(tmp_path)] == ["first", "second"]

    def test_names_are_unique_in_a_folder(self, tmp_path: Path) -> None:
        """Otherwise it would be chance who runs."""
        for name in ("a.md", "b.md"):
            (tmp_path / name).write_text(definition("name: same"), encoding="utf-8")

        with pytest.raises(AgentFileError, match=r"b\.md: another file defines an agent 'same'"):
            read_agent_files(tmp_path)

    def test_what_cannot_be_read_is_told(self, tmp_path: Path) -> None:
        """Missing, no text, or too large: each with what to do."""
        (tmp_path / "binary.md").write_bytes(b"---\xff")
        (tmp_path / "large.md").write_bytes(b"x" * (MOST_BYTES + 1))

        for name, what in (("missing", "cannot be read"), ("binary", "not UTF-8 at byte 3"), ("large", "larger than")):
            with pytest.raises(AgentFileError, match=what):
                read_agent_file(tmp_path / f"{name}.md")
        with pytest.raises(AgentFileError, match="is no folder"):
            read_agent_files(tmp_path / "missing")
