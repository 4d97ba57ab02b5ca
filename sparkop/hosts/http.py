"""HTTP to a service of a node, over whatever stream leads there."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping

from sparkop.hosts.channels import SocketLike
from sparkop.hosts.streams import lines_of

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

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, timeout: float
    ) -> None:
        self._connection = connection
        self._response = response
        self._timeout = timeout
        self.status = response.status

    def read(self) -> bytes:
        return b"".join(self._parts())

    def lines(self) -> Iterator[bytes]:
        """Lines as they arrive, without their ends."""
        return lines_of(self._parts())

    def _parts(self) -> Iterator[bytes]:
        """The body as it arrives. (`HTTPResponse.readline` would take a broken stream for a whole one.)"""
        try:
            while part := self._response.read1(1 << 16):
                yield part
            if self._response.length:
                raise ConnectionError(f"the answer broke off: {self._response.length} bytes are missing")
        except http.client.HTTPException as error:
            raise ConnectionError(f"the answer broke off: {error!r}") from error
        except TimeoutError as error:
            raise TimeoutError(f"nothing more of the answer came in {self._timeout:g} s") from error
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
        return StreamResponse(connection, connection.getresponse(), timeout)
    except http.client.HTTPException as error:
        connection.close()
        raise ConnectionError(f"no HTTP answer: {error!r}") from error
    except TimeoutError as error:
        connection.close()
        raise TimeoutError(f"no HTTP answer in {timeout:g} s") from error
    except BaseException:
        connection.close()
        raise
