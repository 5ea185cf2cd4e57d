"""stentor-socketio: a worker with the real python-socketio, against a scripted server."""

import asyncio
import itertools
import time
import unittest
import unittest.mock

import socketio
from link_server import Server, handshake, within
from socketio.exceptions import ConnectionRefusedError
from stentor_socketio import LinkError, attach


def kept(namespace, id, user, **fields):
    """A socket in RESUME."""
    return {"nsp": namespace, "id": id, "pid": "", "rooms": [id, "r"], "data": {"session": {"n": 1}}, "auth": {"user": user}, **fields}


class Worker(unittest.IsolatedAsyncioTestCase):
    async def start(self, welcome=None, settings=None, **options):
        """A server of python-socketio with a link. Its handlers note what they are called with in `self.events`."""
        self.events = []
        self.noted = asyncio.Condition()
        self.sio = sio = socketio.AsyncServer(**options)
        self.server = await Server().start(self)
        self.link = attach(sio, self.server.url, name="w", signals=False, settle=60, **(settings or {}))
        self.addAsyncCleanup(self.link.channel.close)

        @sio.event
        async def connect(sid, environ, auth):
            await self.note("connect", sid, environ.get("stentor.recovered", False), auth, await sio.get_session(sid), sio.rooms(sid))
            if (auth or {}).get("user") == "Eve":
                raise ConnectionRefusedError("refused", {"why": 1})

        @sio.event
        async def disconnect(sid, reason):
            await self.note("disconnect", sid, reason)

        @sio.on("*")
        async def other(event, sid, *args):
            await self.note(event, *args)

        listening = asyncio.create_task(self.link.listen())
        connection = await self.server.connection()
        await connection.welcome(**(welcome or {}))
        await within(listening)
        return connection

    async def note(self, *event):
        async with self.noted:
            self.events.append(event)
            self.noted.notify_all()

    async def until(self, *event):
        """Waits until a handler has been called with this."""
        async with self.noted:
            await within(self.noted.wait_for(lambda: event in self.events))

    async def connected(self, connection, handle=1, packet='0{"user":"Ann"}'):
        """Opens a session with a socket. Gives its id."""
        await connection.write(("OPEN", handle, False, handshake(f"s{handle}")), ("MESSAGE", handle, [packet]))
        return (await connection.read("ADD"))["id"]

    async def test_a_worker_presents_itself_and_its_server_has_the_sessions_of_stentor(self):
        connection = await self.start(settings={"token": "secret", "on_crash": "redeliver"}, ping_interval=1)
        self.assertRegex(connection.hello.pop("instance"), "^[0-9a-f]{16}$")
        options = {"pingInterval": 1_000, "pingTimeout": 20_000, "maxHttpBufferSize": 1_000_000, "transports": ["polling", "websocket"], "allowUpgrades": True, "allowEIO3": False}
        self.assertEqual(connection.hello, {"v": [1], "link": None, "received": 0, "name": "w", "parser": "json", "on_crash": "redeliver", "options": options})
        self.assertEqual(connection.socket.request.headers["authorization"], "Bearer secret")
        self.assertEqual((await connection.read("NSP"))["name"], "/")

        @self.sio.event
        async def echo(sid, text):
            await self.sio.enter_room(sid, 7)
            await self.sio.emit("news", b"b", room=["7", "x"], skip_sid=sid)
            async with self.sio.session(sid) as session:
                session["text"] = text
            return text, b"a"

        sid = await self.connected(connection)
        self.assertEqual((await connection.read("SEND"))["messages"], [f'0{{"sid":"{sid}"}}'])
        self.assertEqual((await connection.read("STATE"))["data"], '{"session":{}}')
        environ = self.sio.get_environ(sid)
        self.assertEqual([environ[key] for key in ("REMOTE_ADDR", "PATH_INFO", "QUERY_STRING", "HTTP_X_A")], ["192.0.2.1", "/socket.io/", "EIO=4&transport=websocket", "1, 2"])
        self.assertEqual(self.sio.transport(sid), "websocket")

        # No acknowledgement precedes the effects of a message, though Stentor waits for it.
        await connection.write(("MESSAGE", 1, ['21["echo","hi"]']), ("NOP",))
        join = await connection.next()
        self.assertEqual((join["entry"], join.get("rooms")), ("JOIN", ["7"]))
        broadcast = await connection.read("BROADCAST")
        self.assertEqual((broadcast["rooms"], broadcast["except"]), (["7", "x"], [sid]))
        self.assertEqual(broadcast["messages"], ['51-["news",{"_placeholder":true,"num":0}]', b"b"])
        self.assertEqual((await connection.read("STATE"))["data"], '{"session":{"text":"hi"}}')
        # The answer acknowledges the message that caused it.
        answer = await connection.read("SEND")
        self.assertEqual((answer["messages"], answer["ack"]), (['61-1["hi",{"_placeholder":true,"num":0}]', b"a"], 2))
        await self.sio.emit("direct", to=sid)
        self.assertEqual((await connection.read("SEND"))["messages"], ['2["direct"]'])

        await connection.write(("MESSAGE", 1, ['51-["binary",{"_placeholder":true,"num":0}]', b"c"]), ("MESSAGE", 1, ['2["last"]']), ("CLOSED", 1, "ping timeout", ""))
        await self.until("disconnect", sid, "ping timeout")
        self.assertEqual(self.events[1:], [("binary", b"c"), ("last",), ("disconnect", sid, "ping timeout")])
        self.assertEqual((self.link.stats()["sessions"], self.sio.eio.sockets), (0, {}))

    async def test_packets_of_another_serializer_are_not_looked_at(self):
        class Bytes(socketio.packet.Packet):
            uses_binary_events = False

            def encode(self):
                return super().encode().encode()

            def decode(self, encoded_packet):
                return super().decode(encoded_packet.decode())

        connection = await self.start(serializer=Bytes)
        self.assertEqual(connection.hello["parser"], "opaque")
        sid = await self.connected(connection, packet=b"0")
        self.assertEqual((await connection.read("SEND"))["messages"], [f'0{{"sid":"{sid}"}}'.encode()])
        await connection.write(("MESSAGE", 1, [b'2["a",1]']))
        await self.until("a", 1)
        await self.sio.emit("b", room="r")
        self.assertEqual((await connection.read("BROADCAST"))["messages"], [b'2["b"]'])

    async def test_clients_are_refused_with_data_and_calls_are_answered(self):
        connection = await self.start()
        await self.connected(connection, packet='0{"user":"Eve"}')
        self.assertEqual((await connection.read("SEND"))["messages"], ['4{"message":"refused","data":{"why":1}}'])
        await connection.read("DEL")
        await connection.write(("MESSAGE", 1, ["0/none,"]))
        self.assertEqual((await connection.read("SEND"))["messages"], ['4/none,"Unable to connect"'])

        sid = await self.connected(connection, 2)
        answer = asyncio.create_task(self.sio.call("question", to=sid))
        (message,) = (await connection.read("SEND"))["messages"][-1:]
        (message,) = (await connection.read("SEND"))["messages"] if message.startswith("0") else (message,)
        number = message.removeprefix("2").removesuffix('["question"]')
        # Ids of a former process can't match.
        self.assertEqual(int(number) % (1 << 20), 1)
        await connection.write(("MESSAGE", 2, [f'3{number}["yes"]']))
        self.assertEqual(await within(answer), "yes")
        await self.sio.disconnect(sid)
        self.assertEqual((await connection.read("SEND"))["messages"], ["1"])
        self.assertEqual((await connection.read("DEL"))["handle"], 2)

    async def test_frames_without_an_answer_are_acknowledged_alone_and_at_once_after_nop(self):
        connection = await self.start()
        await self.connected(connection)
        await connection.read("SEND")
        await connection.write(("MESSAGE", 1, ['2["nothing"]']))
        self.assertEqual((await connection.read("ack"))["ack"], 2)
        await connection.write(("MESSAGE", 1, ['2["nothing"]']), ("NOP",))
        self.assertEqual((await connection.read("ack"))["ack"], 3)

    async def test_a_session_of_a_former_process_continues_before_its_messages(self):
        connection = await self.start(namespaces=["/", "/chat"])
        gone = kept("/gone", "three", "Ann")
        # This client was still waiting for its connection.
        waiting = kept("/chat", "two", "Ann", data={})
        await connection.write(
            ("RESUME", 1, {**handshake("s1"), "upgraded": True, "sockets": [kept("/", "one", "Ann"), waiting, gone]}),
            ("MESSAGE", 1, ['2["a",1]']),
            ("MEMBERS", 0, 0, [1, 99], ["joined"]),
            ("RESUME", 2, {**handshake("s2"), "sockets": [kept("/", "four", "Eve")]}),
            ("MESSAGE", 1, ['2["a",2]']),
        )
        sent = [await connection.read("SEND") for _ in range(3)]
        self.assertEqual([(each["handle"], each["messages"]) for each in sent], [(1, ['0/chat,{"sid":"two"}']), (1, ["1/gone,"]), (2, ["1"])])
        self.assertEqual((await connection.read("DEL"))["handle"], 2)
        await self.until("a", 2)
        rooms = ["one", "r"]
        self.assertEqual(self.events[0], ("connect", "one", True, {"user": "Ann"}, {"n": 1}, rooms))
        self.assertEqual([event for event in self.events if event[0] == "a"], [("a", 1), ("a", 2)])
        self.assertEqual(sorted(self.sio.rooms("one")), ["joined", *rooms])
        self.assertEqual(self.sio.rooms("four"), [])

    async def test_a_client_learns_that_its_socket_was_disconnected_while_no_worker_had_it(self):
        connection = await self.start(namespaces=["/", "/chat"])
        lost = {"nsp": "/chat", "id": "", "pid": "", "rooms": [], "data": {}, "disconnected": True}
        await connection.write(("RESUME", 1, {**handshake("s1"), "sockets": [lost, kept("/", "one", "Ann")]}))
        self.assertEqual((await connection.read("SEND"))["messages"], ["1/chat,"])
        deleted = await connection.read("DEL")
        self.assertEqual((deleted["handle"], deleted["namespace"]), (1, 1))
        await self.until("connect", "one", True, {"user": "Ann"}, {"n": 1}, ["one", "r"])
        self.assertEqual(len(self.events), 1)

    async def test_messages_that_wait_for_a_handler_of_connect_are_not_acknowledged(self):
        connection = await self.start()
        go = asyncio.Event()

        @self.sio.event
        async def connect(sid, environ):
            await go.wait()

        await connection.write(("OPEN", 1, False, handshake("s1")), ("MESSAGE", 1, ["0"]))
        await connection.read("ADD")
        await connection.write(("MESSAGE", 1, ['2["a"]']), ("NOP",))
        await connection.write(("OPEN", 2, False, handshake("s2")), ("MESSAGE", 2, ["0"]))
        self.assertEqual((await connection.read("ADD"))["ack"], 1)
        go.set()
        await self.until("a")
        self.assertEqual((await connection.read("STATE"))["ack"], 3)

    async def test_rooms_are_kept_in_stentor_and_other_workers_change_them(self):
        connection = await self.start(welcome={"servers": 2})
        sid = await self.connected(connection)
        await self.sio.enter_room("far", "r")
        await self.sio.leave_room("far", "r")
        await self.sio.enter_room(sid, "r")
        await self.sio.close_room("r")
        await self.sio.disconnect("far")
        selects = [await connection.read("SELECT") for _ in range(4)]
        self.assertEqual([(each["change"], each["rooms"], each["targets"]) for each in selects], [(0, ["far"], ["r"]), (1, ["far"], ["r"]), (1, ["r"], ["r"]), (2, ["far"], [])])
        self.assertEqual(self.sio.rooms(sid), [sid])
        await connection.write(("MEMBERS", 0, 0, [1], ["other"]), ("MESSAGE", 1, ['2["now"]']))
        await self.until("now")
        self.assertEqual(self.sio.rooms(sid), [sid, "other"])
        await connection.write(("KICK", 0, False, [1]))
        await self.until("disconnect", sid, "server disconnect")

    async def test_a_call_reaches_the_client_of_another_worker(self):
        connection = await self.start(welcome={"servers": 2})
        sid = await self.connected(connection)
        answer = asyncio.create_task(self.sio.call("ask", b"b", to="far"))
        question = await connection.read("RELAY")
        self.assertEqual(question["body"]["opts"]["rooms"], ["far"])
        await connection.write(("RELAYED", 0, 8, {"kind": "ack", "id": question["body"]["id"]}, ['2["","yes"]']))
        self.assertEqual(await within(answer), "yes")
        # Another worker's question.
        await connection.write(("RELAYED", 0, 8, {**question["body"], "id": 3, "opts": {"rooms": [sid], "except": []}}, question["messages"]))
        message, attachment = (await connection.read("SEND"))["messages"]
        self.assertEqual((await connection.read("RELAY"))["body"], {"id": 3, "kind": "count", "count": 1})
        number = message.removeprefix("51-").partition("[")[0]
        self.assertEqual(attachment, b"b")
        await connection.write(("MESSAGE", 1, [f'3{number}["no"]']))
        reply = await connection.read("RELAY")
        self.assertEqual((reply["link"], reply["body"], reply["messages"]), (8, {"id": 3, "kind": "ack"}, ['2["","no"]']))

    async def test_a_handover_waits_for_handlers_gives_sessions_back_and_ends_the_link(self):
        connection = await self.start()
        sid = await self.connected(connection)
        go = asyncio.Event()

        @self.sio.event
        async def last(sid):
            await go.wait()
            (await self.sio.get_session(sid))["name"] = "Ann"

        async def hook():
            await self.note("hook")

        over = asyncio.create_task(self.link.handover(hook=hook))
        self.assertEqual((await connection.read("BYE"))["bye"], {"mode": "handover"})
        await connection.write(("MESSAGE", 1, ['21["last"]']), ("DRAINED",), ("NOP",))
        self.assertEqual((await connection.read("ack"))["ack"], 2)
        self.assertNotIn(("hook",), self.events)
        go.set()
        self.assertEqual((await connection.read("SEND"))["messages"], ["31[]"])
        released = await connection.read("RELEASED")
        self.assertEqual((released["handle"], released["data"]), (1, '{"session":{"name":"Ann"}}'))
        self.assertEqual((await connection.read("BYE"))["bye"], {"mode": "done"})
        await connection.write(("NOP",))
        await within(over)
        await within(connection.closed.wait())
        self.assertEqual(self.events[1:], [("hook",), ("disconnect", sid, "server shutting down")])
        with self.assertRaises(LinkError) as raised:
            await self.link.listen()
        self.assertEqual(raised.exception.code, "closed")

    async def test_one_session_is_given_back_when_stentor_asks(self):
        connection = await self.start()
        sid = await self.connected(connection)
        await connection.write(("RELEASE", 1))
        self.assertEqual([(await connection.read("RELEASED"))["namespace"] for _ in range(2)], [0, 0xFFFF])
        await self.until("disconnect", sid, "server shutting down")
        self.assertEqual(self.link.stats()["sessions"], 0)

    async def test_a_session_whose_handler_needs_longer_stays(self):
        connection = await self.start(namespaces=["/", "/slow"])
        go = asyncio.Event()

        @self.sio.on("connect", namespace="/slow")
        async def connect(sid, environ, auth):
            await go.wait()

        self.link._settle = 0
        await self.connected(connection)
        await connection.write(("MESSAGE", 1, ["0/slow,"]), ("RELEASE", 1))
        self.assertEqual((await connection.read("KEPT"))["handle"], 1)
        await connection.write(("MESSAGE", 1, ['2["later"]']))
        go.set()
        await self.until("later")
        self.assertEqual(self.link.stats()["sessions"], 1)

    async def test_close_ends_the_sessions(self):
        connection = await self.start()
        sid = await self.connected(connection)
        closing = asyncio.create_task(self.link.close())
        self.assertEqual((await connection.read("BYE"))["bye"], {"mode": "stop"})
        await connection.write(("NOP",))
        await within(closing)
        self.assertIn(("disconnect", sid, "server disconnect"), self.events)

    async def test_after_a_broken_connection_both_sides_continue_where_they_were(self):
        connection = await self.start()
        sid = await self.connected(connection)
        await connection.read("SEND")
        connection.cut()
        again = await self.server.connection()
        self.assertEqual((again.hello["link"], again.hello["received"], again.hello["instance"]), (5, 1, connection.hello["instance"]))
        await self.sio.emit("kept", to=sid)
        await again.welcome(resumed=True, received=1)
        # Stentor hasn't received the second frame.
        first = await again.read("SEND")
        self.assertEqual((first["messages"], first["number"]), ([f'0{{"sid":"{sid}"}}'], 2))
        self.assertEqual((await again.read("SEND"))["messages"], ['2["kept"]'])
        self.assertEqual(len(self.events), 1)

    async def test_a_worker_whose_connections_break_at_once_does_not_connect_in_a_tight_loop(self):
        connection = await self.start()
        begun = time.monotonic()
        connection.cut()
        for _ in range(10):
            connection = await self.server.connection()
            await connection.welcome()
            connection.cut()
        # 25 ms before each, less the precision of timers.
        self.assertGreater(time.monotonic() - begun, 10 * 0.02)

    async def test_a_new_link_resumes_a_session_when_its_former_handlers_are_done(self):
        connection = await self.start()
        sid = await self.connected(connection)
        go = asyncio.Event()

        @self.sio.event
        async def disconnect(sid, reason):
            await go.wait()
            await self.note("disconnect", sid, reason)

        connection.cut()
        again = await self.server.connection()
        await again.welcome(link=6)
        self.assertEqual((await again.read("NSP"))["name"], "/")
        await again.write(("RESUME", 1, {**handshake("s1"), "sockets": [kept("/", sid, "Ann")]}), ("MESSAGE", 1, ['2["a"]']))
        await again.write(("OPEN", 2, False, handshake("s2")), ("MESSAGE", 2, ['0']))
        self.assertEqual((await again.read("ADD"))["ack"], 0)
        go.set()
        await self.until("a")
        of_session = [event[:3] for event in self.events[1:] if event[0] == "a" or event[1] == sid]
        self.assertEqual(of_session, [("disconnect", sid, "server shutting down"), ("connect", sid, True), ("a",)])

    async def test_a_server_that_breaks_the_protocol_loses_its_link_with_one_line(self):
        connection = await self.start()
        sid = await self.connected(connection)
        with self.assertLogs("stentor_socketio") as logs:
            await connection.socket.send(bytes.fromhex("090000000000000015"))
            again = await self.server.connection()
        self.assertEqual([record.message for record in logs.records], ["Stentor broke the protocol: the frame has the number 9; expected 2"])
        self.assertEqual((again.hello["link"], again.hello["received"]), (None, 0))
        await self.until("disconnect", sid, "server shutting down")

    async def test_a_worker_that_is_refused_tries_again_unless_it_is_for_good(self):
        server = await Server().start(self)
        link = attach(socketio.AsyncServer(), server.url, signals=False)
        listening = asyncio.create_task(link.listen())
        with self.assertLogs("stentor_socketio") as logs:
            await (await server.connection()).first("ERROR", {"code": "too_many_workers", "message": "64 already"})
            again = await server.connection()
        self.assertEqual([record.message for record in logs.records], ["Stentor refuses this worker: 64 already"])
        await again.first("ERROR", {"code": "token", "message": "the token is wrong"})
        with self.assertRaisesRegex(LinkError, "^Stentor refuses this worker: the token is wrong$"):
            await within(listening)

    async def test_the_application_s_own_server_has_no_clients(self):
        sio = socketio.AsyncServer(async_mode="asgi")
        attach(sio, "ws://127.0.0.1:1")
        sent = []
        scope = {"type": "http", "method": "GET", "path": "/socket.io/", "query_string": b"EIO=4&transport=polling", "headers": []}

        async def receive():
            return {"type": "http.request"}

        async def send(event):
            sent.append(event)

        await socketio.ASGIApp(sio)(scope, receive, send)
        self.assertEqual((sent[0]["status"], sent[1]["body"]), (404, b"Clients connect to Stentor, not to this server."))

    async def test_what_a_client_chooses_ends_no_link(self):
        connection = await self.start(namespaces="*")
        for handle, packet in enumerate(('0{"a":NaN}', f"0{'[' * 500}{']' * 500}", f'0{{"a":"{"x" * 70_000}"}}', "0\ud800{}", '2["early"]', "9", "51-[]", "0" + "/x" * 40_000 + ","), 1):
            await connection.write(("OPEN", handle, False, handshake(f"s{handle}")), ("MESSAGE", handle, [packet]))
        await connection.write(("OPEN", 99, False, handshake("s99", protocol=3)))
        self.assertEqual((await connection.read("CLOSE"))["handle"], 99)
        sid = await self.connected(connection, 100)
        await self.sio.emit("still", to=sid)
        self.assertTrue(self.link.stats()["is_up"])


    async def test_a_client_that_names_a_long_namespace_is_refused(self):
        connection = await self.start(namespaces="*")
        self.assertEqual((await connection.read("NSP"))["name"], "/")
        longest, longer = "/" + "x" * 255, "/" + "é" * 128
        await connection.write(("OPEN", 1, False, handshake("s1")), ("MESSAGE", 1, [f"0{longer},"]), ("MESSAGE", 1, [f"0{longest},"]))
        self.assertEqual((await connection.read("SEND"))["messages"], [f'4{longer},"Unable to connect"'])
        self.assertEqual((await connection.read("NSP"))["name"], longest)
        with self.assertRaisesRegex(ValueError, "longer than 256 bytes"):
            await self.sio.emit("x", namespace=longer)

    async def test_the_name_and_the_index_of_a_namespace_that_is_gone_are_free(self):
        connection = await self.start(namespaces="*")

        async def declared():
            entry = await connection.read("NSP")
            return entry["namespace"], entry["name"]

        self.assertEqual(await declared(), (0, "/"))
        await self.connected(connection)
        await connection.write(("MESSAGE", 1, ["0/a,"]), ("MESSAGE", 1, ["1/a,"]))
        self.assertEqual(await declared(), (1, "/a"))
        self.assertEqual((await connection.read("GONE"))["namespace"], 1)
        # Until Stentor has confirmed it, an entry may still have the old index.
        await connection.write(("MESSAGE", 1, ["0/b,"]), ("KICK", 1, False, [1]))
        self.assertEqual(await declared(), (2, "/b"))
        await connection.write(("VACANT", 1), ("MESSAGE", 1, ["0/c,"]))
        self.assertEqual(await declared(), (1, "/c"))
        # The namespaces of the server itself stay.
        await connection.write(("MESSAGE", 1, ["1"]), ("MESSAGE", 1, ["1/c,"]))
        self.assertEqual((await connection.read("GONE"))["namespace"], 1)

    @unittest.mock.patch("stentor_socketio.manager._NAMES_BYTES_MAX", 4_096)
    async def test_a_worker_without_room_for_a_name_closes_the_sessions_whose_sockets_need_it(self):
        connection = await self.start(namespaces="*")
        sid = await self.connected(connection)
        with self.assertRaisesRegex(ValueError, "too many namespaces"):
            for number in itertools.count():
                self.link.manager.index(f"/{number}".ljust(256, "."))
        other = "/other".ljust(256, ".")
        # Without effect, because the worker has no socket in the namespace and can't name it to Stentor.
        await self.sio.emit("late", namespace=other)
        await self.sio.enter_room("unknown", "r", namespace=other)
        for handle, fields in (2, {}), (3, {"disconnected": True}):
            sockets = [kept("/", f"one-{handle}", "Ann"), kept(other, f"two-{handle}", "Ann", **fields)]
            await connection.write(("RESUME", handle, {**handshake(f"s{handle}"), "sockets": sockets}))
            closed = await connection.read("CLOSE")
            self.assertEqual((closed["handle"], closed["discard"]), (handle, True))
        await self.sio.emit("still", to=sid)
        self.assertEqual((await connection.read("SEND"))["messages"], ['2["still"]'])

    async def test_a_broadcast_to_a_namespace_without_sockets_keeps_no_name(self):
        connection = await self.start(namespaces="*")
        await self.connected(connection)
        await self.sio.emit("late", namespace="/a")
        self.assertEqual((await connection.read("BROADCAST"))["namespace"], 1)
        self.assertEqual((await connection.read("GONE"))["namespace"], 1)


class Attach(unittest.TestCase):
    def test_mistakes_are_named(self):
        url = "ws://127.0.0.1:1"
        for make, message in (
            (lambda: attach(socketio.Server(), url), "AsyncServer"),
            (lambda: attach(socketio.AsyncServer(client_manager=socketio.AsyncRedisManager("redis://")), url), "without `client_manager`"),
            (lambda: attach(socketio.AsyncServer(), url, on_crash="x"), "on_crash is one of"),
            (lambda: attach(socketio.AsyncServer(), "127.0.0.1:1"), "isn't an address of Stentor"),
        ):
            with self.assertRaisesRegex((TypeError, ValueError), message):
                make()


if __name__ == "__main__":
    unittest.main()
