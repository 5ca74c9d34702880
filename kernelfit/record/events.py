"""Server-sent events out of an HTTP response, as its bytes come in."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class EventReader:
    """An incremental reader of one HTTP/1.1 response.

    Attributes
    ----------
    status : int or None
        The response's status once its head was read.
    ended : bool
        Whether the whole body was read.
    """

    status: int | None = None
    ended: bool = False
    _chunked: bool = False
    _left: int | None = None
    _raw: bytearray = field(default_factory=bytearray)
    _body: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> list[bytes]:
        """Take some bytes and return the events that they complete.

        Parameters
        ----------
        data : bytes
            The next bytes of the connection; none when the server closed it.

        Returns
        -------
        list of bytes
            The data of each event.

        Raises
        ------
        ValueError
            When the bytes are no HTTP/1.1 response.
        """
        self._raw += data
        if self.status is None and not self._head():
            return []
        if self._chunked:
            self._dechunk()
        else:
            self._plain(closed=not data)
        events = []
        while (end := self._body.find(b"\n\n")) >= 0:
            event = bytes(self._body[:end])
            del self._body[: end + 2]
            if event.startswith(b"data:"):
                events.append(event[5:].strip())
        return events

    def rest(self) -> bytes:
        """Return what of the body was no event: the answer that refused a request.

        Returns
        -------
        bytes
            The rest of the body.
        """
        return bytes(self._body)

    def _head(self) -> bool:
        end = self._raw.find(b"\r\n\r\n")
        if end < 0:
            return False
        lines = bytes(self._raw[:end]).split(b"\r\n")
        words = lines[0].split()
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise ValueError(f"not an HTTP response: {lines[0][:80]!r}")
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            name, value = name.strip().lower(), value.strip().lower()
            if name == b"transfer-encoding":
                self._chunked = value == b"chunked"
            elif name == b"content-length":
                self._left = int(value)
        self.status = int(words[1])
        del self._raw[: end + 4]
        return True

    def _plain(self, *, closed: bool) -> None:
        self._body += self._raw
        if self._left is not None:
            self._left -= len(self._raw)
        self._raw.clear()
        self.ended = closed if self._left is None else self._left <= 0

    def _dechunk(self) -> None:
        while True:
            end = self._raw.find(b"\r\n")
            if end < 0:
                return
            size = int(bytes(self._raw[:end]).split(b";")[0], 16)
            if len(self._raw) < end + 2 + size + 2:
                return
            self._body += self._raw[end + 2 : end + 2 + size]
            del self._raw[: end + 2 + size + 2]
            if size == 0:
                self.ended = True
                return
