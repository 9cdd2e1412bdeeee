"""Markdown that stays what it is, whatever it is made from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from activities.project_init.links import anchors_of, commands_of, links_of, parse
from activities.project_init.markdown import bullets, code, fence, link, prose, some, table, text, visible

HOSTILE = st.text(alphabet=st.sampled_from("ab `*_[]()<>#|~$&!\\\n\t-+=1.:/\"'{}\u202e\x00"), max_size=40)


def plain(markdown: str) -> str:
    """Return what a reader sees of a paragraph, and fail if anything but text is in it."""
    tokens = parse(f"x {markdown}")
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert {child.type for child in tokens[1].children or ()} <= {"text", "text_special"}
    return "".join(child.content for child in tokens[1].children or ())[2:]


class TestText:
    """Plain text."""

    @given(HOSTILE)
    def test_is_read_as_itself(self, value: str) -> None:
        """No text starts a link, tag, emphasis or anything else; what is read is what was written."""
        assert plain(text(value)).split() == visible(value).split()

    @pytest.mark.parametrize(
        "value", ["# a", "- a", "+ a", "1. a", "12) a", "> a", "=== ", "--- ", "```", "    a", "~~~"]
    )
    def test_starts_no_block(self, value: str) -> None:
        """At the start of a line, too, it is a paragraph."""
        assert parse(text(value))[0].type == "paragraph_open"

    def test_is_left_alone_where_nothing_can_happen(self) -> None:
        """Ordinary sentences are as readable raw as rendered."""
        assert text("Uses snake_case names, C# & C++ (v1.2), 50% of 3 > 2.") == (
            "Uses snake_case names, C# & C++ (v1.2), 50% of 3 > 2."
        )

    def test_is_one_line_and_cut_with_a_sign(self) -> None:
        """Line ends become spaces; a cut is visible."""
        assert text("a\n\nb") == "a b"
        assert len(text("x" * 500)) == 160
        assert text("x" * 500).endswith("…")


class TestCode:
    """Code spans."""

    @given(HOSTILE)
    def test_shows_what_it_holds(self, value: str) -> None:
        """Backticks and all, one span with the visible text."""
        children = parse(f"x {code(value)}")[1].children or []
        assert [child.type for child in children] == ["text", "code_inline"]
        assert children[1].content.strip() == visible(value).strip()


class TestProse:
    """Sentences with code words."""

    @given(HOSTILE)
    def test_makes_nothing_but_text_and_code(self, value: str) -> None:
        """Nothing else is ever started."""
        children = parse(f"x {prose(value)}")[1].children or []
        assert {child.type for child in children} <= {"text", "text_special", "code_inline"}

    def test_keeps_code_words(self) -> None:
        """Backticks of a docstring stay what they are."""
        assert prose("run `make *` or ``x``, not *that*") == "run `make *` or `x`, not \\*that\\*"


class TestTable:
    """Tables."""

    @given(st.lists(HOSTILE, min_size=1, max_size=4))
    def test_has_the_cells_it_was_given(self, values: list[str]) -> None:
        """No content adds or ends a cell or row."""
        tokens = parse(table(("A", "B"), [(code(value), text(value)) for value in values]))
        assert sum(token.type == "td_open" for token in tokens) == 2 * len(values)
        assert sum(token.type == "tr_open" for token in tokens) == 1 + len(values)


class TestFence:
    """Blocks of code."""

    @given(st.lists(HOSTILE, max_size=4))
    def test_is_ended_by_nothing_inside(self, values: list[str]) -> None:
        """One block, with as many lines as were given."""
        tokens = parse(fence(values, "sh"))
        assert [token.type for token in tokens] == ["fence"]
        assert tokens[0].content.count("\n") == len(values)


class TestLink:
    """Links."""

    @given(st.text(min_size=1, max_size=30).filter(lambda value: value.isprintable()))
    def test_is_one_link_to_where_it_should_lead(self, path: str) -> None:
        """Any path can be linked to."""
        links = links_of(parse(f"- {link(path, path, 'L1')}"))
        assert len(links) == 1
        assert links[0].target.endswith("#L1")


class TestSmallParts:
    """Lists and cuts."""

    def test_lists_and_cuts_say_how_much_is_missing(self) -> None:
        """Nothing is cut silently."""
        assert bullets(some(["a", "b", "c"], 1, "files")) == "- a\n- … and 2 more files"


class TestReadingBack:
    """Links, anchors and commands of a document."""

    def test_anchors_are_numbered_like_forges_do(self) -> None:
        """A second heading of the same name gets `-1`."""
        assert anchors_of(parse("# A b!\n## A b\n### `x_y`")) == {"a-b", "a-b-1", "x_y"}

    def test_links_come_with_their_lines(self) -> None:
        """Links, pictures and links in tables."""
        markdown = "[a](b.md)\n\n![c](d.png)\n\n| x |\n| --- |\n| [e](f#g) |\n"
        assert [(each.target, each.line) for each in links_of(parse(markdown))] == [
            ("b.md", 1),
            ("d.png", 3),
            ("f#g", 7),
        ]

    def test_commands_are_in_sh_blocks_and_command_columns(self) -> None:
        """Other blocks and columns hold none."""
        markdown = (
            "```sh\nmake a\n\n# note\nmake b\n```\n\n```text\nno\n```\n\n"
            "| Command | X |\n| --- | --- |\n| `c d` | `no` |\n\n| X | Command |\n| --- | --- |\n| `no` | `no` |\n"
        )
        assert commands_of(parse(markdown)) == ["make a", "make b", "c d"]

    def test_the_parser_is_the_one_that_renders(self) -> None:
        """What is read back is CommonMark with tables."""
        assert MarkdownIt("commonmark").enable("table").render("| a |\n| --- |\n").startswith("<table>")
