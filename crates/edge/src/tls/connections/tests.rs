//! Handshakes over real sockets, turn by turn.

use super::handshakes::HANDSHAKES_PER_TURN;
use super::{KEY_EXCHANGE, TlsSettings};
use crate::ledger::Ledger;
use crate::tls::{CertificateFiles, TlsHandle, TlsLayer, TlsOptions};
use rustls::crypto::{ActiveKeyExchange, CryptoProvider, SharedSecret, SupportedKxGroup, ring};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, Error, NamedGroup, RootCertStore, SupportedProtocolVersion};
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_driver::{Driver, EpollDriver, Event, ListenOptions, Options};
use stentor_session::metrics::CoreMetrics;

/// Number of answers with a P-256 key for which a turn has time, including the one that exceeds it.
const ANSWERS_MAX: usize = (HANDSHAKES_PER_TURN.as_micros() / KEY_EXCHANGE.as_micros()) as usize;
const CLIENTS: usize = 5 * ANSWERS_MAX;

/// A key exchange group that the server doesn't know.
#[derive(Debug)]
struct Unknown;

struct UnknownKey(Vec<u8>);

impl SupportedKxGroup for Unknown {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(UnknownKey(vec![4; 133])))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }
}

impl ActiveKeyExchange for UnknownKey {
    fn complete(self: Box<Self>, _: &[u8]) -> Result<SharedSecret, Error> {
        Err(Error::General("no server takes this group".into()))
    }

    fn pub_key(&self) -> &[u8] {
        &self.0
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }
}

struct Client {
    tcp: TcpStream,
    session: ClientConnection,
}

impl Client {
    fn send(&mut self) {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.tcp).unwrap();
        }
    }

    /// Handles data from the server. Returns `false` if there was none.
    fn receive(&mut self) -> bool {
        let mut bytes = vec![0; 1 << 16];
        match self.tcp.read(&mut bytes) {
            Ok(count @ 1..) => {
                let mut rest = &bytes[..count];
                while !rest.is_empty() {
                    self.session.read_tls(&mut rest).unwrap();
                    self.session.process_new_packets().unwrap();
                }
                true
            }
            Ok(_) => panic!("the server has ended the connection"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        }
    }
}

/// Runs one turn of the server. Returns the clients that received data in it.
fn turn(layer: &mut TlsLayer<EpollDriver>, clients: &mut [Client]) -> Vec<usize> {
    layer.wait(Some(Duration::from_millis(10))).unwrap();
    while let Some(event) = layer.next_event() {
        match event {
            Event::Accepted { conn, .. } => layer.begin(conn, Vec::new()),
            Event::Received { data, .. } => layer.recycle(data),
            _ => {}
        }
    }
    let received = clients.iter_mut().enumerate().filter_map(|(at, client)| client.receive().then_some(at));
    received.collect()
}

/// All clients send their first messages at the same time, and later their second messages. Each turn answers few of
/// them.
#[test]
fn a_turn_answers_few_clients() {
    // The server requests another ClientHello.
    check(&rustls::version::TLS13, vec![&Unknown, ring::kx_group::X25519]);
    // The key exchange is part of the second answer.
    check(&rustls::version::TLS12, vec![ring::kx_group::SECP384R1]);
}

fn check(version: &'static SupportedProtocolVersion, kx_groups: Vec<&'static dyn SupportedKxGroup>) {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = CertificateFiles {
        certificate: folder.path().join("certificate.pem"),
        key: folder.path().join("key.pem"),
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let options = TlsOptions { certificates: vec![files], ..TlsOptions::default() };
    let settings = TlsSettings {
        handle: TlsHandle::load(&options).unwrap().0,
        timeout: Duration::from_secs(60),
        handshakes_max: 1_000,
        ledger: Arc::new(Ledger::new(1 << 30)),
        metrics: Arc::new(CoreMetrics::default()),
        timer: 1,
    };
    let mut layer = TlsLayer::new(EpollDriver::new(&Options::default()).unwrap(), Some(settings));
    let addr = layer.listen(([127, 0, 0, 1], 0).into(), &ListenOptions::default()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(made.cert.der().to_vec())).unwrap();
    let provider = Arc::new(CryptoProvider { kx_groups, ..ring::default_provider() });
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]);
    let config = Arc::new(config.unwrap().with_root_certificates(roots).with_no_client_auth());
    let connect = || {
        let tcp = TcpStream::connect(addr).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let session = ClientConnection::new(config.clone(), "localhost".try_into().unwrap()).unwrap();
        Client { tcp, session }
    };
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect()).collect();
    clients.iter_mut().for_each(Client::send);
    let begun = Instant::now();
    let mut first_answers = 0;
    while first_answers < CLIENTS {
        let answered = turn(&mut layer, &mut clients);
        assert!(answered.len() <= ANSWERS_MAX, "{answered:?} in one turn");
        first_answers += answered.len();
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
    assert!(clients.iter().all(|client| client.session.is_handshaking()));
    clients.iter_mut().for_each(Client::send);
    while clients.iter().any(|client| client.session.is_handshaking()) {
        let answered = turn(&mut layer, &mut clients);
        assert!(answered.len() <= ANSWERS_MAX, "{answered:?} in one turn");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
