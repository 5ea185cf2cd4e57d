"""Runs a static stentor inside a root file system that has nothing but the binary, where it fetches a feed from an HTTPS API by
its name: name resolution, certificates and TLS work without any library of the system.

    unshare --net python3 static.py ROOT PROGRAM [NSSWITCH]

ROOT is changed: it gets a resolv.conf and a CA certificate, and the text NSSWITCH as nsswitch.conf. The network namespace has no
other program, so all ports are free.
"""
import fcntl
import http.server
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import urllib.request

root, program = sys.argv[1:3]

# ip link set lo up (netdevice(7): SIOCSIFFLAGS, IFF_UP | IFF_RUNNING)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 0x41))

asked = set()


def answer_names(server):
    """A name server (RFC 1035) that knows 127.0.0.1 as the address of every name."""
    while True:
        query, client = server.recvfrom(512)
        end = query.index(0, 12) + 5
        question, kind = query[12:end], query[end - 4 : end - 2]
        asked.add(question[:-5])
        is_address = kind == b"\0\1"
        record = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\x7f\0\0\1" if is_address else b""
        server.sendto(query[:2] + b"\x81\x80\0\1" + struct.pack(">H", is_address) + b"\0\0\0\0" + question + record, client)


names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("127.0.0.1", 53))
threading.Thread(target=answer_names, args=[names], daemon=True).start()


class Api(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"path": self.path, "host": self.headers["Host"]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def write(path, text):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


with tempfile.TemporaryDirectory() as folder:
    key, certificate = f"{folder}/key.pem", f"{folder}/certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        + ["-subj", "/CN=api.test", "-addext", "subjectAltName=DNS:api.test", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with open(certificate) as file:
        write("etc/ssl/certs/ca-certificates.crt", file.read())
api = http.server.ThreadingHTTPServer(("127.0.0.1", 443), Api)
api.socket = context.wrap_socket(api.socket, server_side=True)
threading.Thread(target=api.serve_forever, daemon=True).start()

write("etc/resolv.conf", "nameserver 127.0.0.1\n")
if len(sys.argv) > 3:
    write("etc/nsswitch.conf", sys.argv[3] + "\n")
write("etc/stentor.toml", '[[feeds]]\nname = "api"\nprefix = ""\nurl = "https://api.test/documents/"\n')
server = subprocess.Popen(["chroot", root, program, "serve", "--config", "/etc/stentor.toml"], stdout=subprocess.PIPE, text=True)
try:
    assert server.stdout.readline().startswith("ready "), "the server did not start"
    with urllib.request.urlopen("http://127.0.0.1:8000/feed/a", timeout=20) as response:
        document = json.load(response)
    assert document == {"path": "/documents/a", "host": "api.test"}, document
    assert b"\3api\4test" in asked, asked
finally:
    server.terminate()
    server.wait(20)
assert server.returncode == 0, server.returncode
print("fetched by name")
