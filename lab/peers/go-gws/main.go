// gws as a peer: echo and chat (each message to everybody, sender included), by the documented interface. Its broadcaster
// frames a message once and queues it at each client.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/lxzan/gws"
)

const (
	payloadBytesMax = 16 << 20
	// A small message takes one read; a large one goes past the buffer.
	readBytes = 1024
)

var (
	lock    sync.Mutex
	clients = map[*gws.Conn]struct{}{}
)

type handler struct {
	gws.BuiltinEventHandler
	echoes bool
}

func (h *handler) OnOpen(client *gws.Conn) {
	lock.Lock()
	defer lock.Unlock()
	clients[client] = struct{}{}
}

func (h *handler) OnClose(client *gws.Conn, _ error) {
	lock.Lock()
	defer lock.Unlock()
	delete(clients, client)
}

func (h *handler) OnPing(client *gws.Conn, payload []byte) {
	_ = client.WritePong(payload)
}

func (h *handler) OnMessage(client *gws.Conn, message *gws.Message) {
	defer message.Close()
	if h.echoes {
		_ = client.WriteMessage(message.Opcode, message.Bytes())
	} else {
		toAll(message.Opcode, message.Bytes())
	}
}

func toAll(opcode gws.Opcode, payload []byte) {
	broadcaster := gws.NewBroadcaster(opcode, payload)
	defer broadcaster.Close()
	lock.Lock()
	defer lock.Unlock()
	for client := range clients {
		_ = broadcaster.Broadcast(client)
	}
}

func main() {
	mode := flag.String("mode", "echo", "echo or chat")
	port := flag.Int("port", 0, "0 picks one")
	flag.Parse()
	// Its backlog is the system's greatest, and TCP_NODELAY is on.
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-gws:", err)
		os.Exit(1)
	}
	fmt.Printf("ready http://%s\n", listener.Addr())
	server := gws.NewServer(&handler{echoes: *mode == "echo"}, &gws.ServerOption{
		ReadBufferSize:     readBytes,
		ReadMaxPayloadSize: payloadBytesMax,
	})
	if err := server.RunListener(listener); err != nil {
		fmt.Fprintln(os.Stderr, "go-gws:", err)
		os.Exit(1)
	}
}
