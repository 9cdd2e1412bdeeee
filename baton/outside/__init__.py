"""Doors for agents outside: by a client, over HTTP, and over MCP."""
