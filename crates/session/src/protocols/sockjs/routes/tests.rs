//! Paths under the prefixes of SockJS services.

use super::*;
use crate::options;

fn options() -> Options {
    Options { sockjs: ["/sockjs", "/s", "/s/long"].map(options::SockJs::at).into(), ..Options::default() }
}

#[test]
fn the_longest_prefix_that_fits_applies() {
    fn check(path: &str, expect: Option<(usize, Option<&str>, u16)>) {
        let options = options();
        let route = route_of(path, &options);
        let got =
            route.map(|(service, route)| (service.place().unwrap(), route.key, route.resource.status()));
        assert_eq!(got, expect, "{path}");
    }
    check("/sockjs", Some((0, None, 200)));
    check("/sockjs/1/2/xhr_send", Some((0, None, 204)));
    check("/sockjs/feed/a/b/1/2/xhr", Some((0, Some("a/b"), 200)));
    check("/sockjsx/info", None);
    check("/sockjs/info/x", None);
    check("/s/info", Some((1, None, 200)));
    check("/s/long/info", Some((2, None, 200)));
    check("/s/long/a/b/xhr_send", Some((2, None, 204)));
    check("/s/longer/b/xhr_send", Some((1, None, 204)));
}

#[test]
fn the_name_of_a_session_is_a_secret() {
    fn check(path: &str, secret: Option<&str>) {
        assert_eq!(SockJs.secret(path, &options()).map(|range| &path[range]), secret, "{path}");
    }
    check("/feed/a/b", None);
    check("/sockjs", None);
    check("/sockjs/info", None);
    check("/sockjs/000/secret", Some("secret"));
    check("/sockjs/000/secret/xhr_send", Some("secret"));
    check("/s/long/000/secret/xhr", Some("secret"));
    check("/sockjs/feed/a/b/000/secret/xhr", Some("secret"));
    check("/sockjsx/000/open/xhr", None);
}
