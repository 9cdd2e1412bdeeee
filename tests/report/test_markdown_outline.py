"""The outline of a Markdown text."""

import pytest

from baton.report.sections import MOST_NESTING, NestedTooDeepError, item_lines, outline


class TestOutline:
    @pytest.mark.parametrize(
        "text",
        ["<!-- hidden\n# Title", "<details>\n# Title", "[a]: b\n# Title", "Text\n---\n# Title", "Text\n===\n# Title"],
    )
    def test_nothing_hides_the_lines_behind_it(self, text: str) -> None:
        """C-33: HTML, link definitions and underlined headings are text, seen as the heading behind them is."""
        blocks = outline(text.split("\n"))

        assert (blocks[0].start, blocks[-1].kind) == (0, "heading")

    def test_a_fence_hides_what_is_in_it(self) -> None:
        """C-32: a heading in a fence is none, and a shorter fence does not end it."""
        (block,) = outline(["````", "# x", "```", "y", "````"])

        assert (block.kind, block.content) == ("code", "# x\n```\ny\n")

    def test_places_are_lines_of_the_source(self) -> None:
        """Errors name the line; blank ones below a block are not its own."""
        blocks = outline(["# A", "", "text", "more", "", "", "| a |", "|---|", "| b |", "", "***"])

        assert [(one.kind, one.start, one.end) for one in blocks] == [
            ("heading", 0, 1),
            ("text", 2, 4),
            ("table", 6, 9),
            ("rule", 10, 11),
        ]

    @pytest.mark.parametrize("sign", ["> ", "- 1. "])
    def test_depth_has_a_limit(self, sign: str) -> None:
        """What a deeper one hides is never passed over in silence."""
        with pytest.raises(NestedTooDeepError, match=f"deeper than {MOST_NESTING}") as caught:
            outline(["text", "", sign * MOST_NESTING + "x"])

        assert caught.value.line == 3


class TestItemLines:
    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            pytest.param(["- a", "  b", "", "  c"], ["a", "b", "", "c"], id="paragraphs"),
            pytest.param(["- a", "lazy"], ["a", "lazy"], id="a lazy line"),
            pytest.param(["10. a", "    b", "      c"], ["a", "b", "  c"], id="a wide marker"),
            pytest.param(["-\ta", "\tb"], ["a", "b"], id="tabs"),
            pytest.param(["-", "  a"], ["", "a"], id="text below its marker"),
            pytest.param(["-      a", "  b"], ["a", "b"], id="many blanks"),
        ],
    )
    def test_marker_and_indentation_are_taken_away(self, lines: list[str], expected: list[str]) -> None:
        """C-33: an item of several lines is one text."""
        (block,) = outline(lines)

        assert item_lines(lines, block.items[0]) == expected

    def test_lists_in_it_can_be_left_out(self) -> None:
        """S4-fmt-n: the reasons of a decision are not the decision."""
        lines = ["- a", "  - b", "    - c", "  more", "- d"]
        (block,) = outline(lines)

        assert item_lines(lines, block.items[0], nested=False)[0] == "a"
        assert [item_lines(lines, one) for one in block.items[0].nested] == [["b", "- c", "more"]]
