// A backend with the Go package for the tests: /hooks answers hooks, /call makes a call, /verify checks a signature.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	stentor "stentor/backend"
)

type fields = stentor.Fields

var hooks = &stentor.Hooks{
	Secrets: []string{os.Getenv("HOOK_SECRET")},
	Connect: func(question *stentor.Question, answer *stentor.Answer) error {
		if question.Client.Token == "ada-token" {
			answer.Allow(fields{"user": "42", "info": fields{"name": "Ada"}})
		} else if question.Client.Token == "greeted" {
			answer.Allow().Emit("welcome", nil, fields{"rooms": []string{question.Connection.Session}})
		} else if question.Client.Token != "undecided" {
			answer.Deny("token_invalid", "log in first")
		}
		return nil
	},
	Subscribe: func(question *stentor.Question, answer *stentor.Answer) error {
		if question.Room != "secret" || slices.Contains(question.Connection.Rooms, "staff") {
			answer.Allow(fields{"ttl": 60})
		}
		return nil
	},
	Events: map[string]stentor.Handler{
		"join": func(question *stentor.Question, answer *stentor.Answer) error {
			var room string
			if err := question.Argument(0, &room); err != nil {
				return err
			}
			answer.Join(room).Ack(fields{"joined": room}).Emit("joined", []any{question.User.ID}, fields{"rooms": []string{room}, "except_sender": true}).Emit("welcome", nil, nil)
			return nil
		},
		"leave": func(question *stentor.Question, answer *stentor.Answer) error {
			for at := range question.Arguments {
				var room string
				if err := question.Argument(at, &room); err != nil {
					return err
				}
				answer.Leave(room)
			}
			answer.Disconnect()
			return nil
		},
		"fail": func(*stentor.Question, *stentor.Answer) error { panic("as the test wants it") },
		"unencodable": func(_ *stentor.Question, answer *stentor.Answer) error {
			answer.Ack(make(chan int))
			return nil
		},
	},
	Notice: func(notice json.RawMessage, _ string) error {
		if bytes.Contains(notice, []byte(`"resync"`)) {
			panic("as the test wants it")
		}
		return nil
	},
}

var timeout, _ = time.ParseDuration(os.Getenv("STENTOR_TIMEOUT_MS") + "ms")
var client = &stentor.Client{URL: os.Getenv("STENTOR_ADMIN"), Token: os.Getenv("STENTOR_TOKEN"), Timeout: timeout}

func call(given []json.RawMessage) (fields, error) {
	ctx := context.Background()
	at := func(n int, into any) {
		if n < len(given) {
			if err := json.Unmarshal(given[n], into); err != nil {
				panic(err)
			}
		}
	}
	var method, text string
	var first, second fields
	var value any
	var all []fields
	var names []string
	at(0, &method)
	switch method {
	case "publishAll":
		at(1, &all)
		return client.PublishAll(ctx, all)
	case "publish":
		at(1, &text)
		at(2, &value)
		at(3, &second)
		return client.Publish(ctx, text, value, second)
	case "push", "remove":
		options := struct {
			Sequence int64
			Type     string
		}{Sequence: -1}
		at(1, &text)
		at(2, &value)
		at(3, &options)
		if method == "remove" {
			return client.Remove(ctx, text, -1)
		}
		if html, isText := value.(string); isText && options.Type != "" {
			value = []byte(html)
		}
		return client.Push(ctx, text, value, options.Sequence, options.Type)
	}
	at(1, &first)
	switch method {
	case "emit":
		at(2, &text)
		var args []any
		for n := 3; n < len(given); n++ {
			var arg any
			at(n, &arg)
			args = append(args, arg)
		}
		return client.Emit(ctx, first, text, args...)
	case "join":
		at(2, &names)
		return client.Join(ctx, first, names...)
	case "leave":
		at(2, &names)
		return client.Leave(ctx, first, names...)
	case "revoke":
		return client.Revoke(ctx, first)
	}
	at(2, &second)
	if method == "sessions" {
		return client.Sessions(ctx, first, second)
	}
	return client.Disconnect(ctx, first, second)
}

func main() {
	log.SetOutput(io.Discard)
	http.Handle("/hooks", hooks)
	http.HandleFunc("/call", func(w http.ResponseWriter, r *http.Request) {
		var given []json.RawMessage
		_ = json.NewDecoder(r.Body).Decode(&given)
		result, err := call(given)
		answer := fields{"result": result}
		var failure *stentor.Error
		if errors.As(err, &failure) {
			answer = fields{"error": fields{"status": failure.Status, "code": failure.Code, "retry": failure.Retry(), "published": failure.Published}}
		} else if err != nil {
			panic(err)
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
	http.HandleFunc("/verify", func(w http.ResponseWriter, r *http.Request) {
		var given struct {
			Header, Body string
			Secret       any
		}
		_ = json.NewDecoder(r.Body).Decode(&given)
		var secrets []string
		if one, isOne := given.Secret.(string); isOne {
			secrets = []string{one}
		} else {
			for _, one := range given.Secret.([]any) {
				secrets = append(secrets, one.(string))
			}
		}
		_ = json.NewEncoder(w).Encode(fields{"result": stentor.Verify(given.Header, []byte(given.Body), time.Now(), secrets...)})
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("listening on", listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, nil))
}
