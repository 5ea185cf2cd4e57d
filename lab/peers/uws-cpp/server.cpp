// C++ uWebSockets as a peer: echo, chat (each message to everybody, sender included) and rooms (each to one room). Settings
// for speed: TLS and deflate only where
// they are asked for, and only in the build that has them (FULL); no time-outs, no pings, backpressure high enough that a client which reads never loses a message.
#include "App.h"

#include <cstdio>
#include <cstdlib>
#include <string>

enum class Mode { Echo, Chat, Rooms };

static Mode mode = Mode::Echo;
static int port = 0;
static unsigned backpressure_bytes = 16u << 20;
static std::string certificate, key;
static bool deflates;
template <bool SSL> static uWS::TemplatedApp<SSL> *app;

// Whether it is in the room with presence.
struct Session {
    bool watches = false;
};

// Notifies the members of the room with presence that one has joined or left.
template <bool SSL> static void moved(bool joined) {
    app<SSL>->publish("room", joined ? "{\"type\":\"presence\",\"room\":\"room\",\"joined\":[{\"session\":\"s\"}],\"left\":[]}"
        : "{\"type\":\"presence\",\"room\":\"room\",\"joined\":[],\"left\":[{\"session\":\"s\"}]}", uWS::OpCode::TEXT, deflates);
}

// Of `stentor.v1` what the lab's loads of topics and of presence say, in which nothing is escaped: `{"type":"subscribe","room":"R"}`, for
// one room also with `"presence":true`, and `{"type":"publish","room":"R","data":"…"}`, which goes to the room as a message.
template <bool SSL> static void room(uWS::WebSocket<SSL, true, Session> *ws, std::string_view message) {
    constexpr std::string_view subscribe = "{\"type\":\"subscribe\",\"room\":\"", publish = "{\"type\":\"publish\",\"room\":\"";
    if (message.starts_with(subscribe)) {
        message.remove_prefix(subscribe.size());
        ws->subscribe(message.substr(0, message.find('"')));
        if (message.ends_with("\"presence\":true}")) {
            ws->getUserData()->watches = true;
            moved<SSL>(true);
        }
    } else if (message.starts_with(publish)) {
        message.remove_prefix(publish.size());
        static std::string delivery;
        delivery.assign("{\"type\":\"message\",\"room\":\"").append(message);
        app<SSL>->publish(message.substr(0, message.find('"')), delivery, uWS::OpCode::TEXT, deflates);
    }
    ws->send("{\"type\":\"ok\"}", uWS::OpCode::TEXT);
}

static int usage() {
    fputs("server --mode echo|chat|rooms --port N [--backpressure BYTES]\n"
          "       [--certificate FILE --key FILE] [--deflate shared]\n", stderr);
    return 2;
}

template <bool SSL> static int serve() {
    uWS::TemplatedApp<SSL> server({.key_file_name = key.c_str(), .cert_file_name = certificate.c_str()});
    app<SSL> = &server;
    server.template ws<Session>("/*", {
        .compression = deflates ? uWS::SHARED_COMPRESSOR : uWS::DISABLED,
        .maxPayloadLength = 16 * 1024 * 1024,
        .idleTimeout = 0,
        .maxBackpressure = backpressure_bytes,
        .closeOnBackpressureLimit = false,
        .resetIdleTimeoutOnSend = false,
        .sendPingsAutomatically = false,
        .open = [](auto *ws) {
            if (mode == Mode::Rooms) ws->send("{\"type\":\"welcome\"}", uWS::OpCode::TEXT);
            else if (mode != Mode::Echo) ws->subscribe("all");
        },
        .message = [](auto *ws, std::string_view message, uWS::OpCode op) {
            if (mode == Mode::Echo) ws->send(message, op, deflates);
            else if (mode == Mode::Rooms) room<SSL>(ws, message);
            else app<SSL>->publish("all", message, op, deflates);
        },
        .close = [](auto *ws, int, std::string_view) {
            if (ws->getUserData()->watches) moved<SSL>(false);
        },
    });
    server.listen("127.0.0.1", port, [](us_listen_socket_t *listener) {
        if (!listener) {
            fprintf(stderr, "uws-cpp: 127.0.0.1:%d can't be listened at\n", port);
            exit(1);
        }
        printf("ready http://127.0.0.1:%d\n", us_socket_local_port(SSL, (us_socket_t *) listener));
        fflush(stdout);
    });
    server.run();
    return 0;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i += 2) {
        std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        if (value.empty()) return usage();
        if (name == "--mode" && value == "echo") mode = Mode::Echo;
        else if (name == "--mode" && value == "chat") mode = Mode::Chat;
        else if (name == "--mode" && value == "rooms") mode = Mode::Rooms;
        else if (name == "--protocol") {}
        else if (name == "--port") port = atoi(value.c_str());
        else if (name == "--backpressure") backpressure_bytes = strtoul(value.c_str(), nullptr, 10);
#ifdef FULL
        else if (name == "--certificate") certificate = value;
        else if (name == "--key") key = value;
        else if (name == "--deflate" && value == "shared") deflates = true;
#endif
        else return usage();
    }
#ifdef FULL
    if (!certificate.empty()) return serve<true>();
#endif
    return serve<false>();
}
