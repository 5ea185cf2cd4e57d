//! Routes by their paths.

use super::*;
use crate::options::{SockJs, StaticRoute};

#[test]
fn routes() {
    fn check(path: &str, expect: &str) {
        let page = StaticRoute { path: "/".into(), content_type: "text/html".into(), body: [].into() };
        let options = Options {
            routes: vec![page],
            sockjs: ["/sockjs", "/s", "/s/long"].map(SockJs::at).into(),
            ..Options::default()
        };
        let got = match find(path, &options) {
            Route::Health => "health".to_owned(),
            Route::Ready => "ready".to_owned(),
            Route::Static(n) => format!("page {n}"),
            Route::Socket(Framing::Plain, _, None) => "socket".to_owned(),
            Route::Socket(Framing::Plain, _, Some(key)) => format!("socket {key}"),
            Route::Socket(..) => "primus".to_owned(),
            Route::Feed(key) => format!("feed {key}"),
            Route::Engine { is_socketio } => format!("engine {is_socketio}"),
            Route::PrimusSpec => "primus spec".to_owned(),
            Route::Events(key) => format!("events {key:?}"),
            Route::SockJs { service, route } => {
                format!("sockjs {:?} {:?} {:?}", service.place(), route.key, route.resource.status())
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
    check("/engine.io/", "engine false");
    check("/socket.io", "engine true");
    check("/socket.io/socket.io.js", "unknown");
    check("/wsx", "unknown");
    check("/primus", "primus");
    check("/primus/", "primus");
    check("/primus/spec", "primus spec");
    check("/primus/primus.js", "unknown");
    check("/primusx", "unknown");
    check("/sse", "events None");
    check("/sse/a/b", "events Some(Key(a/b))");
    check("/sse/a%2fb", "Encoding(1)");
    check("/sockjs", "sockjs Some(0) None 200");
    check("/sockjs/1/2/xhr_send", "sockjs Some(0) None 204");
    check("/sockjs/feed/a/b/1/2/xhr", "sockjs Some(0) Some(\"a/b\") 200");
    check("/sockjsx/info", "unknown");
    check("/sockjs/info/x", "unknown");
    check("/s/info", "sockjs Some(1) None 200");
    check("/s/long/info", "sockjs Some(2) None 200");
    check("/s/long/a/b/xhr_send", "sockjs Some(2) None 204");
    check("/s/longer/b/xhr_send", "sockjs Some(1) None 204");
}
