"""Many clients of python-socketio 5 in one process, which count: see ../README.md."""
import asyncio

import socketio
from lines import command, report

TRANSPORTS = (["polling"], ["websocket"], ["polling", "websocket"])
# Clients that connect, and clients that have events in flight, at the same time; events of each.
CONNECTING, SENDERS, BURST = 20, 8, 3


class Client:
    def __init__(self, number):
        self.number, self.sent, self.counted, self.failures = number, 0, [], []
        self.connected, self.received = asyncio.Event(), asyncio.Event()
        self.io = socketio.AsyncClient()
        self.io.on("connect", self.connected.set)
        self.io.on("disconnect", lambda reason=None: self.failures.append(f"disconnect: {reason}"))
        self.io.on("connect_error", lambda error=None: self.failures.append(f"connect_error: {error}"))
        self.io.on("counted", self.count)

    def count(self, n):
        self.counted.append(n)
        self.received.set()

    async def connect(self, url):
        # Otherwise, the library waits for a second at most.
        await self.io.connect(url, transports=TRANSPORTS[self.number % 3], wait=False)
        await self.connected.wait()

    async def burst(self):
        answers = []
        for _ in range(BURST):
            answer = asyncio.get_running_loop().create_future()
            answers.append(answer)
            # The number is taken before the library gives control away, so events leave in the order of their numbers.
            n, self.sent = self.sent, self.sent + 1
            await self.io.emit("count", (self.number, n), callback=lambda *_, answer=answer: answer.set_result(None))
        await asyncio.gather(*answers)

    async def finish(self):
        await self.burst()
        while len(self.counted) < self.sent:
            self.received.clear()
            await self.received.wait()
        return {"number": self.number, "sent": self.sent, "counted": self.counted, "failures": self.failures}


async def send(clients, stop):
    turns = iter(range(1 << 62))

    async def sender():
        while not stop.is_set():
            await clients[next(turns) % len(clients)].burst()

    # A client has one burst at a time.
    await asyncio.gather(*(sender() for _ in range(min(SENDERS, len(clients)))))


async def main():
    clients, stop, load = [], asyncio.Event(), None
    while wanted := await asyncio.to_thread(command):
        if wanted["do"] == "connect":
            clients = [Client(wanted["first"] + n) for n in range(wanted["count"])]
            for at in range(0, len(clients), CONNECTING):
                await asyncio.gather(*(client.connect(wanted["url"]) for client in clients[at:at + CONNECTING]))
            report("connected")
            load = asyncio.create_task(send(clients, stop))
        elif wanted["do"] == "stop":
            stop.set()
            await load
            report("result", clients=[await client.finish() for client in clients])


asyncio.run(main())
