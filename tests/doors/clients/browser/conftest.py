"""Chromium, as the console's tests start it."""

from tests.console.browser.conftest import chromium, chromium_browser

__all__ = ["chromium", "chromium_browser"]
