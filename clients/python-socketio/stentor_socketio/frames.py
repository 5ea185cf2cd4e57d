"""Frames in both directions: their numbers, those that are kept until the peer has handled them, and those that may be acknowledged.

Both sides count frames from 1. A header has 32 bits of the count: 1 follows 4,294,967,295, and 0 means that a frame isn't numbered, or that
none has been handled.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Hashable

from .entries import HEADER_BYTES, FrameError

#: Maximum length of a frame in bytes, unless one entry alone is longer.
FRAME_BYTES = 64 << 10
#: Maximum length of a frame with one entry, in bytes: Stentor accepts no longer one.
FRAME_BYTES_MAX = 16 << 20
#: Handled bytes after which an acknowledgement doesn't wait for other entries.
ACK_BYTES = 32 << 10

_PERIOD = 0xFFFF_FFFF


def in_header(count: int) -> int:
    """The number in a header."""
    return 0 if count == 0 else (count - 1) % _PERIOD + 1


def nearest(number: int, near: int) -> int:
    """The count with this number in a header that is nearest to the count `near`."""
    if number == 0:
        return 0
    base = max(near, 1)
    # How far the number is ahead of `base`: less than a period.
    ahead = (number - in_header(base)) % _PERIOD
    behind = _PERIOD - ahead
    return base + ahead if ahead <= _PERIOD // 2 or behind >= base else base - behind


class Outgoing:
    """Frames to Stentor. Invariant: a frame has at most `FRAME_BYTES`, unless one entry alone is longer."""

    def __init__(self) -> None:
        self._frame = bytearray(HEADER_BYTES)
        self._kept: deque[bytearray] = deque()
        self._last = 0
        self._acknowledged = 0
        self._transmitted = 0
        #: Bytes of the entries that Stentor hasn't handled, with their headers.
        self.kept_bytes = 0

    @property
    def is_pending(self) -> bool:
        """`True` if there are entries that haven't been transmitted."""
        return len(self._frame) > HEADER_BYTES or self._transmitted < self._last

    @property
    def is_acknowledged(self) -> bool:
        """`True` if Stentor has handled all entries."""
        return not self.is_pending and self._acknowledged == self._last

    def write(self, entry: bytes) -> None:
        """Appends an entry. Raises `ValueError` if it is too long."""
        if HEADER_BYTES + len(entry) > FRAME_BYTES_MAX:
            raise ValueError(f"a message of {len(entry)} bytes; the maximum is {FRAME_BYTES_MAX - HEADER_BYTES}")
        if len(self._frame) > HEADER_BYTES and len(self._frame) + len(entry) > FRAME_BYTES:
            self._keep()
        self._frame += entry
        self.kept_bytes += len(entry)

    def _keep(self) -> None:
        self._last += 1
        struct.pack_into("<I", self._frame, 0, in_header(self._last))
        self._kept.append(self._frame)
        self._frame = bytearray(HEADER_BYTES)

    def poll(self, ack: int) -> list[bytes]:
        """Ends the current frame. Returns the frames to transmit, with the acknowledgement of the count `ack` in their headers."""
        if len(self._frame) > HEADER_BYTES:
            self._keep()
        frames = list(self._kept)[self._transmitted - self._acknowledged :]
        for frame in frames:
            struct.pack_into("<I", frame, 4, in_header(ack))
        self._transmitted = self._last
        return [bytes(frame) for frame in frames]

    def acknowledge(self, number: int) -> None:
        """Forgets the frames up to this number: Stentor has handled them."""
        count = nearest(number, self._acknowledged)
        if count > self._transmitted:
            raise FrameError(f"the frame {number} is acknowledged; the last one is {in_header(self._transmitted)}")
        while self._acknowledged < count:
            self._acknowledged += 1
            self.kept_bytes -= len(self._kept.popleft()) - HEADER_BYTES

    def reconnect(self, received: int) -> None:
        """Continues on another connection: frames after `received`, the last one that has reached Stentor, are transmitted again."""
        count = nearest(received, self._acknowledged)
        if not self._acknowledged <= count <= self._last:
            raise FrameError(f"WELCOME has the unknown frame {received}")
        self._transmitted = count


class Incoming:
    """Frames from Stentor.

    A frame is acknowledged when the handlers of all its messages have run up to their first `await`. A session whose messages wait for an
    earlier one holds their frame back, and so all later ones.
    """

    def __init__(self) -> None:
        #: Sessions whose messages wait, with the count of the first such frame.
        self._holding: dict[Hashable, int] = {}
        self._acknowledged = 0
        self._bytes = 0
        self._is_urgent = False
        #: Count of the last frame that has arrived.
        self.arrived = 0
        #: Count of the last frame whose handlers have had their turn.
        self.settled = 0

    def arrive(self, number: int, size: int) -> None:
        """Counts a frame. Raises `FrameError` if it isn't the next one."""
        expected = in_header(self.arrived + 1)
        if number != expected:
            raise FrameError(f"the frame has the number {number}; expected {expected}")
        self.arrived += 1
        self._bytes += size

    def hurry(self) -> None:
        """Stentor waits for the acknowledgement."""
        self._is_urgent = True

    @property
    def is_urgent(self) -> bool:
        """`True` if an acknowledgement doesn't wait for entries to travel with."""
        return self._is_urgent or self._bytes >= ACK_BYTES

    def hold(self, session: Hashable) -> None:
        """A session's messages of the current frame wait."""
        self._holding.setdefault(session, self.arrived)

    def release(self, session: Hashable) -> bool:
        """A session's messages don't wait any more. `True` if they did."""
        return self._holding.pop(session, None) is not None

    @property
    def handled(self) -> int:
        """Count of the last frame that may be acknowledged."""
        return min(self.settled, *(count - 1 for count in self._holding.values())) if self._holding else self.settled

    @property
    def is_unacknowledged(self) -> bool:
        """`True` if an acknowledgement is to be sent."""
        return self.handled > self._acknowledged

    def acknowledge(self) -> int:
        """An acknowledgement of the handled frames is being sent. Returns their count."""
        self._acknowledged = self.handled
        self._bytes = 0
        self._is_urgent = False
        return self._acknowledged

    def reconnect(self) -> None:
        """Continues on another connection: acknowledgements may have been lost."""
        self._acknowledged = 0
