// The bare loops: what the kernel costs, with as little on top as still lets a WebSocket client drive it.
//
// They answer the upgrade blindly, take whole client frames, never look at their content, and close on a
// close frame. No ping, no fragment, no limit except the size of a frame: don't put this on a network.
// Invariants: one send in flight per connection; a shared frame lives until its last send is done; a
// connection that still has a send in flight skips a broadcast as a whole (counted in `skipped`).
#ifndef BARE_H
#define BARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CONNECTIONS_MAX = 20000, FRAME_BYTES_MAX = 16 << 20, HEAD_BYTES_MAX = 8192, RINGS_MAX = 128 };

enum mode { ECHO, CHAT, ROOMS };
enum io { IO_EPOLL, IO_SENDFILE, IO_URING, IO_DIRECT };

struct options {
    enum mode mode;
    enum io io;
    int port;
    int lowat_bytes;  // TCP_NOTSENT_LOWAT on the listener, 0: not set
    unsigned rings;   // direct only
};
extern struct options options;
extern uint64_t skipped;

// Bytes to send, shared by reference between connections of one thread.
struct frame {
    unsigned refs;
    int memfd;  // -1 where the bytes live in `data`
    size_t len;
    struct frame *next;  // queue of one connection (echo only)
    uint8_t data[];
};

// What has been received and isn't a whole head or frame yet.
struct partial {
    size_t len, cap;
    uint8_t data[];
};

enum state { FREE = 0, HEAD, OPEN };

struct frame *frame_new(size_t len);
struct frame *frame_of_bytes(const uint8_t *bytes, size_t len);
void frame_release(struct frame *frame);
// An unmasked text frame around `payload`; in a memfd where `in_memfd`.
struct frame *frame_of_payload(const uint8_t *payload, size_t len, uint8_t opcode, bool in_memfd);

// One client frame at `bytes`: its payload is unmasked in place. Returns the bytes it takes, 0 where more
// are needed, -1 where it is none or too large; `needed` is the size of the whole once known, else 0.
struct ws_head { uint8_t opcode; size_t head, payload, needed; };
ssize_t ws_frame(uint8_t *bytes, size_t len, struct ws_head *head);

// Turns the whole client frames in `bytes` into server frames, in place: the mask bit goes, the four key
// bytes go. `in` counts the bytes taken, `out` the bytes to send from `bytes`. False: close.
bool ws_echo_in_place(uint8_t *bytes, size_t len, size_t *in, size_t *out);

// The answer to a whole request head, or NULL; `head_len` is 0 while it isn't complete.
struct frame *ws_accept(const uint8_t *bytes, size_t len, size_t *head_len);

// The connections that have subscribed to a room, in the order in which they did. They never leave it.
struct room {
    unsigned *members;
    size_t count, cap;
};

// Handles a text of connection `conn`. The room of a publication, whose text is by then the delivery; else NULL.
const struct room *room_of(unsigned conn, uint8_t *text, size_t len);

bool partial_append(struct partial **partial, const uint8_t *bytes, size_t len);
void partial_consume(struct partial **partial, size_t len);

int listen_at(int port);
void announce(int listener);   // prints the ready line
void die(const char *what);

void run_epoll(void);
void run_uring(void);

#endif
