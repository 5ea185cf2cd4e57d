//! Requests over TLS are HTTPS: the effects on origins and cookies.

use super::{open, with_tls};
use crate::harness::tls::client;
use crate::harness::{Http, Server, on_one_and_three};
use rustls::DEFAULT_VERSIONS;
use stentor_ports::Networks;

const HANDSHAKE: &str = "GET /socket.io/?EIO=4&transport=polling HTTP/1.1\r\nHost: a.test\r\n";

fn https(server: &Server) -> Http {
    Http::over(open(server.addr, client(DEFAULT_VERSIONS)))
}

/// The status of a handshake, whether its cookie is `Secure`, and the session's id.
fn handshake(http: &mut Http, headers: &str) -> (u16, bool, String) {
    http.send(format!("{HANDSHAKE}{headers}\r\n"));
    let response = http.response();
    let cookie = response.header("Set-Cookie");
    let sid = cookie.trim_start_matches("io=").split(';').next().unwrap_or_default();
    (response.status, cookie.contains("; Secure"), sid.to_owned())
}

#[test]
fn a_page_without_encryption_is_of_another_origin_and_cookies_are_secure() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, with_tls(|options| options.engine.cookie = Some("io".into())));
        let check = |http: &mut Http| {
            let (status, is_secure, sid) = handshake(http, "");
            assert_eq!((status, is_secure), (200, true));
            assert_eq!(handshake(http, "Origin: https://a.test\r\n").0, 200);
            assert_eq!(handshake(http, "Origin: http://a.test\r\n").0, 403);
            // Only a trusted proxy can report that the client didn't use HTTPS.
            assert_eq!(handshake(http, "Origin: http://a.test\r\nX-Forwarded-Proto: http\r\n").0, 403);
            sid
        };
        let sids: Vec<_> = (0..8).map(|_| check(&mut https(&server))).collect();
        // Each connection moves to the cores of all sessions.
        let mut http = https(&server);
        for sid in sids {
            http.send(format!(
                "POST /socket.io/?EIO=4&transport=polling&sid={sid} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\n40"
            ));
            assert_eq!(http.response().status, 200);
            check(&mut http);
        }
        assert!(cores == 1 || server.metric("connections_migrated") > 0);
    });
}

#[test]
fn a_trusted_proxy_reports_the_protocol_of_its_client() {
    let server = Server::start(
        1,
        with_tls(|options| {
            options.proxies.trusted = Networks::parse(&["127.0.0.0/8"]).unwrap();
            options.engine.cookie = Some("io".into());
        }),
    );
    let mut http = https(&server);
    assert!(handshake(&mut http, "").1);
    assert!(!handshake(&mut http, "X-Forwarded-Proto: http\r\n").1);
    assert!(handshake(&mut http, "X-Forwarded-Proto: https\r\n").1);
}
