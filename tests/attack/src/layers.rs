//! The layers between TCP and HTTP: TLS and the PROXY protocol. The server listens for each at a loopback
//! address that is derived from this process's id, so that no other program takes the port.

use crate::script::{Addresses, Port, Script};
use crate::upstream::serve_on_thread;
use crate::wire;
use anyhow::Context;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A name in the server's certificate, which TLS 1.2 sends in the clear.
pub(crate) const CERTIFIED: &str = "certified.invalid";
const NAME: &str = "localhost";

/// Makes a certificate. Returns it with the files that the server needs for it.
pub(crate) fn certificate() -> anyhow::Result<(CertificateDer<'static>, Vec<(&'static str, String)>)> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned(), CERTIFIED.to_owned()])?;
    let files = vec![("certificate.pem", made.cert.pem()), ("key.pem", made.signing_key.serialize_pem())];
    Ok((made.cert.der().clone(), files))
}

/// Like [`certificate`], with an RSA key, whose signatures cost the server the most. The key protects
/// nothing.
pub(crate) fn certificate_with_rsa() -> anyhow::Result<(CertificateDer<'static>, Vec<(&'static str, String)>)>
{
    let key = rcgen::KeyPair::from_pem(include_str!("rsa-key.pem"))?;
    let made = rcgen::CertificateParams::new([NAME.to_owned()])?.self_signed(&key)?;
    let files = vec![("certificate.pem", made.pem()), ("key.pem", key.serialize_pem())];
    Ok((made.der().clone(), files))
}

/// Returns a loopback address that no other program uses.
pub(crate) fn own(port: u16) -> SocketAddr {
    let [_, one, two, three] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 64 | one, two, three], port))
}

/// Returns the server's addresses, and starts the tunnel, which trusts the server's certificate.
pub(crate) fn addresses(certificate: CertificateDer<'static>) -> anyhow::Result<Addresses> {
    let tls = own(8443);
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(client));
    let tunnel = serve_on_thread(move |plain| tunnel(plain, tls, connector.clone())).context("no tunnel")?;
    Ok(Addresses { tls, tunnel, proxy: own(8002), ..Addresses::plain(own(8000), own(8001)) })
}

/// Forwards one connection over TLS.
async fn tunnel(mut plain: TcpStream, tls: SocketAddr, connector: TlsConnector) {
    let Ok(name) = ServerName::try_from(NAME) else { return };
    let Ok(stream) = TcpStream::connect(tls).await else { return };
    let Ok(mut secure) = connector.connect(name, stream).await else { return };
    // An error ends the connection like a regular end.
    let _ = tokio::io::copy_bidirectional(&mut plain, &mut secure).await;
}

/// Returns the configuration of listeners, the certificate and the trusted proxies.
pub(crate) fn configuration(addresses: &Addresses) -> String {
    let Addresses { public, proxy, .. } = addresses;
    format!(
        r#"
[[listeners]]
address = "{public}"

[[listeners]]
address = "{proxy}"
proxy_protocol = "required"

[proxies]
trusted = ["127.0.0.0/8"]
header_timeout = "1s"

[[tls]]
certificate = "{{folder}}/certificate.pem"
key = "{{folder}}/key.pem"
"#
    )
}

/// Returns the valid sessions.
pub(crate) fn sessions() -> Vec<Script> {
    vec![tls_1_2(), Script::at(Port::Tls, [wire::get("/healthz")]), tunneled(), proxy_1(), proxy_2()]
}

/// Makes a handshake in which the client's key exchange is invalid.
fn tls_1_2() -> Script {
    Script::at(
        Port::Tls,
        [
            client_hello(),
            [
                record(22, &[&[16, 0, 0, 66, 65, 4][..], &[7; 64]].concat()),
                record(20, &[1]),
                record(22, &[9; 40]),
            ]
            .concat(),
            record(23, &[5; 64]),
        ],
    )
}

fn tunneled() -> Script {
    let subscribe = |room: &str| wire::text(&format!(r#"{{"type":"subscribe","room":"{room}"}}"#));
    Script::at(
        Port::Tunnel,
        [wire::upgrade("/ws"), subscribe("lobby"), wire::frame(wire::FIN | wire::CLOSE, b"")],
    )
    .on(
        0,
        Port::Tunnel,
        [wire::get("/engine.io/?EIO=4&transport=polling"), wire::get("/sse/cold/probe-a")],
    )
}

fn proxy_1() -> Script {
    let headed = |line: &str| [line.as_bytes(), &wire::upgrade("/ws")].concat();
    Script::at(
        Port::Proxy,
        [headed("PROXY TCP4 192.0.2.7 192.0.2.8 51000 443\r\n"), wire::text(r#"{"type":"ping"}"#)],
    )
    .on(1, Port::Proxy, [headed("PROXY TCP6 2001:db8::7 2001:db8::8 51000 443\r\n")])
    .on(2, Port::Proxy, [headed("PROXY UNKNOWN\r\n")])
}

fn proxy_2() -> Script {
    let headed = |command: u8, family: u8, addresses: &[u8]| {
        let length = u8::try_from(addresses.len()).expect("the addresses are short");
        let head = [b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &[0x20 | command, family, 0, length]].concat();
        [head.as_slice(), addresses, &wire::get("/engine.io/?EIO=4&transport=polling")].concat()
    };
    // Addresses, ports, and a type-length-value.
    let four = [&[192, 0, 2, 7, 192, 0, 2, 8, 0xc7, 0x38, 1, 0xbb][..], &[4, 0, 1, 0]].concat();
    let six = [&[0x20, 1, 0x0d, 0xb8][..], &[7; 28], &[0xc7, 0x38, 1, 0xbb]].concat();
    Script::at(Port::Proxy, [headed(1, 0x11, &four)]).on(1, Port::Proxy, [headed(1, 0x21, &six)]).on(
        2,
        Port::Proxy,
        [headed(0, 0, &[])],
    )
}

/// Makes a client hello of TLS 1.2 (RFC 5246, section 7.4.1.2).
pub(crate) fn client_hello() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend_from_slice(&[0x5a; 32]);
    // No session, two cipher suites with ECDHE, no compression.
    body.extend_from_slice(&[0, 0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0]);
    let mut name = vec![0, 12, 0, 0, 9];
    name.extend_from_slice(NAME.as_bytes());
    let extensions: [(u8, &[u8]); 4] =
        [(0, &name), (10, &[0, 2, 0, 0x17]), (11, &[1, 0]), (13, &[0, 6, 4, 3, 8, 4, 4, 1])];
    let all: Vec<u8> =
        extensions.iter().flat_map(|(kind, content)| [&[0, *kind][..], &sized(content)].concat()).collect();
    body.extend_from_slice(&sized(&all));
    record(22, &[&[1, 0][..], &sized(&body)].concat())
}

/// Encodes bytes after their length.
fn sized(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("the parts of a hello are short");
    [&length.to_be_bytes()[..], bytes].concat()
}

/// Encodes a TLS record.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &sized(content)].concat()
}
