// gobwas/ws as a peer: echo and chat (each message to everybody, sender included), by the documented interface, a goroutine
// for each connection. What goes to everybody is a frame compiled once.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
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

// One connection. Where messages go to everybody, a goroutine writes as long as something waits, so that a slow client holds
// up nobody and an idle one costs nothing.
type client struct {
	conn    net.Conn
	lock    sync.Mutex
	waiting [][]byte
	spare   [][]byte
	writing bool
}

func (c *client) send(frame []byte) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if len(c.waiting) == waitingMax {
		c.conn.Close()
		return
	}
	c.waiting = append(c.waiting, frame)
	if !c.writing {
		c.writing = true
		go c.write()
	}
}

// What has gathered leaves by one system call.
func (c *client) write() {
	for {
		c.lock.Lock()
		frames := c.waiting
		if len(frames) == 0 {
			c.writing = false
			c.lock.Unlock()
			return
		}
		c.waiting = c.spare[:0]
		c.lock.Unlock()
		if len(frames) == 1 {
			_, _ = c.conn.Write(frames[0])
		} else {
			buffers := net.Buffers(frames)
			_, _ = buffers.WriteTo(c.conn)
		}
		clear(frames)
		c.spare = frames
	}
}

func (c *client) read(mode string) {
	reader := wsutil.Reader{Source: bufio.NewReaderSize(c.conn, readBytes), State: ws.StateServerSide}
	control := wsutil.ControlFrameHandler(c.conn, ws.StateServerSide)
	reader.OnIntermediate = control
	var message, head bytes.Buffer
	for {
		header, err := reader.NextFrame()
		if err != nil {
			return
		}
		if header.OpCode.IsControl() {
			if control(header, &reader) != nil {
				return
			}
			continue
		}
		if header.Length > payloadBytesMax {
			return
		}
		message.Reset()
		// bytes.Buffer wants this much room to see the end.
		message.Grow(int(header.Length) + bytes.MinRead)
		if _, err := message.ReadFrom(io.LimitReader(&reader, payloadBytesMax)); err != nil {
			return
		}
		if mode == "echo" {
			head.Reset()
			_ = ws.WriteHeader(&head, ws.Header{Fin: true, OpCode: header.OpCode, Length: int64(message.Len())})
			frame := net.Buffers{head.Bytes(), message.Bytes()}
			if _, err := frame.WriteTo(c.conn); err != nil {
				return
			}
		} else {
			toAll(header.OpCode, message.Bytes())
		}
	}
}

func serve(conn net.Conn, mode string) {
	defer conn.Close()
	if _, err := ws.Upgrade(conn); err != nil {
		return
	}
	c := &client{conn: conn}
	lock.Lock()
	clients[c] = struct{}{}
	lock.Unlock()
	c.read(mode)
	lock.Lock()
	delete(clients, c)
	lock.Unlock()
}

func toAll(opcode ws.OpCode, payload []byte) {
	frame, err := ws.CompileFrame(ws.NewFrame(opcode, true, payload))
	if err != nil {
		return
	}
	lock.Lock()
	defer lock.Unlock()
	for c := range clients {
		c.send(frame)
	}
}

func main() {
	mode := flag.String("mode", "echo", "echo or chat")
	port := flag.Int("port", 0, "0 picks one")
	flag.Parse()
	// Its backlog is the system's greatest, and TCP_NODELAY is on.
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-gobwas:", err)
		os.Exit(1)
	}
	fmt.Printf("ready http://%s\n", listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "go-gobwas:", err)
			os.Exit(1)
		}
		go serve(conn, *mode)
	}
}
