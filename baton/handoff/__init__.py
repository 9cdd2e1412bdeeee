"""Handoffs: built, signed, validated by the receiver, recorded, and rolled back on failure."""
