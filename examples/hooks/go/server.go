// A backend for Stentor's hooks: it says who clients are, and what their events do. docs/hooks.md
//
//	HOOK_SECRET=… go run . [PORT]
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	stentor "stentor/backend"
)

// A real backend looks sessions up.
var users = map[string]string{"ada-token": "42", "bob-token": "43"}

func connect(question *stentor.Question, answer *stentor.Answer) error {
	if user, isKnown := users[question.Client.Token]; isKnown {
		answer.Allow(stentor.Fields{"user": user})
	} else {
		answer.Deny("token_invalid", "log in first")
	}
	return nil
}

func join(question *stentor.Question, answer *stentor.Answer) error {
	var room string
	if err := question.Argument(0, &room); err != nil {
		return err
	}
	user := question.User
	if user == nil || room != "user:"+user.ID {
		answer.Deny("not_allowed", room+" isn't yours")
		return nil
	}
	answer.Join(room).Ack(stentor.Fields{"joined": room}).Emit("joined", []any{user.ID}, stentor.Fields{"rooms": []string{room}})
	return nil
}

func main() {
	secret := os.Getenv("HOOK_SECRET")
	if secret == "" {
		log.Fatal("HOOK_SECRET is missing: it is the secret of [[hooks]] in stentor.toml")
	}
	port := "9000"
	if len(os.Args) > 1 {
		port = os.Args[1]
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr().(*net.TCPAddr).Port)
	hooks := &stentor.Hooks{Secrets: []string{secret}, Connect: connect, Events: map[string]stentor.Handler{"join": join}}
	log.Fatal(http.Serve(listener, hooks))
}
