// gorilla/websocket as a peer: echo and chat (each message to everybody, sender included), by the documented interface. What
// goes to everybody is a prepared message.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/gorilla/websocket"
)

const (
	payloadBytesMax = 16 << 20
	// A small message takes one read; a large one goes past the buffer.
	readBytes = 1024
	// A client that leaves more than these waiting is let go.
	waitingMax = 4096
)

var (
	lock    sync.Mutex
	clients = map[*client]struct{}{}
)

// One connection. The library wants a single writer: where messages go to everybody, a goroutine that is there as long as
// something waits, so that a slow client holds up nobody and an idle one costs nothing.
type client struct {
	conn    *websocket.Conn
	lock    sync.Mutex
	waiting []*websocket.PreparedMessage
	spare   []*websocket.PreparedMessage
	writing bool
}

func (c *client) send(message *websocket.PreparedMessage) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if len(c.waiting) == waitingMax {
		c.conn.Close()
		return
	}
	c.waiting = append(c.waiting, message)
	if !c.writing {
		c.writing = true
		go c.write()
	}
}

func (c *client) write() {
	for {
		c.lock.Lock()
		messages := c.waiting
		if len(messages) == 0 {
			c.writing = false
			c.lock.Unlock()
			return
		}
		c.waiting = c.spare[:0]
		c.lock.Unlock()
		for _, message := range messages {
			if c.conn.WritePreparedMessage(message) != nil {
				break
			}
		}
		clear(messages)
		c.spare = messages
	}
}

func (c *client) read(mode string) {
	defer func() {
		lock.Lock()
		delete(clients, c)
		lock.Unlock()
		c.conn.Close()
	}()
	var message bytes.Buffer
	for {
		kind, reader, err := c.conn.NextReader()
		if err != nil {
			return
		}
		message.Reset()
		if _, err := message.ReadFrom(reader); err != nil {
			return
		}
		if mode == "echo" {
			if c.conn.WriteMessage(kind, message.Bytes()) != nil {
				return
			}
		} else {
			toAll(kind, message.Bytes())
		}
	}
}

// A prepared message keeps a copy.
func toAll(kind int, payload []byte) {
	message, err := websocket.NewPreparedMessage(kind, payload)
	if err != nil {
		return
	}
	lock.Lock()
	defer lock.Unlock()
	for c := range clients {
		c.send(message)
	}
}

func main() {
	mode := flag.String("mode", "echo", "echo or chat")
	port := flag.Int("port", 0, "0 picks one")
	flag.Parse()
	// Its backlog is the system's greatest, and TCP_NODELAY is on.
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-gorilla:", err)
		os.Exit(1)
	}
	fmt.Printf("ready http://%s\n", listener.Addr())
	upgrader := websocket.Upgrader{
		ReadBufferSize:  readBytes,
		WriteBufferPool: &sync.Pool{},
		CheckOrigin:     func(*http.Request) bool { return true },
	}
	server := http.Server{Handler: http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		conn, err := upgrader.Upgrade(answer, request, nil)
		if err != nil {
			return
		}
		conn.SetReadLimit(payloadBytesMax)
		c := &client{conn: conn}
		lock.Lock()
		clients[c] = struct{}{}
		lock.Unlock()
		// The handler returns, so that the request can be forgotten.
		go c.read(*mode)
	})}
	if err := server.Serve(listener); err != nil {
		fmt.Fprintln(os.Stderr, "go-gorilla:", err)
		os.Exit(1)
	}
}
