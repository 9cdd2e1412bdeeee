"""Payload conversion: JSON, compression, encryption, and external storage of large payloads."""
