"""Network addresses of this machine, to and from which nothing crosses a network."""

from ipaddress import ip_address


def is_this_machine(host: str | None) -> bool:
    """Return whether a host is this machine's loopback, by its address or the name `localhost`."""
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


def host_of(address: str) -> str:
    """Return the host of an address of the form `host:port`."""
    return address.rpartition(":")[0].strip("[]")
