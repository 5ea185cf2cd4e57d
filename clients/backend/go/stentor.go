// Package stentor has the admin API and the hooks of Stentor for backends. docs/admin-api.md and docs/hooks.md describe the fields.
package stentor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Fields are those of a request or an answer, by their names in the documents.
type Fields = map[string]any

// Error is a failed call.
type Error struct {
	// Status is that of HTTP, 0 without an answer.
	Status int
	// Code is for programs.
	Code string
	// Message is for people.
	Message string
	// Published is the number of messages before the invalid one, of PublishAll.
	Published int
}

func (e *Error) Error() string { return fmt.Sprintf("stentor: %s: %s", e.Code, e.Message) }

// Retry says that the same call may succeed later.
func (e *Error) Retry() bool {
	return e.Status == 0 || e.Status == 408 || e.Status == 503 || e.Code == "in_progress"
}

// Client calls the admin API. A target names sessions: "rooms", "sessions", "namespace", "except".
type Client struct {
	// URL of the admin port, http://127.0.0.1:8001 if it is empty.
	URL string
	// Token of the admin port, if it has one.
	Token string
	// Timeout of a call. Emit with "ack" has its timeout in addition. If it is zero: 10 s, or with HTTP, that of HTTP alone.
	Timeout time.Duration
	// HTTP makes the requests; without it, one without redirects and proxies of the environment.
	HTTP *http.Client
}

var ordinary = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	// The default transport uses the proxies of the environment, which would get the token.
	Transport: &http.Transport{IdleConnTimeout: 90 * time.Second},
}

// Publish publishes data to a room. More fields are "event", "namespace", "idempotency_key", "volatile".
func (c *Client) Publish(ctx context.Context, room string, data any, fields ...Fields) (Fields, error) {
	return c.post(ctx, "publish", append(fields, Fields{"room": room, "data": data})...)
}

// PublishAll publishes messages in order, until the first invalid one.
func (c *Client) PublishAll(ctx context.Context, messages []Fields) (Fields, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	for _, message := range messages {
		if err := encoder.Encode(message); err != nil {
			return nil, err
		}
	}
	return c.call(ctx, "POST", "publish", body.Bytes(), "application/x-ndjson", 0)
}

// Emit sends an event to sessions.
func (c *Client) Emit(ctx context.Context, target Fields, event string, args ...any) (Fields, error) {
	if args == nil {
		args = []any{}
	}
	return c.post(ctx, "emit", target, Fields{"event": event, "args": args})
}

// Join makes sessions members of rooms.
func (c *Client) Join(ctx context.Context, target Fields, rooms ...string) (Fields, error) {
	return c.post(ctx, "join", target, Fields{"join": rooms})
}

// Leave ends the membership of sessions in rooms.
func (c *Client) Leave(ctx context.Context, target Fields, rooms ...string) (Fields, error) {
	return c.post(ctx, "leave", target, Fields{"leave": rooms})
}

// Disconnect ends sessions. Another field is "close".
func (c *Client) Disconnect(ctx context.Context, target Fields, fields ...Fields) (Fields, error) {
	return c.post(ctx, "disconnect", append(fields, target)...)
}

// Sessions lists sessions. Another field is "limit".
func (c *Client) Sessions(ctx context.Context, target Fields, fields ...Fields) (Fields, error) {
	return c.post(ctx, "sessions", append(fields, target)...)
}

// Revoke makes tokens void.
func (c *Client) Revoke(ctx context.Context, fields Fields) (Fields, error) {
	return c.post(ctx, "revocations", fields)
}

// Push sets the document of a feed: a value, or bytes with another type than "application/json". A sequence below 0 means none.
func (c *Client) Push(ctx context.Context, key string, document any, sequence int64, contentType string) (Fields, error) {
	body, isRaw := document.([]byte)
	if contentType == "" || contentType == "application/json" {
		isRaw, contentType = false, "application/json"
	}
	if !isRaw {
		var err error
		if body, err = json.Marshal(document); err != nil {
			return nil, err
		}
	}
	return c.call(ctx, "PUT", feed(key, sequence), body, contentType, 0)
}

// Remove deletes the document of a feed. A sequence below 0 means none.
func (c *Client) Remove(ctx context.Context, key string, sequence int64) (Fields, error) {
	return c.call(ctx, "DELETE", feed(key, sequence), nil, "", 0)
}

func (c *Client) post(ctx context.Context, operation string, parts ...Fields) (Fields, error) {
	all := Fields{}
	for _, part := range parts {
		for name, value := range part {
			all[name] = value
		}
	}
	body, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	return c.call(ctx, "POST", operation, body, "application/json", wait(all["ack"]))
}

// wait is the time that Stentor waits for acknowledgements before it answers. It refuses more than 60 s, and what isn't a duration.
func wait(ack any) time.Duration {
	var fields struct{ Timeout string }
	text, _ := json.Marshal(ack)
	_ = json.Unmarshal(text, &fields)
	timeout, _ := time.ParseDuration(strings.ReplaceAll(fields.Timeout, " ", ""))
	return max(0, min(timeout, time.Minute))
}

func (c *Client) call(ctx context.Context, method, path string, body []byte, contentType string, wait time.Duration) (Fields, error) {
	base := strings.TrimRight(c.URL, "/")
	if base == "" {
		base = "http://127.0.0.1:8001"
	}
	client, timeout := c.HTTP, c.Timeout
	if client == nil {
		client = ordinary
		if timeout == 0 {
			timeout = 10 * time.Second
		}
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout+wait)
		defer cancel()
	}
	request, err := http.NewRequestWithContext(ctx, method, base+"/api/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, &Error{Code: "unreachable", Message: err.Error()}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, &Error{Code: "unreachable", Message: err.Error()}
	}
	var failure struct {
		Code, Message string
		Published     int
		Error         *struct{ Code, Message string }
	}
	isJSON := json.Unmarshal(text, &failure) == nil
	if isJSON && response.StatusCode == 200 && failure.Error == nil {
		var answer Fields
		return answer, json.Unmarshal(text, &answer)
	}
	result := &Error{Status: response.StatusCode, Code: failure.Code, Message: failure.Message, Published: failure.Published}
	if failure.Error != nil {
		result.Code, result.Message = failure.Error.Code, failure.Error.Message
	}
	if result.Code == "" {
		result.Code, result.Message = "unexpected", string(text[:min(len(text), 200)])
	}
	return nil, result
}

func feed(key string, sequence int64) string {
	parts := strings.Split(key, "/")
	for at, part := range parts {
		parts[at] = url.PathEscape(part)
	}
	path := "feeds/" + strings.Join(parts, "/")
	if sequence >= 0 {
		path += "?sequence=" + strconv.FormatInt(sequence, 10)
	}
	return path
}
