"""Programs that a machine may lack: a test that needs some names them here, and is skipped where they are not."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.packages import MISSING, PACKAGES

PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
"""Debian keeps servers where the path of a user does not look."""

OVSDB = ("ovsdb-server", "ovsdb-tool", "ovsdb-client")
OVS = ("ovs-vswitchd", "ovs-vsctl", *OVSDB)
GATEWAY = ("nft", "dnsmasq", "udhcpc")
MOSQUITTO = ("mosquitto",)
MOSQUITTO_CLIENTS = ("mosquitto_pub", "mosquitto_sub")


def find(tool: str) -> str | None:
    """Where a program is."""
    return shutil.which(tool, path=PATH)


def reason(*tools: str) -> str:
    """Why a test that needs these is skipped; empty where all are here."""
    unknown = [tool for tool in tools if tool not in PACKAGES]
    assert not unknown, f"which package has {', '.join(unknown)}? (tests/packages.py)"
    return absent([tool for tool in tools if find(tool) is None])


def absent(tools: list[str]) -> str:
    """The reason where somebody else has found that these are missing."""
    return f"{MISSING}{', '.join(tools)}" if tools else ""


def need(*tools: str) -> None:
    """Skips the test that runs, unless all are here."""
    if said := reason(*tools):
        pytest.skip(said)


def needs(*tools: str) -> pytest.MarkDecorator:
    """Marks tests (or a file of them, as `pytestmark`) that need these."""
    said = reason(*tools)
    return pytest.mark.skipif(bool(said), reason=said)
