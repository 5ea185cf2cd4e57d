// The limit of readiness: edge-triggered epoll, registered once, send() or sendfile() from a memfd.
#define _GNU_SOURCE
#include "bare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RECEIVE_BYTES = 256 << 10, EVENTS = 1024 };

struct conn {
    enum state state;
    bool doomed;  // closes when `out` has left
    size_t sent;  // of `out`
    struct frame *out;
    struct partial *in;
};

static struct conn conns[CONNECTIONS_MAX];
static int top;  // one past the highest descriptor seen
static int epoll_fd, listener;
static uint8_t receive_buffer[RECEIVE_BYTES];

static void end(int fd) {
    struct conn *c = &conns[fd];
    if (c->state == FREE) return;
    if (c->out) frame_release(c->out);
    free(c->in);
    *c = (struct conn){0};
    close(fd);
}

// Sends what is left of `out`; false where the connection ended.
static bool flush(int fd) {
    struct conn *c = &conns[fd];
    while (c->out && c->sent < c->out->len) {
        size_t left = c->out->len - c->sent;
        ssize_t n;
        if (c->out->memfd >= 0) {
            off_t at = (off_t)c->sent;
            n = sendfile(fd, c->out->memfd, &at, left);
        } else {
            n = send(fd, c->out->data + c->sent, left, MSG_DONTWAIT | MSG_NOSIGNAL);
        }
        if (n < 0 && errno == EAGAIN) return true;
        if (n < 0) {
            end(fd);
            return false;
        }
        c->sent += (size_t)n;
    }
    if (c->out) frame_release(c->out);
    c->out = NULL;
    c->sent = 0;
    if (c->doomed) {
        end(fd);
        return false;
    }
    return true;
}

static void send_to(int fd, struct frame *frame) {
    struct conn *c = &conns[fd];
    if (c->state != OPEN) return;
    if (c->out) {
        skipped++;
        return;
    }
    c->out = frame;
    frame->refs++;
    flush(fd);
}

static void broadcast(struct frame *frame) {
    for (int fd = 0; fd < top; fd++) send_to(fd, frame);
    frame_release(frame);
}

static struct frame *text_frame(const char *text) {
    return frame_of_payload((const uint8_t *)text, strlen(text), 1, false);
}

// Sends a publication to the members of its room one by one, then the acknowledgement.
static void handle_text(int fd, uint8_t *text, size_t len) {
    static struct frame *ok;
    if (!ok) ok = text_frame("{\"type\":\"ok\"}");
    const struct room *room = room_of((unsigned)fd, text, len);
    if (room) {
        struct frame *delivery = frame_of_payload(text, len, 1, false);
        for (size_t i = 0; i < room->count; i++) send_to((int)room->members[i], delivery);
        frame_release(delivery);
    }
    send_to(fd, ok);
}

// Takes what is whole out of `bytes`; returns how much, -1 where the connection ended.
static ssize_t take(int fd, uint8_t *bytes, size_t len) {
    struct conn *c = &conns[fd];
    size_t done = 0;
    if (c->state == HEAD) {
        size_t head_len;
        struct frame *answer = ws_accept(bytes, len, &head_len);
        if (!head_len && len < HEAD_BYTES_MAX) return 0;
        if (!answer) return end(fd), -1;
        c->state = OPEN;
        c->out = answer;
        if (!flush(fd)) return -1;
        done = head_len;
        static struct frame *welcome;
        if (!welcome) welcome = text_frame("{\"type\":\"welcome\"}");
        if (options.mode == ROOMS) send_to(fd, welcome);
    }
    if (options.mode == ECHO) {
        size_t in, out;
        bool goes_on = ws_echo_in_place(bytes + done, len - done, &in, &out);
        if (out) {
            ssize_t n = send(fd, bytes + done, out, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN) return end(fd), -1;
            if (n < 0) n = 0;
            if ((size_t)n < out) c->out = frame_of_bytes(bytes + done + n, out - (size_t)n);
        }
        if (!goes_on && c->out) c->doomed = true;
        else if (!goes_on) return end(fd), -1;
        return (ssize_t)(done + in);
    }
    for (;;) {
        struct ws_head head;
        ssize_t taken = ws_frame(bytes + done, len - done, &head);
        if (taken < 0 || (taken > 0 && head.opcode == 8)) return end(fd), -1;
        if (taken == 0) return (ssize_t)done;
        if (head.opcode <= 2 && options.mode == ROOMS)
            handle_text(fd, bytes + done + head.head, head.payload);
        else if (head.opcode <= 2)
            broadcast(frame_of_payload(bytes + done + head.head, head.payload, head.opcode,
                                       options.io == IO_SENDFILE));
        if (c->state == FREE) return -1;
        done += (size_t)taken;
    }
}

static void receive(int fd) {
    struct conn *c = &conns[fd];
    // An echo that isn't out yet stops the reading; flush() comes back here.
    while (!(options.mode == ECHO && c->out)) {
        ssize_t n = recv(fd, receive_buffer, sizeof receive_buffer, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) return end(fd);
        size_t got = (size_t)n;
        if (c->in) {
            if (!partial_append(&c->in, receive_buffer, got)) return end(fd);
            ssize_t taken = take(fd, c->in->data, c->in->len);
            if (taken < 0) return;
            if (taken) partial_consume(&c->in, (size_t)taken);
        } else {
            ssize_t taken = take(fd, receive_buffer, got);
            if (taken < 0) return;
            if ((size_t)taken < got)
                partial_append(&c->in, receive_buffer + taken, got - (size_t)taken);
        }
        // Less than asked for: the queue was empty, and the next edge will say when it isn't.
        if (got < sizeof receive_buffer) return;
    }
}

static void accept_all(void) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        if (fd >= CONNECTIONS_MAX) {
            close(fd);
            continue;
        }
        conns[fd] = (struct conn){.state = HEAD};
        if (fd >= top) top = fd + 1;
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.fd = fd};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) end(fd);
    }
}

void run_epoll(void) {
    listener = listen_at(options.port);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) die("epoll_create1");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event) < 0) die("epoll_ctl");
    announce(listener);
    static struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(epoll_fd, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                accept_all();
            } else if (conns[fd].state != FREE) {
                bool waited = conns[fd].out != NULL;
                if (waited && events[i].events & EPOLLOUT && !flush(fd)) continue;
                // After a stalled echo there may be bytes whose edge has passed.
                if (events[i].events & ~(uint32_t)EPOLLOUT || waited) receive(fd);
            }
        }
    }
}
