// The few bytes of HTTP and WebSocket (RFC 6455, sections 4.2.2 and 5.2) that a client insists on.
#define _GNU_SOURCE
#include "bare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

struct frame *frame_new(size_t len) {
    struct frame *frame = malloc(sizeof *frame + len);
    if (!frame) die("malloc");
    *frame = (struct frame){.refs = 1, .memfd = -1, .len = len};
    return frame;
}

struct frame *frame_of_bytes(const uint8_t *bytes, size_t len) {
    struct frame *frame = frame_new(len);
    memcpy(frame->data, bytes, len);
    return frame;
}

void frame_release(struct frame *frame) {
    if (--frame->refs) return;
    if (frame->memfd >= 0) close(frame->memfd);
    free(frame);
}

static struct frame *into_memfd(struct frame *plain) {
    struct frame *frame = frame_new(0);
    frame->len = plain->len;
    frame->memfd = memfd_create("frame", MFD_CLOEXEC);
    if (frame->memfd < 0) die("memfd_create");
    for (size_t done = 0; done < plain->len;) {
        ssize_t n = write(frame->memfd, plain->data + done, plain->len - done);
        if (n < 0) die("write to memfd");
        done += (size_t)n;
    }
    frame_release(plain);
    return frame;
}

struct frame *frame_of_payload(const uint8_t *payload, size_t len, uint8_t opcode, bool in_memfd) {
    struct frame *frame = frame_new(len + 10);
    uint8_t *at = frame->data;
    *at++ = 0x80 | opcode;
    if (len < 126) {
        *at++ = (uint8_t)len;
    } else if (len < 65536) {
        *at++ = 126;
        *at++ = (uint8_t)(len >> 8);
        *at++ = (uint8_t)len;
    } else {
        *at++ = 127;
        for (int shift = 56; shift >= 0; shift -= 8) *at++ = (uint8_t)(len >> shift);
    }
    memcpy(at, payload, len);
    frame->len = (size_t)(at - frame->data) + len;
    return in_memfd ? into_memfd(frame) : frame;
}

ssize_t ws_frame(uint8_t *bytes, size_t len, struct ws_head *head) {
    head->needed = 0;
    if (len < 2) return 0;
    if (!(bytes[1] & 0x80)) return -1;
    size_t payload = bytes[1] & 0x7f, at = 2;
    if (payload == 126) {
        if (len < 4) return 0;
        payload = (size_t)bytes[2] << 8 | bytes[3];
        at = 4;
    } else if (payload == 127) {
        if (len < 10) return 0;
        payload = 0;
        for (at = 2; at < 10; at++) payload = payload << 8 | bytes[at];
    }
    if (payload > FRAME_BYTES_MAX) return -1;
    head->opcode = bytes[0] & 0x0f;
    head->head = at + 4;
    head->payload = payload;
    head->needed = at + 4 + payload;
    if (len < head->needed) return 0;
    uint8_t *key = bytes + at, *body = key + 4;
    // A generator that wants the limit masks with zero; every other client gets what it is due.
    if (key[0] | key[1] | key[2] | key[3])
        for (size_t i = 0; i < payload; i++) body[i] ^= key[i & 3];
    return (ssize_t)head->needed;
}

bool ws_echo_in_place(uint8_t *bytes, size_t len, size_t *in, size_t *out) {
    *in = *out = 0;
    for (;;) {
        struct ws_head head;
        uint8_t *frame = bytes + *in;
        ssize_t taken = ws_frame(frame, len - *in, &head);
        if (taken < 0) return false;
        if (taken == 0) return true;
        if (head.opcode == 8) return false;
        uint8_t *to = bytes + *out;
        size_t head_bytes = head.head - 4;
        frame[1] &= 0x7f;
        memmove(to, frame, head_bytes);
        memmove(to + head_bytes, frame + head.head, head.payload);
        *in += (size_t)taken;
        *out += head_bytes + head.payload;
    }
}

static void sha1_block(uint32_t h[5], const uint8_t *block) {
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 80; i++) {
        uint32_t x = w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16];
        w[i] = x << 1 | x >> 31;
    }
    for (int i = 0; i < 80; i++) {
        uint32_t f, k;
        if (i < 20) f = (b & c) | (~b & d), k = 0x5a827999;
        else if (i < 40) f = b ^ c ^ d, k = 0x6ed9eba1;
        else if (i < 60) f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
        else f = b ^ c ^ d, k = 0xca62c1d6;
        uint32_t next = (a << 5 | a >> 27) + f + e + k + w[i];
        e = d, d = c, c = b << 30 | b >> 2, b = a, a = next;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

// The digest of 60 bytes (key and GUID), which fill two blocks.
static void accept_of_key(const uint8_t key[24], char out[29]) {
    uint8_t text[128] = {0};
    memcpy(text, key, 24);
    memcpy(text + 24, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11", 36);
    text[60] = 0x80;
    text[126] = 60 * 8 >> 8;
    text[127] = 60 * 8 & 0xff;
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    sha1_block(h, text);
    sha1_block(h, text + 64);
    uint8_t digest[21] = {0};
    for (int i = 0; i < 20; i++) digest[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int i = 0; i < 7; i++) {
        uint32_t three = (uint32_t)digest[3 * i] << 16 | (uint32_t)digest[3 * i + 1] << 8 | digest[3 * i + 2];
        for (int j = 0; j < 4; j++) out[4 * i + j] = digits[three >> (18 - 6 * j) & 63];
    }
    out[27] = '=';
    out[28] = 0;
}

struct frame *ws_accept(const uint8_t *bytes, size_t len, size_t *head_len) {
    *head_len = 0;
    const uint8_t *end = memmem(bytes, len, "\r\n\r\n", 4);
    if (!end) return NULL;
    *head_len = (size_t)(end - bytes) + 4;
    static const char name[] = "\r\nSec-WebSocket-Key:";
    for (const uint8_t *at = bytes; at + sizeof name - 1 + 25 <= end; at++) {
        if (*at != '\r' || strncasecmp((const char *)at, name, sizeof name - 1)) continue;
        const uint8_t *key = at + sizeof name - 1;
        while (*key == ' ') key++;
        if (key + 24 > end) return NULL;
        char accept[29];
        accept_of_key(key, accept);
        struct frame *answer = frame_new(160);
        int n = snprintf((char *)answer->data, 160,
                         "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                         "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", accept);
        answer->len = (size_t)n;
        return answer;
    }
    return NULL;
}

bool partial_append(struct partial **partial, const uint8_t *bytes, size_t len) {
    size_t had = *partial ? (*partial)->len : 0, cap = *partial ? (*partial)->cap : 0;
    if (had + len > FRAME_BYTES_MAX + HEAD_BYTES_MAX) return false;
    if (had + len > cap) {
        cap = cap * 2 > had + len ? cap * 2 : had + len;
        *partial = realloc(*partial, sizeof **partial + cap);
        if (!*partial) die("realloc");
        (*partial)->cap = cap;
    }
    memcpy((*partial)->data + had, bytes, len);
    (*partial)->len = had + len;
    return true;
}

void partial_consume(struct partial **partial, size_t len) {
    struct partial *p = *partial;
    p->len -= len;
    memmove(p->data, p->data + len, p->len);
    if (!p->len) {
        free(p);
        *partial = NULL;
    }
}
