"""Whether a name means this machine: how servers on the loopback keep other web sites out."""

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(name: str) -> bool:
    """Whether an address, or `localhost`, can be reached from this machine only."""
    try:
        address = ip_address(name)
    except ValueError:
        return name == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def names_loopback(host: str) -> bool:
    """Whether a Host header names the loopback; a site that points its own name here does not."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
