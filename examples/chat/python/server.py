"""The chat as a worker of Stentor. To run it without Stentor, remove the lines marked with +, and use those marked with -."""

import asyncio
import os

import socketio
from chat import chat
from stentor_socketio import attach  # +

sio = socketio.AsyncServer()
link = attach(sio, os.environ.get("STENTOR", "ws://127.0.0.1:8001"), token=os.environ.get("STENTOR_TOKEN"))  # +
chat(sio)

# - app = aiohttp.web.Application()
# - sio.attach(app)
# - aiohttp.web.run_app(app, port=8000)


async def main():  # +
    await link.listen()  # +
    print("the chat is open", flush=True)  # +
    await link.wait()  # +


asyncio.run(main())  # +
