package stentor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Hooks whose signature is older are refused.
const signatureAgeMax = 300 * time.Second

// A hook's request is at most as long: Stentor sends up to 100 questions.
const requestBytesMax = 32 << 20

var signaturePattern = regexp.MustCompile(`^t=([0-9]{1,15}),v1=([0-9a-f]{64})$`)

// Verify says whether a hook's request is Stentor's: its Stentor-Signature, its body as received, and the secrets that are accepted.
func Verify(signature string, body []byte, now time.Time, secrets ...string) bool {
	match := signaturePattern.FindStringSubmatch(signature)
	if match == nil {
		return false
	}
	seconds, _ := strconv.ParseInt(match[1], 10, 64)
	if age := now.Sub(time.Unix(seconds, 0)); age > signatureAgeMax || age < -signatureAgeMax {
		return false
	}
	given, _ := hex.DecodeString(match[2])
	isKnown := false
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(match[1] + "."))
		mac.Write(body)
		isKnown = secret != "" && hmac.Equal(mac.Sum(nil), given) || isKnown
	}
	return isKnown
}

// User is a user that a token or a connect hook has confirmed.
type User struct{ ID, Issuer string }

// Question is what Stentor asks. Client is what the client says of itself: never trust it without a check.
type Question struct {
	ID         json.Number
	Hook       string
	Connection struct {
		Session, Protocol, Namespace, Address string
		// Rooms of the session, if `rooms_max` of [[hooks]] is above 0, and whether it is in more.
		Rooms     []string
		MoreRooms bool `json:"more_rooms"`
	}
	User   *User
	Info   json.RawMessage
	Client struct {
		Origin, Traceparent, Token string
		UserAgent                  string `json:"user_agent"`
	}
	Room, Feed  string
	Event       string
	Arguments   []json.RawMessage
	Attachments [][]byte
	Acknowledge bool
}

// Argument decodes an argument of the event. It is an error if there is none.
func (q *Question) Argument(at int, into any) error {
	if at >= len(q.Arguments) {
		return fmt.Errorf("the event has %d arguments", len(q.Arguments))
	}
	return json.Unmarshal(q.Arguments[at], into)
}

// Answer is the answer to a question. Without Allow, clients may not connect, subscribe or publish; events are accepted without it.
type Answer struct{ fields Fields }

// Allow permits the action. Fields are "user", "info", "permissions", "ttl".
func (a *Answer) Allow(fields ...Fields) *Answer {
	delete(a.fields, "code")
	delete(a.fields, "message")
	delete(a.fields, "retry")
	for _, some := range fields {
		for name, value := range some {
			a.fields[name] = value
		}
	}
	return a.set("allow", true)
}

// Deny refuses the action, with a code of a-z, 0-9 and _, and a message for people unless it is empty.
func (a *Answer) Deny(code, message string) *Answer {
	delete(a.fields, "message")
	if message != "" {
		a.set("message", message)
	}
	return a.set("allow", false).set("code", code)
}

// Join makes the client a member of rooms.
func (a *Answer) Join(rooms ...string) *Answer { return add(a, "join", rooms) }

// Leave ends the client's membership in rooms.
func (a *Answer) Leave(rooms ...string) *Answer { return add(a, "leave", rooms) }

// Ack acknowledges the event.
func (a *Answer) Ack(args ...any) *Answer { return a.set("ack", append([]any{}, args...)) }

// Emit sends an event. A target has "rooms" (also ids of sessions), "all", "except_sender" and "volatile"; without rooms, the client
// itself receives it.
func (a *Answer) Emit(event string, args []any, target Fields) *Answer {
	message := Fields{"event": event, "arguments": append([]any{}, args...)}
	for name, value := range target {
		message[name] = value
	}
	return add(a, "emit", []Fields{message})
}

// Disconnect ends the session.
func (a *Answer) Disconnect() *Answer { return a.set("disconnect", true) }

func (a *Answer) set(name string, value any) *Answer {
	a.fields[name] = value
	return a
}

func add[T any](a *Answer, name string, more []T) *Answer {
	before, _ := a.fields[name].([]T)
	return a.set(name, append(before, more...))
}

// Handler answers a question. An error denies this question only, and is logged.
type Handler func(*Question, *Answer) error

// Hooks is an http.Handler that answers hooks.
type Hooks struct {
	// Secrets are the secret of [[hooks]] in stentor.toml, or several while it changes.
	Secrets                     []string
	Connect, Subscribe, Publish Handler
	// Events are handlers by the event's name, and Event is that of all others.
	Events map[string]Handler
	Event  Handler
	// Notice gets each notice, in order.
	Notice func(notice json.RawMessage, node string) error
}

func (h *Hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, response := 413, any(Fields{"message": "the body is too long"})
	if body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, requestBytesMax)); err == nil {
		status, response = h.Handle(r.Header.Get("Stentor-Signature"), body)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(response)
}

// Handle answers a request, from its signature and its body as received: the status, and what is encoded as the body.
func (h *Hooks) Handle(signature string, body []byte) (int, any) {
	if strings.Join(h.Secrets, "") == "" {
		log.Print("stentor: Hooks.Secrets is empty: it has the secret of [[hooks]] in stentor.toml")
		return 500, Fields{"message": "the backend has no secret for hooks"}
	}
	if !Verify(signature, body, time.Now(), h.Secrets...) {
		return 401, Fields{"message": "the signature is missing, wrong or too old"}
	}
	var request struct {
		Node      string
		Questions []*Question
		Notices   []json.RawMessage
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return 400, Fields{"message": "the body isn't JSON, or no request of a hook"}
	}
	for _, notice := range request.Notices {
		if h.Notice == nil {
			break
		}
		if err := guarded(func() error { return h.Notice(notice, request.Node) }); err != nil {
			log.Printf("stentor: the handler of notices has failed: %v", err)
			return 500, Fields{"message": "the backend has failed"}
		}
	}
	answers := make([]json.RawMessage, len(request.Questions))
	var all sync.WaitGroup
	for at, question := range request.Questions {
		all.Add(1)
		go func(at int, question *Question) {
			defer all.Done()
			answers[at] = h.answer(question)
		}(at, question)
	}
	all.Wait()
	return 200, Fields{"answers": answers}
}

func (h *Hooks) answer(question *Question) (encoded json.RawMessage) {
	answer := &Answer{Fields{}}
	err := guarded(func() error { return h.handled(question, answer) })
	if err == nil {
		answer.set("id", question.ID)
		encoded, err = json.Marshal(answer.fields)
	}
	if err != nil {
		log.Printf("stentor: the handler of a hook has failed: %s %s: %v", question.Hook, question.Event, err)
		encoded, _ = json.Marshal(Fields{"id": question.ID, "allow": false, "code": "internal", "message": "the backend has failed"})
	}
	return encoded
}

// A panic of run as an error.
func guarded(run func() error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	return run()
}

func (h *Hooks) handled(question *Question, answer *Answer) error {
	isEvent := question.Hook == "event"
	handler := map[string]Handler{"connect": h.Connect, "subscribe": h.Subscribe, "publish": h.Publish, "event": h.Event}[question.Hook]
	if own := h.Events[question.Event]; isEvent && own != nil {
		handler = own
	}
	switch {
	case handler == nil && isEvent:
		answer.Deny("unknown_event", "")
	case handler == nil:
		answer.Deny("not_allowed", "")
	default:
		if !isEvent {
			answer.Deny("not_allowed", "")
		}
		return handler(question, answer)
	}
	return nil
}
