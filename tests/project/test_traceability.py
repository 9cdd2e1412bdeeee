"""The page that leads from a requirement to its tests."""

from tools.traceability import PAGE, page


def test_the_page_is_current() -> None:
    """Whoever names or moves a requirement in a test runs `python tools/traceability.py`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_each_requirement_says_what_it_asks() -> None:
    """Also those whose ids stand alone in a docstring."""
    rows = [line.split(" | ") for line in page().splitlines() if line.startswith("| ") and "::" in line]

    assert len(rows) > 400
    assert [id for id, asks, *_ in rows if not asks.strip()] == []
