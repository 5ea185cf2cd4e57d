// The limit of completion: io_uring with multishot accept and receive into provided buffers, sends in
// batches of at most 1,024 per submit, one in flight per connection, MSG_WAITALL.
//
// `uring`: one ring, real descriptors. `direct`: several rings on the one thread, each with a table of direct
// descriptors, because the limit on descriptors counts per ring. The rings are filled one after the other, so that
// a broadcast walks the sockets in the order in which the kernel made them, and finds neighbours in memory.
// Invariants: a slot is reused only after its receive has ended and its send is done, so a completion
// never names a stranger; the bytes of a send stay put until its completion.
#define _GNU_SOURCE
#include "bare.h"

#include <errno.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SUBMIT_MAX = 1024, COMPLETIONS = 32768, BUFFER_BYTES = 4096, FILES_PER_RING = 14000 };
enum { GROUP = 1 };
enum kind { ACCEPT, RECEIVE, SEND, SHUTDOWN, CLOSE };

struct conn {
    uint8_t state;
    bool receiving, sending, doomed;
    int32_t buffer;           // the provided buffer being echoed, -1 without
    struct frame *out, *last; // being sent, and what waits behind it
    struct partial *in;
};

struct ring {
    struct io_uring io;
    struct io_uring_buf_ring *offers;
    uint8_t *buffers;
    unsigned buffers_count;
    unsigned held;  // direct descriptors in use
    unsigned top;  // one past the highest slot seen
    struct conn *conns;
    unsigned *starved, starved_count;  // slots whose receive ended for want of a buffer
};

static struct ring rings[RINGS_MAX];
static unsigned rings_count;
static int listener;
static bool accepting;  // an accept is armed

static uint64_t tag(enum kind kind, unsigned slot) { return (uint64_t)kind << 32 | slot; }

static struct io_uring_sqe *entry(struct ring *ring) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->io);
    if (!sqe) {
        io_uring_submit(&ring->io);
        sqe = io_uring_get_sqe(&ring->io);
        if (!sqe) die("submission queue");
    }
    return sqe;
}

// After the prep function, which clears the entry.
static void on_slot(struct io_uring_sqe *sqe, enum kind kind, unsigned slot) {
    sqe->user_data = tag(kind, slot);
    if (options.io == IO_DIRECT) sqe->flags |= IOSQE_FIXED_FILE;
}

// Arms the first ring that isn't full. A direct accept is armed for one connection, because it must not overfill its ring.
static void arm_accept(void) {
    struct ring *ring = rings;
    while (ring < rings + rings_count && options.io == IO_DIRECT && ring->held == FILES_PER_RING) ring++;
    accepting = ring < rings + rings_count;
    if (!accepting) return;
    struct io_uring_sqe *sqe = entry(ring);
    if (options.io == IO_DIRECT) {
        io_uring_prep_accept(sqe, listener, NULL, NULL, 0);
        // io_uring_prep_accept_direct() of liburing 2.3 turns this number into 0.
        sqe->file_index = IORING_FILE_INDEX_ALLOC;
    } else {
        io_uring_prep_multishot_accept(sqe, listener, NULL, NULL, SOCK_CLOEXEC);
    }
    sqe->user_data = tag(ACCEPT, 0);
}

static void arm_receive(struct ring *ring, unsigned slot) {
    struct io_uring_sqe *sqe = entry(ring);
    io_uring_prep_recv_multishot(sqe, (int)slot, NULL, 0, 0);
    on_slot(sqe, RECEIVE, slot);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = GROUP;
    ring->conns[slot].receiving = true;
}

static void give_back(struct ring *ring, int buffer) {
    io_uring_buf_ring_add(ring->offers, ring->buffers + (size_t)buffer * BUFFER_BYTES, BUFFER_BYTES,
                          (unsigned short)buffer, io_uring_buf_ring_mask(ring->buffers_count), 0);
    io_uring_buf_ring_advance(ring->offers, 1);
}

static void send_now(struct ring *ring, unsigned slot, const uint8_t *bytes, size_t len) {
    struct io_uring_sqe *sqe = entry(ring);
    io_uring_prep_send(sqe, (int)slot, bytes, len, MSG_WAITALL | MSG_NOSIGNAL);
    on_slot(sqe, SEND, slot);
    ring->conns[slot].sending = true;
}

static void end_if_idle(struct ring *ring, unsigned slot) {
    struct conn *c = &ring->conns[slot];
    if (!c->doomed || c->sending || c->receiving) return;
    free(c->in);
    *c = (struct conn){.buffer = -1};
    if (options.io == IO_DIRECT) {
        struct io_uring_sqe *sqe = entry(ring);
        io_uring_prep_close_direct(sqe, slot);
        sqe->user_data = tag(CLOSE, slot);
    } else {
        close((int)slot);
    }
}

// Ends the connection: a shutdown makes the receive and the send come back.
static void doom(struct ring *ring, unsigned slot) {
    struct conn *c = &ring->conns[slot];
    if (c->doomed) return;
    c->doomed = true;
    c->state = FREE;
    if (c->receiving || c->sending) {
        struct io_uring_sqe *sqe = entry(ring);
        io_uring_prep_shutdown(sqe, (int)slot, c->sending && c->receiving ? SHUT_RD : SHUT_RDWR);
        on_slot(sqe, SHUTDOWN, slot);
    }
    end_if_idle(ring, slot);
}

static void send_frame(struct ring *ring, unsigned slot, struct frame *frame) {
    struct conn *c = &ring->conns[slot];
    if (!c->sending) {
        c->out = c->last = frame;
        send_now(ring, slot, frame->data, frame->len);
    } else {
        if (c->out) c->last->next = frame;
        else c->out = frame;
        c->last = frame;
    }
}

static void broadcast(struct frame *frame) {
    for (unsigned r = 0; r < rings_count; r++) {
        struct ring *ring = &rings[r];
        for (unsigned slot = 0; slot < ring->top; slot++) {
            struct conn *c = &ring->conns[slot];
            if (c->state != OPEN) continue;
            if (c->sending) {
                skipped++;
                continue;
            }
            frame->refs++;
            c->out = frame;
            send_now(ring, slot, frame->data, frame->len);
        }
        if (r + 1 < rings_count) io_uring_submit(&ring->io);
    }
    frame_release(frame);
}

// Takes what is whole out of `bytes` and returns how much, -1 where the connection ends. What an echo has
// to send stands at `echo`, inside `bytes`.
static ssize_t take(struct ring *ring, unsigned slot, uint8_t *bytes, size_t len, uint8_t **echo,
                    size_t *echo_len) {
    struct conn *c = &ring->conns[slot];
    size_t done = 0;
    *echo_len = 0;
    if (c->state == HEAD) {
        size_t head_len;
        struct frame *answer = ws_accept(bytes, len, &head_len);
        if (!head_len && len < HEAD_BYTES_MAX) return 0;
        if (!answer) return -1;
        c->state = OPEN;
        send_frame(ring, slot, answer);
        done = head_len;
    }
    if (options.mode == ECHO) {
        size_t in;
        *echo = bytes + done;
        return ws_echo_in_place(bytes + done, len - done, &in, echo_len) ? (ssize_t)(done + in) : -1;
    }
    for (;;) {
        struct ws_head head;
        ssize_t taken = ws_frame(bytes + done, len - done, &head);
        if (taken < 0 || (taken > 0 && head.opcode == 8)) return -1;
        if (taken == 0) return (ssize_t)done;
        if (head.opcode <= 2)
            broadcast(frame_of_payload(bytes + done + head.head, head.payload, head.opcode, false));
        done += (size_t)taken;
    }
}

static void on_receive(struct ring *ring, unsigned slot, int res, unsigned flags) {
    struct conn *c = &ring->conns[slot];
    bool ended = !(flags & IORING_CQE_F_MORE);
    if (ended) c->receiving = false;
    if (res > 0) {
        int buffer = (int)(flags >> IORING_CQE_BUFFER_SHIFT);
        uint8_t *bytes = ring->buffers + (size_t)buffer * BUFFER_BYTES, *echo;
        size_t len = (size_t)res, echo_len = 0;
        ssize_t taken = -1;
        if (c->state == FREE) {
            taken = -1;
        } else if (c->in) {
            if (partial_append(&c->in, bytes, len))
                taken = take(ring, slot, c->in->data, c->in->len, &echo, &echo_len);
            if (taken > 0) {
                if (echo_len) send_frame(ring, slot, frame_of_bytes(echo, echo_len));
                partial_consume(&c->in, (size_t)taken);
            }
        } else {
            taken = take(ring, slot, bytes, len, &echo, &echo_len);
            if (taken >= 0 && (size_t)taken < len)
                partial_append(&c->in, bytes + taken, len - (size_t)taken);
            if (echo_len && taken >= 0) {
                if (c->sending) {
                    send_frame(ring, slot, frame_of_bytes(echo, echo_len));
                } else {
                    c->buffer = buffer;
                    send_now(ring, slot, echo, echo_len);
                    buffer = -1;
                }
            }
        }
        if (buffer >= 0) give_back(ring, buffer);
        if (taken < 0) doom(ring, slot);
        else if (ended) ring->starved[ring->starved_count++] = slot;
    } else if (res == -ENOBUFS && c->state != FREE) {
        ring->starved[ring->starved_count++] = slot;
    } else if (ended) {
        doom(ring, slot);
    }
    end_if_idle(ring, slot);
}

static void on_send(struct ring *ring, unsigned slot, int res) {
    struct conn *c = &ring->conns[slot];
    c->sending = false;
    if (c->buffer >= 0) {
        give_back(ring, c->buffer);
        c->buffer = -1;
    } else if (c->out) {
        struct frame *done = c->out;
        c->out = done->next;
        frame_release(done);
    }
    if (res < 0 || c->doomed) {
        while (c->out) {
            struct frame *next = c->out->next;
            frame_release(c->out);
            c->out = next;
        }
        doom(ring, slot);
        end_if_idle(ring, slot);
    } else if (c->out) {
        send_now(ring, slot, c->out->data, c->out->len);
    }
}

static void on_accept(struct ring *ring, int res, unsigned flags) {
    if (res >= 0) ring->held++;
    if (!(flags & IORING_CQE_F_MORE)) arm_accept();
    if (res < 0) return;
    unsigned slot = (unsigned)res;
    if (slot >= CONNECTIONS_MAX) {
        close(res);
        return;
    }
    ring->conns[slot] = (struct conn){.state = HEAD, .buffer = -1};
    if (slot >= ring->top) ring->top = slot + 1;
    arm_receive(ring, slot);
}

static void turn(struct ring *ring) {
    struct io_uring_cqe *batch[256];
    unsigned n;
    while ((n = io_uring_peek_batch_cqe(&ring->io, batch, 256))) {
        for (unsigned i = 0; i < n; i++) {
            unsigned slot = (unsigned)batch[i]->user_data, flags = batch[i]->flags;
            int res = batch[i]->res;
            switch ((enum kind)(batch[i]->user_data >> 32)) {
            case ACCEPT: on_accept(ring, res, flags); break;
            case RECEIVE: on_receive(ring, slot, res, flags); break;
            case SEND: on_send(ring, slot, res); break;
            case SHUTDOWN: break;
            case CLOSE:
                ring->held--;
                if (!accepting) arm_accept();
                break;
            }
        }
        io_uring_cq_advance(&ring->io, n);
    }
    while (ring->starved_count) {
        unsigned slot = ring->starved[--ring->starved_count];
        struct conn *c = &ring->conns[slot];
        if (c->state != FREE && !c->receiving) arm_receive(ring, slot);
    }
}

static void ring_open(struct ring *ring) {
    struct io_uring_params params = {.cq_entries = COMPLETIONS,
                                     .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                              IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL};
    int error = io_uring_queue_init_params(SUBMIT_MAX, &ring->io, &params);
    if (error < 0) {
        errno = -error;
        die("io_uring");
    }
    io_uring_register_ring_fd(&ring->io);
    if (options.io == IO_DIRECT && (error = io_uring_register_files_sparse(&ring->io, FILES_PER_RING)) < 0) {
        errno = -error;
        die("register files");
    }
    ring->buffers_count = options.io == IO_DIRECT ? 1024 : 8192;
    size_t offers_bytes = ring->buffers_count * sizeof(struct io_uring_buf);
    if (posix_memalign((void **)&ring->offers, 4096, offers_bytes)) die("memory");
    ring->buffers = malloc((size_t)ring->buffers_count * BUFFER_BYTES);
    ring->conns = calloc(CONNECTIONS_MAX, sizeof *ring->conns);
    ring->starved = calloc(CONNECTIONS_MAX, sizeof *ring->starved);
    if (!ring->buffers || !ring->conns || !ring->starved) die("memory");
    memset(ring->offers, 0, offers_bytes);
    struct io_uring_buf_reg reg = {.ring_addr = (uint64_t)(uintptr_t)ring->offers,
                                   .ring_entries = ring->buffers_count, .bgid = GROUP};
    if ((error = io_uring_register_buf_ring(&ring->io, &reg, 0)) < 0) {
        errno = -error;
        die("register buffers");
    }
    io_uring_buf_ring_init(ring->offers);
    for (unsigned i = 0; i < ring->buffers_count; i++) give_back(ring, (int)i);
}

void run_uring(void) {
    rings_count = options.io == IO_DIRECT ? options.rings : 1;
    listener = listen_at(options.port);
    announce(listener);
    for (unsigned r = 0; r < rings_count; r++) ring_open(&rings[r]);
    arm_accept();
    if (rings_count == 1) {
        for (;;) {
            io_uring_submit_and_wait(&rings[0].io, 1);
            turn(&rings[0]);
        }
    }
    // Several rings: one eventfd tells that a ring has deferred work (epoll on a ring's own descriptor is
    // not woken under DEFER_TASKRUN), the ring's flag tells which.
    int wake = eventfd(0, EFD_CLOEXEC);
    if (wake < 0) die("eventfd");
    for (unsigned r = 0; r < rings_count; r++)
        if (io_uring_register_eventfd(&rings[r].io, wake) < 0) die("register eventfd");
    for (unsigned r = 0; r < rings_count; r++) io_uring_cq_eventfd_toggle(&rings[r].io, false);
    for (;;) {
        bool busy = false;
        for (unsigned r = 0; r < rings_count; r++) {
            struct ring *ring = &rings[r];
            if (io_uring_sq_ready(&ring->io)) io_uring_submit(&ring->io);
            if (io_uring_cq_has_overflow(&ring->io) ||
                IO_URING_READ_ONCE(*ring->io.sq.kflags) & IORING_SQ_TASKRUN)
                io_uring_get_events(&ring->io);
            if (!io_uring_cq_ready(&ring->io)) continue;
            busy = true;
            turn(ring);
        }
        if (busy) continue;
        // Signals are on only around the sleep, so that completions of our own sends cost none.
        for (unsigned r = 0; r < rings_count; r++) io_uring_cq_eventfd_toggle(&rings[r].io, true);
        // The kernel defers work and then looks whether to signal: without the fence, both sides could miss each other.
        atomic_thread_fence(memory_order_seq_cst);
        for (unsigned r = 0; r < rings_count; r++)
            busy |= IO_URING_READ_ONCE(*rings[r].io.sq.kflags) & IORING_SQ_TASKRUN;
        uint64_t count;
        if (!busy && read(wake, &count, sizeof count) < 0) die("eventfd");
        for (unsigned r = 0; r < rings_count; r++) io_uring_cq_eventfd_toggle(&rings[r].io, false);
    }
}
