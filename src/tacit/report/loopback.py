"""Tells names of this machine from others, so that servers on it can keep web sites out."""

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(name: str) -> bool:
    """True if an address, or `localhost`, can be reached from this machine only."""
    try:
        address = ip_address(name)
    except ValueError:
        return name == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def names_loopback(host: str) -> bool:
    """True if a Host header names the loopback. A site that points its own name here does not."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
