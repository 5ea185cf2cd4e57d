//! Tests of the route of each path.

use super::*;
use crate::options::StaticRoute;

#[test]
fn routes() {
    fn check(path: &str, expect: &str) {
        let page = StaticRoute { path: "/".into(), content_type: "text/html".into(), body: [].into() };
        let options = Options { routes: vec![page], ..Options::default() };
        let got = match find(path, None, &options) {
            Route::Health => "health".to_owned(),
            Route::Ready => "ready".to_owned(),
            Route::Static(n) => format!("page {n}"),
            Route::File(n) => format!("file {n}"),
            Route::Socket(None) => "socket".to_owned(),
            Route::Socket(Some(key)) => format!("socket {key}"),
            Route::Feed(key) => format!("feed {key}"),
            Route::Engine(endpoint) => format!("engine {endpoint:?}"),
            Route::Events(key) => format!("events {key:?}"),
            Route::Of(_, RouteFacts { opens_session, takes_body, has_socket, outlives_drain }) => {
                let facts = [opens_session, takes_body, has_socket, outlives_drain].map(u8::from);
                format!("of the table {facts:?}")
            }
            Route::BadKey(error) => format!("{error:?}"),
            Route::OldSocketIo => "old".to_owned(),
            Route::Unknown => "unknown".to_owned(),
        };
        assert_eq!(got, expect, "{path}");
    }
    check("/", "page 0");
    check("/healthz", "health");
    check("/readyz", "ready");
    check("/socket.io/1/", "old");
    check("/socket.io/1/websocket/1234", "old");
    check("/socket.io/1", "unknown");
    check("/socket.io/socket.io.js", "unknown");
    check("/ws", "socket");
    check("/ws/matches/8", "socket matches/8");
    check("/ws/a%20b", "Character(1)");
    check("/ws/a%2Fb", "Encoding(1)");
    check("/ws/a%252fb", "Forbidden(1)");
    check("/ws/%zz", "Encoding(0)");
    check("/feed/x%2Dy", "feed x-y");
    check("/feed/../admin", "DotSegment");
    check("/feed/%2e%2e/admin", "DotSegment");
    check("/feed/", "Empty");
    check("/engine.io/", "engine Plain");
    check("/socket.io", "engine SocketIo");
    check("/socket.io/socket.io.js", "unknown");
    check("/wsx", "unknown");
    check("/primus", "of the table [1, 0, 1, 0]");
    check("/primus/", "of the table [1, 0, 1, 0]");
    check("/primus/spec", "of the table [0, 0, 0, 0]");
    check("/primus/primus.js", "unknown");
    check("/primusx", "unknown");
    check("/sse", "events None");
    check("/sse/a/b", "events Some(Key(a/b))");
    check("/sse/a%2fb", "Encoding(1)");
    check("/sockjs", "of the table [0, 0, 1, 1]");
    check("/sockjs/1/2/xhr_send", "of the table [0, 1, 1, 1]");
    check("/sockjs/1/2/websocket", "of the table [1, 0, 1, 1]");
    check("/sockjsx/info", "unknown");
}
