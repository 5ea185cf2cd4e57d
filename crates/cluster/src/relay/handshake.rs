//! The handshake by which two nodes prove that they know the cluster's secret, before a client's bytes are sent.
//!
//! ```text
//!  owner  ─► "stentor2", node, nonce                                   the challenge
//!  relay  ─► nonce, node, client, HMAC(challenge, these)               the introduction
//!  owner  ─► HMAC(challenge, introduction)                             the acceptance
//! ```
//!
//! A node without its engine asks another node whether that node has its engine. Its introduction contains no client.
//! The owner's acceptance has a tag of another kind if the owner is ready and has its engine. The connection then ends.
//!
//! The owner's proof costs another round trip. It is necessary because the kernel completes connections to a stopped
//! process, and to a process that has replaced the owner at its address.
//!
//! All messages have a fixed length. The owner's nonce is random, so an introduction is invalid on another connection.
//! The relay knows which node it wants to reach: another process at a node's former address is refused, and a stopped
//! node doesn't answer. Numbers are least significant byte first. HMAC is HMAC-SHA256 under the secret, or under an
//! empty key.

use crate::NodeId;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Changes with the format.
const MAGIC: [u8; 8] = *b"stentor2";
const NONCE_BYTES: usize = 16;
const TAG_BYTES: usize = 32;
const CHALLENGE_BYTES: usize = MAGIC.len() + 8 + NONCE_BYTES;
/// Nonce, node, address as IPv6, port, and the kind of the connection.
const CLAIMS_BYTES: usize = NONCE_BYTES + 8 + 16 + 2 + 1;
const INTRODUCTION_BYTES: usize = CLAIMS_BYTES + TAG_BYTES;

/// Kinds of connections. An unknown kind is a client's without TLS.
const TLS: u8 = 1;
const PROBE: u8 = 2;
/// Kinds of connections of authenticating proxies, without and with TLS.
const GATEWAY: u8 = 4;
const GATEWAY_TLS: u8 = GATEWAY | TLS;

/// The client's address and protocol, for the node with the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) address: SocketAddr,
    /// `true` if the client uses TLS.
    pub(super) is_tls: bool,
    /// `true` if the client is an authenticating proxy. The handshake's tag covers it.
    pub(super) is_gateway: bool,
}

/// The reason why a connection between nodes isn't used.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    /// The other side has another secret, is another node, or replays a recorded message.
    #[error("the other side doesn't know the cluster's secret, or is another node")]
    NotAuthentic,
    /// The other side isn't a node of Stentor, or is a node of another version.
    #[error("the other side isn't a node of this version")]
    Malformed,
    /// The connection ended.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A part of the handshake. No tag is valid in another part.
#[derive(Clone, Copy)]
enum Part {
    Introduction,
    Acceptance,
    Readiness,
}

/// A node's part in handshakes: its id, and the key of its secret.
#[derive(Clone)]
pub(super) struct Handshake {
    node: NodeId,
    key: Hmac<Sha256>,
}

impl Handshake {
    pub(super) fn new(node: NodeId, secret: Option<&[u8]>) -> Self {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let key = Hmac::new_from_slice(secret.unwrap_or_default()).expect("a key");
        Self { node, key }
    }

    fn mac(&self, part: Part, challenge: &[u8; CHALLENGE_BYTES], rest: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.key.clone();
        mac.update(match part {
            Part::Introduction => b"relay introduction",
            Part::Acceptance => b"relay acceptance__",
            Part::Readiness => b"relay readiness___",
        });
        mac.update(challenge);
        mac.update(rest);
        mac
    }

    /// Performs the handshake as the node that has a client's connection for `owner`.
    pub(super) async fn dial(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        owner: NodeId,
        client: Client,
    ) -> Result<(), HandshakeError> {
        let kind = match (client.is_gateway, client.is_tls) {
            (false, false) => 0,
            (false, true) => TLS,
            (true, false) => GATEWAY,
            (true, true) => GATEWAY_TLS,
        };
        self.introduce(stream, owner, client.address, kind).await.map(drop)
    }

    /// Asks `owner` whether it is ready and has its engine.
    pub(super) async fn probe(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        owner: NodeId,
    ) -> Result<bool, HandshakeError> {
        let nobody = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        Ok(matches!(self.introduce(stream, owner, nobody, PROBE).await?, Part::Readiness))
    }

    /// Returns the kind of the owner's answer.
    async fn introduce(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        owner: NodeId,
        client: SocketAddr,
        kind: u8,
    ) -> Result<Part, HandshakeError> {
        let mut challenge = [0; CHALLENGE_BYTES];
        stream.read_exact(&mut challenge).await?;
        let (magic, rest) = challenge.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(HandshakeError::Malformed);
        }
        if rest[..8] != owner.0.to_le_bytes() {
            return Err(HandshakeError::NotAuthentic);
        }
        let mut introduction = Vec::with_capacity(INTRODUCTION_BYTES);
        introduction.extend_from_slice(&nonce()?);
        introduction.extend_from_slice(&self.node.0.to_le_bytes());
        let address = match client.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        introduction.extend_from_slice(&address.octets());
        introduction.extend_from_slice(&client.port().to_le_bytes());
        introduction.push(kind);
        let tag = self.mac(Part::Introduction, &challenge, &introduction).finalize().into_bytes();
        introduction.extend_from_slice(&tag);
        stream.write_all(&introduction).await?;
        let mut acceptance = [0; TAG_BYTES];
        stream.read_exact(&mut acceptance).await?;
        let answers = [Part::Acceptance, Part::Readiness];
        let is_answer =
            |part: &Part| self.mac(*part, &challenge, &introduction).verify_slice(&acceptance).is_ok();
        answers.into_iter().find(is_answer).ok_or(HandshakeError::NotAuthentic)
    }

    /// Performs the handshake as the node that may have the client's session. Returns the node that passes the
    /// connection through, and its client. The client is `None` if the other node only asked whether this node
    /// `serves`: is ready and has its engine.
    pub(super) async fn accept(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        serves: impl FnOnce() -> bool,
    ) -> Result<(NodeId, Option<Client>), HandshakeError> {
        let mut challenge = [0; CHALLENGE_BYTES];
        let (magic, rest) = challenge.split_at_mut(MAGIC.len());
        magic.copy_from_slice(&MAGIC);
        rest[..8].copy_from_slice(&self.node.0.to_le_bytes());
        rest[8..].copy_from_slice(&nonce()?);
        stream.write_all(&challenge).await?;
        let mut introduction = [0; INTRODUCTION_BYTES];
        stream.read_exact(&mut introduction).await?;
        let (claims, tag) = introduction.split_at(CLAIMS_BYTES);
        let expected = self.mac(Part::Introduction, &challenge, claims);
        expected.verify_slice(tag).map_err(|_| HandshakeError::NotAuthentic)?;
        let (node, address) = claims[NONCE_BYTES..].split_at(8);
        let (address, port) = address.split_at(16);
        let (port, kind) = port.split_at(2);
        let (Ok(node), Ok(address), Ok(port)) =
            (node.try_into(), <[u8; 16]>::try_from(address), port.try_into())
        else {
            return Err(HandshakeError::Malformed);
        };
        let is_probe = kind == [PROBE];
        let part = if is_probe && serves() { Part::Readiness } else { Part::Acceptance };
        let acceptance = self.mac(part, &challenge, &introduction).finalize().into_bytes();
        stream.write_all(&acceptance).await?;
        let address = SocketAddr::new(Ipv6Addr::from(address).to_canonical(), u16::from_le_bytes(port));
        let is_gateway = matches!(kind, [GATEWAY | GATEWAY_TLS]);
        let is_tls = matches!(kind, [TLS | GATEWAY_TLS]);
        let client = (!is_probe).then_some(Client { address, is_tls, is_gateway });
        Ok((NodeId(u64::from_le_bytes(node)), client))
    }
}

fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}
