// Options, the listener, the ready line.
#define _GNU_SOURCE
#include "bare.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct options options = {.mode = ECHO, .io = IO_EPOLL, .rings = 10};
uint64_t skipped;

void die(const char *what) {
    fprintf(stderr, "bare: %s: %s\n", what, strerror(errno));
    exit(1);
}

int listen_at(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    // Accepted sockets inherit it, and the limit below.
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (options.lowat_bytes)
        setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &options.lowat_bytes, sizeof options.lowat_bytes);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0) die("bind (--port)");
    if (listen(fd, 4096) < 0) die("listen");
    return fd;
}

void announce(int listener) {
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    getsockname(listener, (struct sockaddr *)&at, &len);
    options.port = ntohs(at.sin_port);
    printf("ready http://127.0.0.1:%d\n", options.port);
    fflush(stdout);
}

static void on_term(int signal) {
    (void)signal;
    char line[64];
    int len = snprintf(line, sizeof line, "bare: skipped %" PRIu64 " frames\n", skipped);
    if (skipped && write(2, line, (size_t)len) < 0) _exit(1);
    _exit(0);
}

static int choice(const char *value, const char *const *names) {
    for (int i = 0; names[i]; i++)
        if (!strcmp(value, names[i])) return i;
    return -1;
}

static void usage(void) {
    fputs("bare --mode echo|chat|rooms --port N [--io epoll|sendfile|uring|direct] [--lowat BYTES] [--rings N]\n", stderr);
    exit(2);
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"echo", "chat", "rooms", NULL};
    static const char *const ios[] = {"epoll", "sendfile", "uring", "direct", NULL};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) usage();
        const char *name = argv[i], *value = argv[i + 1];
        int number = atoi(value), mode = choice(value, modes), io = choice(value, ios);
        if (!strcmp(name, "--mode") && mode >= 0) options.mode = (enum mode)mode;
        else if (!strcmp(name, "--io") && io >= 0) options.io = (enum io)io;
        else if (!strcmp(name, "--port")) options.port = number;
        else if (!strcmp(name, "--lowat")) options.lowat_bytes = number;
        else if (!strcmp(name, "--rings") && number > 0 && number <= RINGS_MAX) options.rings = (unsigned)number;
        else if (strcmp(name, "--protocol")) usage();
    }
    if (options.mode == ROOMS && options.io != IO_EPOLL) usage();
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, on_term);
    signal(SIGINT, on_term);
    if (options.io >= IO_URING) run_uring();
    else run_epoll();
}
