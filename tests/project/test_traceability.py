"""The page that leads from a requirement to its tests."""

from tools.traceability import PAGE, page


def test_the_page_is_current() -> None:
    """Whoever names or moves a requirement in a test runs `python tools/traceability.py`."""
    assert PAGE.read_text(encoding="utf-8") == page()
