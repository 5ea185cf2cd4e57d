use super::*;

fn session(server: &'static str, session: &'static str, transport: Transport) -> Resource<'static> {
    Resource::Session { server, session, transport }
}

fn check(rest: &str, expect: Option<(Option<&str>, Resource<'_>)>) {
    let expect = expect.map(|(key, resource)| Route { key, resource });
    assert_eq!(parse_path(rest), expect, "{rest:?}");
    // One slash at the end makes no difference.
    if !rest.ends_with('/') {
        assert_eq!(parse_path(&format!("{rest}/")), expect, "{rest:?} and a slash");
    }
}

#[test]
fn paths_match_the_specification() {
    let plain = |resource| Some((None, resource));
    check("", plain(Resource::Greeting));
    check("/", plain(Resource::Greeting));
    for not_found in ["/a", "/a.html", "//", "///", "/a/a", "/a/a/", "/a/", "x", "info", "//info", "/info//"]
    {
        check(not_found, None);
    }
    for iframe in [
        "iframe.html",
        "iframe-a.html",
        "iframe-.html",
        "iframe-0.1.2.html",
        "iframe-0.1.2abc-dirty.2144.html",
    ] {
        check(&format!("/{iframe}"), plain(Resource::Iframe));
    }
    for not_found in [
        "/iframe.htm",
        "/iframe",
        "/IFRAME.HTML",
        "/IFRAME",
        "/iframe.HTML",
        "/iframe.xml",
        "/iframe-/.html",
        "/iframe-A.html",
        "/iframexhtml",
        "/iframe-%41.html",
        "/iframe.html/x",
    ] {
        check(not_found, None);
    }
    check("/info", plain(Resource::Info));
    check("/websocket", plain(Resource::RawWebSocket));
    for transport in Transport::ALL {
        let name = transport.as_str();
        check(&format!("/a/b/{name}"), plain(session("a", "b", transport)));
        // Empty segments, dots, too few and too many segments are refused.
        for before in ["//", "/a./a", "/a/a.", "/./.", "", "/", "///", "/a", "/a/", "/a/b/c", "//a", "/a//b"]
        {
            let not_found = format!("{before}/{name}");
            if not_found != "/websocket" {
                check(&not_found, None);
            }
        }
    }
    check("/_/_/xhr", plain(session("_", "_", Transport::Xhr)));
    check("/abcdefgh_i-j%20/x%20y/xhr", plain(session("abcdefgh_i-j%20", "x%20y", Transport::Xhr)));
    check("/a/b/XHR", None);
    check("/a/b/xhr/x", None);
    check("/info/info/xhr", plain(session("info", "info", Transport::Xhr)));
}

#[test]
fn ids_are_bounded() {
    let long = "s".repeat(PART_BYTES_MAX);
    assert!(parse_path(&format!("/{long}/{long}/xhr")).is_some());
    check(&format!("/a/{long}s/xhr"), None);
    check(&format!("/{long}s/a/xhr"), None);
    check(&format!("/feed/k/a/{long}s/xhr"), None);
    // Paths that consist of slashes, and paths with endless ids.
    check(&"/".repeat(4_000_000), None);
    check(&format!("/a/{}/xhr", long.repeat(10_000)), None);
    let feed = format!("/feed{}", "/a".repeat(2_000_000));
    assert_eq!(parse_path(&feed).map(|route| route.resource), Some(Resource::Greeting));
}

#[test]
fn feed_paths_are_parsed() {
    let keyed = |key, resource| Some((Some(key), resource));
    // Rule 1: read from the right.
    check("/feed/k/000/s/xhr", keyed("k", session("000", "s", Transport::Xhr)));
    check("/feed/a/b/c/000/s/websocket", keyed("a/b/c", session("000", "s", Transport::WebSocket)));
    check("/feed/v1.2/x.json/0/s/jsonp", keyed("v1.2/x.json", session("0", "s", Transport::Jsonp)));
    check("/feed/feed/feed/s/xhr", keyed("feed", session("feed", "s", Transport::Xhr)));
    check("/feed/a%2Fb/0/s/xhr", keyed("a%2Fb", session("0", "s", Transport::Xhr)));
    check("/feed/k/0.0/s/xhr", None);
    check("/feed/k/0/s.s/websocket", None);
    // Rule 2: pages under a key.
    check("/feed/k/info", keyed("k", Resource::Info));
    check("/feed/a/b/c/info", keyed("a/b/c", Resource::Info));
    check("/feed/a/b/c/iframe-1.6.1.html", keyed("a/b/c", Resource::Iframe));
    check("/feed/k/websocket", keyed("k", Resource::RawWebSocket));
    check("/feed/a/b/websocket", keyed("a/b", Resource::RawWebSocket));
    // With three segments before it, the path is a session's by rule 1.
    check("/feed/a/b/c/websocket", keyed("a", session("b", "c", Transport::WebSocket)));
    // Rule 3: the server id is reserved, and a session needs a key.
    check("/feed/s/xhr", None);
    check("/feed/0/s/xhr", None);
    check("/feed/xhr", None);
    // Rule 4: the greeting.
    check("/feed/k", keyed("k", Resource::Greeting));
    check("/feed/a/b.c/d", keyed("a/b.c/d", Resource::Greeting));
    check("/feed/info", keyed("info", Resource::Greeting));
    check("/feed/iframe.html", keyed("iframe.html", Resource::Greeting));
    for not_found in ["/feed", "/feed//k", "/feed/k//info", "/feed/k//0/s/xhr", "/Feed/k/info", "/feedk"] {
        check(not_found, None);
    }
}
