"""The reader of plain YAML."""

import pytest
import yaml

from activities.project_init.outline import outline


def flat(value: object, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """Return every scalar of parsed YAML under its path, as `outline` names it."""
    if isinstance(value, dict):
        return {key: each for name, inner in value.items() for key, each in flat(inner, (*path, str(name))).items()}
    if isinstance(value, list):
        return {key: each for at, inner in enumerate(value) for key, each in flat(inner, (*path, str(at))).items()}
    return {path: "" if value is None else str(value)}


class TestOutline:
    """What it reads agrees with a real parser; what it cannot read it leaves out."""

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("a: 1\nb:\n  c: two words\n  d: 'x: y'\n", id="nested keys"),
            pytest.param("a:\n- x\n- y\nb:\n  - z\n", id="lists as deep as their key, and deeper"),
            pytest.param("a:\n  - run: x\n    with: y\n  - run: z\n", id="lists of tables"),
            pytest.param("- - a\n  - b\n- c\n", id="lists in lists"),
            pytest.param("a: # note\n  b: x # note\n", id="comments"),
            pytest.param("\"a b\": \"c\"\n'd': 'e'\n", id="quoted keys and values"),
            pytest.param("a: [x, 'y', z]\n", id="lists in brackets"),
            pytest.param("a: http://x:80/y\n", id="colons in values"),
            pytest.param("a: \"echo \\\"B=$B\\\" >> f\"\nb: 'it''s'\n", id="quotes in quotes"),
            pytest.param(
                "a:\n  - |-\n    if x\n      y\n    fi\n  - z\n", id="blocks in lists, their indentation kept"
            ),
        ],
    )
    def test_agrees_with_a_real_parser(self, text: str) -> None:
        """On the plain part of YAML every scalar has the path and value that PyYAML gives it."""
        found = {node.path: node.value for node in outline(text) if node.value}
        assert found == {path: value for path, value in flat(yaml.safe_load(text)).items() if value}

    def test_joins_blocks_and_knows_lines(self) -> None:
        """A block's lines come joined, under the line of its key."""
        nodes = outline("jobs:\n  - run: |\n      one\n\n      two\n  - run: three\n")
        assert [(node.value, node.line) for node in nodes if node.value] == [("one\n\ntwo", 2), ("three", 6)]

    def test_reads_the_first_document_alone(self) -> None:
        """What follows a second `---` belongs to another document."""
        assert [node.value for node in outline("---\na: 1\n---\na: 2\n")] == ["1"]

    @pytest.mark.parametrize(
        "text",
        ["a: &x 1\nb: *x\n", "\t\t: -\n- : -", "a" * 100_000, ": : :\n" * 100, "- " * 5000, "{a: {b: c}}", "a: |\n"],
    )
    def test_never_fails(self, text: str) -> None:
        """Any text has some outline."""
        assert isinstance(outline(text), list)
