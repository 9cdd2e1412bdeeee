"""Careful readers: what broken and hostile files come to."""

import ast
from collections.abc import Callable
from typing import Any

import pytest

from activities.project_init.parsing import Lines, UnreadableError, parse_json, parse_python, parse_toml, parse_xml

BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>'
OUTSIDE = '<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>'


class TestUnreadable:
    """Every reader answers a bad file with the same exception."""

    @pytest.mark.parametrize(
        ("reader", "text"),
        [
            pytest.param(parse_json, "{", id="half a JSON object"),
            pytest.param(parse_json, "[" * 100_000, id="JSON nested too deeply"),
            pytest.param(parse_json, "1" * 10_000, id="a JSON number of ten thousand digits"),
            pytest.param(parse_json, '"\\"' * 100_000, id="JSON strings that never close"),
            pytest.param(parse_json, '"' + '\\"' * 200_000 + "\\", id="a JSON string that ends with a backslash"),
            pytest.param(parse_json, "/*" * 200_000, id="JSON comments that never close"),
            pytest.param(parse_toml, "a = ", id="half a TOML line"),
            pytest.param(parse_toml, "a = " + "[" * 100_000, id="TOML nested too deeply"),
            pytest.param(parse_python, "def f(:", id="broken Python"),
            pytest.param(parse_python, "(" * 10_000, id="Python nested too deeply"),
            pytest.param(parse_python, "x = '\0'", id="Python with a null byte"),
            pytest.param(parse_xml, "<a><b></a>", id="XML that is not well formed"),
            pytest.param(parse_xml, BOMB, id="XML entities that multiply"),
            pytest.param(parse_xml, OUTSIDE, id="XML that names another file"),
        ],
    )
    def test_is_raised_for(self, reader: Callable[[str], Any], text: str) -> None:
        """No parser's own exception escapes, and none takes long."""
        with pytest.raises(UnreadableError) as caught:
            reader(text)
        assert len(str(caught.value)) < 300


class TestParseJson:
    """JSON as tools write it."""

    def test_accepts_comments_and_trailing_commas(self) -> None:
        """Settings of TypeScript and VS Code are read; what looks like a comment in a string is kept."""
        text = '{\n  // a\n  "x": "http://y", /* b */ "z": [1, 2,],\n}'
        assert parse_json(text) == {"x": "http://y", "z": [1, 2]}


class TestParsePython:
    """Python is read, never run."""

    def test_doubtful_escapes_are_nobodys_business(self) -> None:
        """A warning about somebody's file does not become ours."""
        assert isinstance(parse_python("x = '\\d'"), ast.Module)


class TestParseXml:
    """XML with lines."""

    def test_gives_elements_without_prefixes_and_with_lines(self) -> None:
        """Names come without their namespace's prefix."""
        root = parse_xml('<m:a xmlns:m="u">\n  <m:b k="v"> x </m:b>\n</m:a>')
        found = root.find("b")
        assert found is not None
        assert (root.tag, found.line, found.attributes, root.value("b")) == ("a", 2, {"k": "v"}, "x")
        assert root.value("b", "c") == ""

    def test_walks_elements_nested_very_deeply(self) -> None:
        """Depth is no recursion."""
        assert sum(1 for _ in parse_xml("<a>" * 20_000 + "</a>" * 20_000).all("a")) == 20_000


class TestLines:
    """Positions in formats whose parsers give none."""

    def test_tells_whole_strings_from_words(self) -> None:
        """A requirement is found where it stands whole, while its name alone may occur before."""
        lines = Lines('a = [\n"x[y]>=1",\n"y>=2",\n]')
        assert (lines.of_quoted("y>=2"), lines.of("y"), lines.of("z")) == (3, 2, None)
