"""HTTP to a service of a node, over whatever stream leads there."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping

from sparkop.hosts.channels import SocketLike

Dial = Callable[[float], SocketLike]
"""Opens a stream to the service; the argument is its timeout in seconds. Raises OSError."""


class StreamConnection(http.client.HTTPConnection):
    """http.client over a stream that is not a TCP connection of this machine."""

    def __init__(self, dial: Dial, timeout: float) -> None:
        super().__init__("127.0.0.1", timeout=timeout)
        self._dial = dial
        self._seconds = timeout

    def connect(self) -> None:
        stream = self._dial(self._seconds)
        stream.settimeout(self._seconds)
        self.sock = stream


class StreamResponse:
    """An answer. Reading raises OSError when the stream breaks or a read takes longer than the timeout."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self.status = response.status

    def read(self) -> bytes:
        try:
            return self._response.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"the answer broke off: {error!r}") from error
        finally:
            self.close()

    def lines(self) -> Iterator[bytes]:
        """Lines as they arrive, without their ends."""
        try:
            while line := self._response.readline():
                yield line.rstrip(b"\r\n")
        except http.client.HTTPException as error:
            raise ConnectionError(f"the answer broke off: {error!r}") from error
        finally:
            self.close()

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def request(
    dial: Dial, method: str, path: str, headers: Mapping[str, str] | None, body: bytes | None, timeout: float
) -> StreamResponse:
    """Send a request; returns when the answer's header is there. Raises OSError."""
    connection = StreamConnection(dial, timeout)
    try:
        connection.request(method, path, body=body, headers={"Connection": "close", **(headers or {})})
        return StreamResponse(connection, connection.getresponse())
    except http.client.HTTPException as error:
        connection.close()
        raise ConnectionError(f"no HTTP answer: {error!r}") from error
    except BaseException:
        connection.close()
        raise
