"""Addresses as the nodes write them. Each is parsed once: one plan asks for the same few a hundred times."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from ipaddress import IPv4Interface, IPv4Network, IPv6Address, IPv6Interface

MOST = 4096
"""Texts that are remembered."""


@lru_cache(MOST)
def ipv6_address(text: str) -> IPv6Address:
    """Raises ValueError."""
    return IPv6Address(text)


@lru_cache(MOST)
def ip_interface(text: str) -> IPv4Interface | IPv6Interface:
    """An address with its prefix length. Raises ValueError."""
    return ipaddress.ip_interface(text)


@lru_cache(MOST)
def ipv4_network(text: str) -> IPv4Network:
    """The network that an address with its prefix length is in. Raises ValueError."""
    return IPv4Interface(text).network
