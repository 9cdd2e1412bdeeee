"""What is hashed or signed, bound to its purpose: nothing made for another one passes for it (DSSE)."""


def pae(purpose: str, body: bytes) -> bytes:
    """Return ``body`` bound to a purpose: the pre-authentication encoding of DSSE v1.

    Example:
        >>> pae("http://example.com/HelloWorld", b"hello world")
        b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    name = purpose.encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(body), body)
