"""How values become payloads: JSON, compressed, encrypted, and large ones in the artifact store."""
