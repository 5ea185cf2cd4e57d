"""httpx-sse: see ../README.md. The library doesn't reconnect by itself: it hands that to its caller."""
import os
import threading
import time

import httpx
from httpx_sse import connect_sse
from lines import command, report


def read(url):
    last_id, delay_s = "", 0.1
    while True:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        try:
            with httpx.Client(timeout=httpx.Timeout(10, read=None)) as client:
                with connect_sse(client, "GET", url, headers=headers) as source:
                    source.response.raise_for_status()
                    report("open")
                    for event in source.iter_sse():
                        last_id = event.id
                        if event.retry is not None:
                            delay_s = min(event.retry / 1000, 1)
                        report("message", name=event.event, data=event.data, id=event.id)
            report("closed", reason="the stream ended")
        except (httpx.HTTPError, httpx.StreamError) as error:
            report("closed", reason=repr(error))
        time.sleep(delay_s)


while wanted := command():
    if wanted["do"] == "connect":
        threading.Thread(target=read, args=[wanted["url"]], daemon=True).start()
os._exit(0)
