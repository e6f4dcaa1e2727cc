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


def names_loopback(host: str, *more: str) -> bool:
    """True if a Host header names the loopback or one of `more`, not a site that points here."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name in more or is_loopback(name)
