// gws as a peer: echo, chat (each message to everybody, sender included) and fanout (one document of B bytes, H times a
// second, to everybody), by the documented interface. Its broadcaster frames a message once and queues it at each client.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

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
	echoes, chats bool
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
	} else if h.chats {
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

func monotonicNs() int64 {
	var now syscall.Timespec
	const clockMonotonic = 1
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func fanout(bytes, hz int) {
	started := monotonicNs()
	for sent := int64(0); ; sent++ {
		due := started + sent*int64(time.Second)/int64(hz)
		time.Sleep(time.Duration(due - monotonicNs()))
		document := fmt.Appendf(make([]byte, 0, bytes), "%016d%020d", sent, due)
		for len(document) < bytes {
			document = append(document, 'x')
		}
		toAll(gws.OpcodeText, document)
	}
}

func main() {
	mode := flag.String("mode", "echo", "echo, chat or fanout")
	port := flag.Int("port", 0, "0 picks one")
	bytes := flag.Int("bytes", 1000, "of a document")
	hz := flag.Int("hz", 20, "documents a second")
	flag.Parse()
	// Its backlog is the system's greatest, and TCP_NODELAY is on.
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-gws:", err)
		os.Exit(1)
	}
	fmt.Printf("ready http://%s\n", listener.Addr())
	if *mode == "fanout" {
		go fanout(max(36, *bytes), max(1, *hz))
	}
	server := gws.NewServer(&handler{echoes: *mode == "echo", chats: *mode == "chat"}, &gws.ServerOption{
		ReadBufferSize:     readBytes,
		ReadMaxPayloadSize: payloadBytesMax,
	})
	if err := server.RunListener(listener); err != nil {
		fmt.Fprintln(os.Stderr, "go-gws:", err)
		os.Exit(1)
	}
}
