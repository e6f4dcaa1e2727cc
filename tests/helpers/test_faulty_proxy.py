"""The proxy that breaks things breaks none of its own."""

import gc
import socket
import time
from urllib.parse import urlsplit

from tests.helpers.faulty_proxy import FaultyProxy
from tests.helpers.loopback import Server, completion
from tests.helpers.waiting import wait_for

REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"


def test_a_client_that_hangs_up_while_the_server_thinks_leaves_nothing_open() -> None:
    """What is left open is found by the garbage collector, and its warning fails the test."""
    upstream = Server([completion()], delay=0.5)
    proxy = FaultyProxy(upstream.url, {})
    try:
        with socket.create_connection(("127.0.0.1", urlsplit(proxy.url).port or 0)) as client:
            client.sendall(REQUEST)
            wait_for(lambda: bool(upstream.asked))
        time.sleep(0.1)  # until the proxy has noticed; the server still thinks
        gc.collect()
    finally:
        proxy.stop()
        upstream.stop()
