//! Credentials and encryption of connections to NATS.

use crate::nats_server::NatsServer;
use crate::redis_tls::Authority;
use crate::servers::{connect_with, connected, options};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use stentor_cluster::engine::{ConnectOptions, Identity};

fn tls(authority: &Authority, verify: bool) -> String {
    let Identity { certificate_file, key_file } = authority.issue("localhost");
    let ca = authority.file("ca.pem");
    format!(
        "tls {{ cert_file: {certificate_file:?}, key_file: {key_file:?}, ca_file: {ca:?}, verify: {verify} }}"
    )
}

#[tokio::test]
async fn a_node_connects_to_a_server_whose_certificate_is_for_its_name() {
    let authority = Authority::new();
    let Some(server) = NatsServer::start(&tls(&authority, false)) else { return };
    // The server requires TLS with either scheme.
    for scheme in ["tls", "nats"] {
        authority.check_server(|host| format!("{scheme}://{host}:{}", server.port)).await;
    }
}

#[tokio::test]
async fn with_a_certificate_authority_a_node_sends_nothing_without_tls() {
    let Some(server) = NatsServer::start("") else { return };
    let url = format!("nats://user:topsecret@localhost:{}", server.port);
    let authority = Authority::new();
    let ca_file = Some(authority.file("ca.pem"));
    let error = connect_with(&url, ConnectOptions { ca_file, ..options() }).await.err().unwrap();
    assert!(error.contains("TLS") && !error.contains("topsecret"), "{error}");
}

#[tokio::test]
async fn a_node_shows_its_certificate_to_a_server_that_asks_for_one() {
    let authority = Authority::new();
    let Some(server) = NatsServer::start(&tls(&authority, true)) else { return };
    authority.check_client(&format!("tls://localhost:{}", server.port)).await;
}

/// An NKey pair: the prefix byte of its kind (the first five bits of its text), and the seed.
struct Key(u8, [u8; 32]);

impl Key {
    fn draw(kind: u8) -> Self {
        Self(kind << 3, std::array::from_fn(|_| fastrand::u8(..)))
    }

    fn pair(&self) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&self.1).unwrap()
    }

    fn public(&self) -> String {
        encode(&[&[self.0], self.pair().public_key().as_ref()].concat())
    }

    fn seed(&self) -> String {
        encode(&[&[18 << 3 | self.0 >> 5, self.0 << 3], &self.1[..]].concat())
    }

    /// Returns a JWT with claims about the key `about`, signed by this key.
    fn sign(&self, about: &Key, claims: &Value) -> String {
        let body = json!({
            "jti": "x", "iat": 1, "iss": self.public(), "sub": about.public(), "name": "test", "nats": claims,
        });
        let parts = [json!({ "typ": "JWT", "alg": "ed25519-nkey" }), body];
        let parts = parts.map(|part| BASE64_URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.pair().sign(parts.as_bytes()));
        format!("{parts}.{signature}")
    }
}

/// Encodes bytes in Base32, followed by a checksum.
fn encode(content: &[u8]) -> String {
    let crc = content.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            crc << 1 ^ (if crc >> 15 == 1 { 0x1021 } else { 0 })
        })
    });
    let bits: String =
        [content, &crc.to_le_bytes()].concat().iter().map(|byte| format!("{byte:08b}")).collect();
    let digit =
        |at: usize| u8::from_str_radix(&format!("{:0<5}", &bits[at..(at + 5).min(bits.len())]), 2).unwrap();
    (0..bits.len())
        .step_by(5)
        .map(|at| char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[usize::from(digit(at))]))
        .collect()
}

#[tokio::test]
async fn a_user_proves_who_it_is_by_a_credentials_file() {
    let [operator, system, account, user] = [14, 0, 0, 20].map(Key::draw);
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let of_system = operator.sign(&system, &json!({ "type": "account", "version": 2, "limits": { "subs": -1, "conn": -1, "data": -1, "payload": -1 } }));
    let of_account = operator.sign(&account, &json!({ "type": "account", "version": 2, "limits": limits }));
    let of_operator = json!({ "type": "operator", "version": 2, "system_account": system.public() });
    let configuration = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {of_system}, {}: {of_account} }}",
        operator.sign(&operator, &of_operator),
        system.public(),
        system.public(),
        account.public(),
    );
    let Some(server) = NatsServer::start(&configuration) else { return };
    let jwt =
        account.sign(&user, &json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 }));
    let file = tempfile::NamedTempFile::new().unwrap();
    let with = |seed: String| {
        let jwt =
            format!("-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\nIMPORTANT\n\n");
        let seed = format!("-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n");
        std::fs::write(file.path(), jwt + &seed).unwrap();
        ConnectOptions { credentials_file: Some(file.path().into()), ..options() }
    };
    connected(&server.url(), with(user.seed())).await.serves().await;
    let seed = Key::draw(20).seed();
    let error = connect_with(&server.url(), with(seed.clone())).await.err().unwrap();
    assert!(error.contains("refused the credentials") && !error.contains(&seed), "{error}");
    let error = connect_with(&server.url(), with(user.seed().replace('U', "V"))).await.err().unwrap();
    assert!(error.contains("no NATS credentials") && !error.contains(&user.seed()[10..]), "{error}");
    let error = connect_with(&server.url(), options()).await.err().unwrap();
    assert!(error.contains("refused the credentials"), "{error}");
}
