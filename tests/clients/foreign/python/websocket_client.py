"""websocket-client: see ../README.md. The library's WebSocketApp, which doesn't reconnect unless it is asked to."""
import os
import threading

import websocket
from lines import command, report

app = None


def status_of(errors):
    """The status of a refused handshake."""
    return next((error.status_code for error in errors if isinstance(error, websocket.WebSocketBadStatusException)), None)


while wanted := command():
    if wanted["do"] == "connect":
        refusal = []
        app = websocket.WebSocketApp(
            wanted["url"],
            header=wanted.get("headers"),
            subprotocols=wanted.get("subprotocols"),
            on_open=lambda _: report("open"),
            on_message=lambda _, text: report("message", data=text),
            on_error=lambda _, error: refusal.append(error),
            on_close=lambda _, code, reason: report("closed", code=code, status=status_of(refusal)),
        )
        threading.Thread(target=app.run_forever, daemon=True).start()
    elif wanted["do"] == "send":
        app.send(wanted["text"])
os._exit(0)
