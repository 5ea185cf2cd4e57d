//! The fuzzer's own Redis, which is the cluster's engine and the bridge's Redis, and the gateways through
//! which scripts reach Redis and the relay's listener.

use crate::upstream::serve_on_thread;
use anyhow::{Context, bail};
use ring::hmac;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PROGRAM: &str = "redis-server";
/// The user of nodes. Scripts use the default user, which is limited to the commands below and can't stop
/// Redis, for example.
pub(crate) const NODE: &str = "node:node";
const SCRIPTS_MAY: &str =
    "+publish +spublish +subscribe +ssubscribe +hset +hdel +hkeys +xadd +xdel +set +del";
/// Maximum time of a start.
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// Interval between two checks whether Redis has started.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum size of a script's command.
const COMMAND_BYTES_MAX: usize = 1 << 20;

/// The parts of the relay's handshake (`crates/cluster/src/relay/handshake.rs`).
const CHALLENGE_BYTES: usize = 32;
const ACCEPTANCE_BYTES: usize = 32;

/// A running Redis. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Redis {
    child: Child,
    _folder: TempDir,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns `true` if Redis is installed.
pub(crate) fn is_installed() -> bool {
    let version = Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

impl Redis {
    /// Starts Redis. Returns when it accepts connections.
    pub(crate) fn start(address: SocketAddr) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let configuration = folder.path().join("redis.conf");
        let (name, password) = NODE.split_once(':').context("no password")?;
        std::fs::write(
            &configuration,
            format!(
                "bind {}\nport {}\nprotected-mode no\nsave \"\"\nmaxmemory 256mb\ndir {}\n\
                 user default on nopass ~* &* -@all {SCRIPTS_MAY}\nuser {name} on >{password} ~* &* +@all\n",
                address.ip(),
                address.port(),
                folder.path().display(),
            ),
        )?;
        let child = Command::new(PROGRAM)
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{PROGRAM} can't be started"))?;
        let mut redis = Self { child, _folder: folder };
        let begun = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            if let Some(status) = redis.child.try_wait()? {
                bail!("{PROGRAM} doesn't start at {address}: {status}");
            }
            if begun.elapsed() > START_TIME_MAX {
                bail!("{PROGRAM} doesn't listen at {address} after {START_TIME_MAX:?}");
            }
            std::thread::sleep(LOOK);
        }
        Ok(redis)
    }
}

/// Starts a gateway that turns each send of a script into a command: words separated by spaces in the first
/// line, then one argument of any bytes. Mutations of that argument therefore still reach the nodes. Returns
/// the gateway's address.
pub(crate) fn commands(redis: SocketAddr) -> anyhow::Result<SocketAddr> {
    serve_on_thread(move |client| async move {
        // An error ends the connection like a regular end.
        let _ = serve_commands(client, redis).await;
    })
}

async fn serve_commands(client: TcpStream, redis: SocketAddr) -> std::io::Result<()> {
    let (mut replies, mut out) = TcpStream::connect(redis).await?.into_split();
    let (mut sends, mut back) = client.into_split();
    let forward = async {
        let mut sent = Vec::with_capacity(COMMAND_BYTES_MAX);
        while sends.read_buf(&mut sent).await? > 0 {
            out.write_all(&command(&sent)).await?;
            sent.clear();
        }
        std::io::Result::Ok(())
    };
    tokio::select! {
        ended = forward => ended,
        copied = tokio::io::copy(&mut replies, &mut back) => copied.map(drop),
    }
}

/// Encodes a command for Redis.
fn command(sent: &[u8]) -> Vec<u8> {
    let line = sent.iter().position(|byte| *byte == b'\n').unwrap_or(sent.len());
    let argument = sent.get(line + 1..);
    let words: Vec<&[u8]> = sent[..line].split(|byte| *byte == b' ').chain(argument).collect();
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Starts a gateway to the relay's listener that first performs the handshake of a node without a secret,
/// then forwards a client's bytes. Returns the gateway's address.
pub(crate) fn introduced(relay: SocketAddr) -> anyhow::Result<SocketAddr> {
    serve_on_thread(move |client| async move {
        // An error ends the connection like a regular end.
        let _ = introduce(client, relay).await;
    })
}

async fn introduce(mut client: TcpStream, relay: SocketAddr) -> std::io::Result<()> {
    let mut node = TcpStream::connect(relay).await?;
    let mut challenge = [0; CHALLENGE_BYTES];
    node.read_exact(&mut challenge).await?;
    // A nonce, this node, the client's address and port, and the kind of connection: without TLS.
    let claims = [&[0x5a; 16][..], &7_u64.to_le_bytes(), &[0; 10], &[255, 255, 127, 0, 0, 1], &[1, 2], &[0]];
    let claims = claims.concat();
    let signed = [b"relay introduction", &challenge[..], &claims].concat();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b""), &signed);
    node.write_all(&[&claims, tag.as_ref()].concat()).await?;
    node.read_exact(&mut [0; ACCEPTANCE_BYTES]).await?;
    tokio::io::copy_bidirectional(&mut client, &mut node).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_scripts() {
        let check = |sent: &[u8], expect: &[u8]| assert_eq!(command(sent), expect);
        check(b"PUBLISH a\n1 \n2", b"*3\r\n$7\r\nPUBLISH\r\n$1\r\na\r\n$4\r\n1 \n2\r\n");
        check(b"HKEYS a", b"*2\r\n$5\r\nHKEYS\r\n$1\r\na\r\n");
        check(b"\n", b"*2\r\n$0\r\n\r\n$0\r\n\r\n");
    }
}
