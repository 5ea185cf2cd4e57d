// Rooms, for the lab's load of topics: `{"type":"subscribe","room":"N"}`, and `{"type":"publish","room":"N","data":"…"}`, which
// goes to the members as `{"type":"message",…`. A room's name is a number.
#include "bare.h"

#include <stdlib.h>
#include <string.h>

enum { ROOMS_MAX = 1 << 16 };

static const char subscribe[] = "{\"type\":\"subscribe\",\"room\":\"";
static const char publish[] = "{\"type\":\"publish\",\"room\":\"", message[] = "{\"type\":\"message\",\"room\":\"";
_Static_assert(sizeof publish == sizeof message, "a publication becomes a message in place");

static struct room rooms[ROOMS_MAX];

// The room whose number begins at `text`; NULL where it is none.
static struct room *find(const uint8_t *text, size_t len) {
    size_t number = 0;
    for (size_t i = 0; i < len && number < ROOMS_MAX; i++) {
        if (text[i] == '"') return i ? &rooms[number] : NULL;
        if (text[i] < '0' || text[i] > '9') return NULL;
        number = number * 10 + text[i] - '0';
    }
    return NULL;
}

static void join(struct room *room, unsigned conn) {
    if (room->count == room->cap) {
        room->cap = room->cap ? room->cap * 2 : 4;
        room->members = realloc(room->members, room->cap * sizeof *room->members);
        if (!room->members) die("realloc");
    }
    room->members[room->count++] = conn;
}

static bool begins(const uint8_t *text, size_t len, const char *with) {
    size_t bytes = strlen(with);
    return len >= bytes && !memcmp(text, with, bytes);
}

const struct room *room_of(unsigned conn, uint8_t *text, size_t len) {
    if (begins(text, len, subscribe)) {
        size_t head = sizeof subscribe - 1;
        struct room *room = find(text + head, len - head);
        if (room) join(room, conn);
        return NULL;
    }
    if (!begins(text, len, publish)) return NULL;
    size_t head = sizeof publish - 1;
    memcpy(text, message, head);
    return find(text + head, len - head);
}
