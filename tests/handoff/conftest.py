"""The company that sends orders, for all tests of orders."""

from tests.handoff.companies import acme

__all__ = ["acme"]
