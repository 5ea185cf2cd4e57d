//! nginx between clients and a server, configured as in docs/deploy: it passes upgrades on and buffers nothing. Its CPU
//! doesn't count as the server's, unless it does TLS for the server. It runs on the server's core, as on a small
//! machine.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use minijinja::context;

use crate::Error;
use crate::measure::{Server, ServerCommand};
use crate::templates::render;

/// Maximum number of nginx's connections, on both sides together. Each needs a file descriptor.
const CONNECTIONS_MAX: usize = 18_000;

pub(super) fn is_installed() -> bool {
    Command::new("nginx").arg("-v").output().is_ok_and(|output| output.status.success())
}

/// Starts an nginx in front of `upstream`, on the same core, with its files in `folder`. With a certificate, whose key is beside it,
/// it uses TLS. Dropping the returned value ends it.
pub(super) fn start(
    upstream: SocketAddr,
    core: usize,
    folder: &Path,
    certificate: Option<&Path>,
) -> Result<Server, Error> {
    let address = free_address()?;
    let key = certificate.map(|certificate| certificate.with_file_name("key.pem"));
    let connections = CONNECTIONS_MAX;
    let values = context! { address, upstream, certificate, key, connections };
    let configuration = render("nginx.conf", &values);
    fs::write(folder.join("nginx.conf"), configuration).map_err(Error::io("a configuration for nginx"))?;
    // nginx writes its process id once it listens.
    start_at(address, "nginx", folder, "[ -s nginx.pid ]", "nginx -p . -e stderr -c nginx.conf", core)
}

/// A free address for a program that can't report its own. If another program takes it first, the server ends with an error.
pub(super) fn free_address() -> Result<SocketAddr, Error> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    free.map_err(Error::io("a free port"))
}

/// Starts a program by the command `run`, in `folder`. It listens at `address` once the command `is_up` succeeds.
pub(super) fn start_at(
    address: SocketAddr,
    name: &str,
    folder: &Path,
    is_up: &str,
    run: &str,
    core: usize,
) -> Result<Server, Error> {
    let script = format!(
        "cd '{}' || exit 1; (for i in $(seq 500); do {is_up} && echo ready http://{address} && break; sleep 0.02; done) & \
         exec {run}",
        folder.display()
    );
    Server::start(&ServerCommand {
        name: name.to_owned(),
        program: "sh".into(),
        args: vec!["-c".into(), script],
        core: Some(core),
    })
}
