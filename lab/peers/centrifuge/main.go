// Centrifuge as a peer, by the interfaces of its tutorial: in chat, clients are subscribed to one channel as they connect, and what
// one of them publishes goes to all; in rooms, who joins and leaves as well. In echo, the answer of a call is its data.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/centrifugal/centrifuge"
)

const (
	channel         = "room"
	payloadBytesMax = 16 << 20
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "centrifuge:", err)
		os.Exit(1)
	}
}

func main() {
	mode := flag.String("mode", "echo", "echo, chat or rooms")
	port := flag.Int("port", 0, "0 picks one")
	flag.Parse()
	// As much as other peers queue for a client at most.
	node, err := centrifuge.New(centrifuge.Config{ClientQueueMaxSize: payloadBytesMax})
	check(err)
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		reply := centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{}}
		if *mode == "chat" {
			reply.Subscriptions = map[string]centrifuge.SubscribeOptions{channel: {}}
		} else if *mode == "rooms" {
			reply.Subscriptions = map[string]centrifuge.SubscribeOptions{
				channel: {EmitPresence: true, EmitJoinLeave: true, PushJoinLeave: true},
			}
		}
		return reply, nil
	})
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnRPC(func(call centrifuge.RPCEvent, answer centrifuge.RPCCallback) {
			answer(centrifuge.RPCReply{Data: call.Data}, nil)
		})
		client.OnPublish(func(event centrifuge.PublishEvent, answer centrifuge.PublishCallback) {
			// Published here, it goes without a description of its sender, as with the other peers.
			result, err := node.Publish(event.Channel, event.Data)
			answer(centrifuge.PublishReply{Result: &result}, err)
		})
	})
	check(node.Run())
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", *port))
	check(err)
	fmt.Printf("ready http://%s\n", listener.Addr())
	check(http.Serve(listener, centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{
		MessageSizeLimit:   payloadBytesMax,
		UseWriteBufferPool: true,
	})))
}
