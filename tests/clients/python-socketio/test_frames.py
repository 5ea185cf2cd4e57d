"""stentor-socketio: frames of the application link."""

import json
import unittest
from pathlib import Path

from stentor_socketio.entries import HEADER_BYTES, SERVER, WORKER, FrameError, Reader, by_type
from stentor_socketio.frames import Incoming, Outgoing, in_header, nearest

# The Rust tests of crates/link have the same list.
SHARED = json.loads((Path(__file__).parents[3] / "crates/link/tests/link/entries.json").read_text())


def value(given):
    if isinstance(given, list):
        return [value(each) for each in given]
    return bytes.fromhex(given["hex"]) if isinstance(given, dict) and "hex" in given else given


def read(frame, entries=SERVER):
    return [(entry.name, fields) for entry, fields in Reader(frame, by_type(entries))]


class Frames(unittest.TestCase):
    def test_entries_have_the_bytes_of_the_specification_and_are_read_whole_or_not_at_all(self):
        for direction, entries in (("worker", WORKER), ("server", SERVER)):
            for row in SHARED[direction]:
                with self.subTest(**row):
                    fields = {name: value(given) for name, given in row["fields"].items()}
                    outgoing = Outgoing()
                    outgoing.write(entries[row["entry"]].pack(*fields.values()))
                    (frame,) = outgoing.poll(258)
                    self.assertEqual(frame.hex(), "0100000002010000" + row["bytes"])
                    self.assertEqual(read(frame, entries), [(row["entry"], fields)])
                    for length in range(HEADER_BYTES + 1, len(frame)):
                        with self.assertRaises(FrameError):
                            read(frame[:length], entries)
            self.assertEqual(set(entries), {row["entry"] for row in SHARED[direction]})

    def test_frames_that_break_the_protocol_are_refused_with_a_reason(self):
        for frame, message in (
            ("010000", "the frame ends within the header"),
            ("0100000000000000ff", "the frame has an entry of the unknown type 255"),
            ("010000000000000004", "the frame has an entry of the unknown type 4"),
            ("01000000000000004200", "the frame ends within MESSAGE"),
            ("010000000000000049020100ffffffff", "the frame ends within KICK"),
            ("010000000000000040010000007b", "WELCOME is malformed: a text isn't JSON"),
        ):
            with self.assertRaisesRegex(FrameError, f"^{message}$"):
                read(bytes.fromhex(frame))

    def test_fields_out_of_bounds_raise(self):
        for entry, fields in (("LEAVE", (1, 0, "x" * 65_536)), ("NSP", (65_536, "/")), ("HELLO", (float("nan"),)), ("BROADCAST", (0, 0, ["r"] * 65_536, [], None, []))):
            with self.assertRaises(ValueError):
                WORKER[entry].pack(*fields)
        with self.assertRaisesRegex(ValueError, "the maximum is 16777208"):
            Outgoing().write(bytes(16 << 20))

    def test_a_count_is_found_by_its_number_in_a_header(self):
        for count, number in ((0, 0), (1, 1), (4_294_967_295, 4_294_967_295), (4_294_967_296, 1), (2 * 4_294_967_295 + 7, 7)):
            self.assertEqual(in_header(count), number)
            for near in (count - 1_000, count - 1, count, count + 9) if count else ():
                self.assertEqual(nearest(number, max(0, near)), count)
        self.assertEqual(nearest(4_294_967_295, 1), 4_294_967_295)

    def test_a_frame_has_at_most_64_kib_or_one_entry(self):
        outgoing = Outgoing()
        lengths = [10, 60_000, 10_000, 1_000_000, 10, 70_000, 20]
        for length in lengths:
            outgoing.write(WORKER["SEND"].pack(length, 0, ["é" * (length // 2)]))
        frames = outgoing.poll(0)
        self.assertEqual([[fields["handle"] for _, fields in read(frame, WORKER)] for frame in frames], [[10, 60_000], [10_000], [1_000_000], [10], [70_000], [20]])
        self.assertEqual(outgoing.kept_bytes, sum(len(frame) - HEADER_BYTES for frame in frames))

    def test_frames_are_kept_until_they_are_acknowledged(self):
        outgoing = Outgoing()
        for _ in range(3):
            outgoing.write(WORKER["NOP"].pack())
            outgoing.poll(0)
        outgoing.acknowledge(1)
        outgoing.reconnect(2)
        self.assertEqual([frame.hex() for frame in outgoing.poll(7)], ["030000000700000015"])
        for broken in (lambda: outgoing.acknowledge(4), lambda: outgoing.reconnect(4)):
            with self.assertRaises(FrameError):
                broken()
        outgoing.acknowledge(3)
        self.assertEqual((outgoing.is_acknowledged, outgoing.kept_bytes), (True, 0))

    def test_a_session_that_holds_messages_back_holds_the_acknowledgement_back(self):
        incoming = Incoming()
        incoming.arrive(1, 10)
        incoming.settled = 1
        incoming.arrive(2, 10)
        incoming.hold("session")
        incoming.arrive(3, 40_000)
        incoming.hold("session")
        incoming.settled = 3
        self.assertEqual((incoming.acknowledge(), incoming.is_unacknowledged), (1, False))
        self.assertEqual((incoming.release("session"), incoming.release("session"), incoming.is_unacknowledged), (True, False, True))
        self.assertEqual(incoming.acknowledge(), 3)
        with self.assertRaisesRegex(FrameError, "the frame has the number 3; expected 4"):
            incoming.arrive(3, 10)
