"""What the manager says of itself as a client of its broker."""

from __future__ import annotations

import socket
import threading

from timebound.control.manager.announce import Announcer
from timebound.control.manager.configuration import AnnounceConfiguration

SAID = AnnounceConfiguration(topic="$timebound/manager", channels=False, user=None, password=None)


def test_it_leaves_when_its_last_word_is_acknowledged() -> None:
    """Until then the broker may still send back what was published before; a connection closed with that unread is reset, and the will is published."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        broker = {"address": "127.0.0.1", "port": server.getsockname()[1], "tls": None}
        announcer = Announcer(SAID, "m1", broker)
        connection, _ = server.accept()
        with connection:
            connection.settimeout(10)
            assert connection.recv(4096)[0] == 0x10
            connection.sendall(b"\x20\x02\0\0")
            announcer.state({"state": "best effort"})
            assert b"best effort" in connection.recv(4096)
            leaving = threading.Thread(target=announcer.close, args=({"state": "stopped"},))
            leaving.start()
            said = connection.recv(4096)
            assert said[0] == 0x33 and b"stopped" in said, "QoS 1, retained"
            connection.settimeout(0.3)
            try:
                early = connection.recv(4096)
            except TimeoutError:
                early = b""
            assert early == b"" and leaving.is_alive(), "it waits for the acknowledgement"
            topic = b"$timebound/manager/m1/state"
            identifier = said[2 + 2 + len(topic) :][:2]
            connection.sendall(b"\x40\x02" + identifier)
            connection.settimeout(10)
            assert connection.recv(4096) == b"\xe0\0"
            assert connection.recv(4096) == b""
        leaving.join(10)
        assert not leaving.is_alive()


def test_a_broker_that_acknowledges_nothing_holds_nobody_up_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        broker = {"address": "127.0.0.1", "port": server.getsockname()[1], "tls": None}
        announcer = Announcer(SAID, "m1", broker)
        connection, _ = server.accept()
        with connection:
            connection.settimeout(10)
            assert connection.recv(4096)[0] == 0x10
            connection.sendall(b"\x20\x02\0\0")
            announcer.state({"state": "best effort"})
            assert b"best effort" in connection.recv(4096)
            leaving = threading.Thread(target=announcer.close, args=({"state": "stopped"},))
            leaving.start()
            leaving.join(30)
            assert not leaving.is_alive()
