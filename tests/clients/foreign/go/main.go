// r3labs/sse: see ../README.md.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/r3labs/sse/v2"
	"gopkg.in/cenkalti/backoff.v1"
)

var output = struct {
	sync.Mutex
	*json.Encoder
}{Encoder: json.NewEncoder(os.Stdout)}

func report(fields map[string]any) {
	output.Lock()
	defer output.Unlock()
	output.Encode(fields)
}

// A document may be larger than the library's default of 64 KiB.
const eventBytesMax = 1 << 20

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var command struct{ Do, URL string }
		if json.Unmarshal(lines.Bytes(), &command) != nil || command.Do != "connect" {
			continue
		}
		client := sse.NewClient(command.URL, sse.ClientMaxBufferSize(eventBytesMax))
		strategy := backoff.NewExponentialBackOff()
		strategy.InitialInterval = 100 * time.Millisecond
		strategy.MaxInterval = time.Second
		client.ReconnectStrategy = strategy
		client.OnConnect(func(*sse.Client) { report(map[string]any{"type": "open"}) })
		client.OnDisconnect(func(*sse.Client) { report(map[string]any{"type": "closed"}) })
		go func() {
			err := client.SubscribeRaw(func(event *sse.Event) {
				report(map[string]any{"type": "message", "name": string(event.Event), "data": string(event.Data), "id": string(event.ID)})
			})
			// It has given up.
			report(map[string]any{"type": "final", "error": err})
		}()
	}
}
