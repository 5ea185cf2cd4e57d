//! The addresses at which the server listens, and whether it could listen there now.

use crate::config::{Config, Finding, Locations};
use crate::port_holder::holder;
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt::set_socket_reuseaddr};
use std::io;
use std::net::SocketAddr;

/// Returns a warning for each address at which the server couldn't listen. They are warnings, because the server itself may be
/// running.
pub(super) fn warnings(config: &Config, locations: &Locations) -> Vec<Finding> {
    let mut addresses = vec![
        ("server".to_owned(), "listen", config.server.listen),
        ("server".to_owned(), "admin", config.server.admin),
    ];
    let listeners = config.listeners.iter().enumerate();
    addresses.extend(listeners.map(|(n, listener)| (format!("listeners[{n}]"), "address", listener.address)));
    if config.cluster.engine.0.is_some() {
        addresses.push(("cluster".to_owned(), "listen", config.cluster.listen));
    }
    let warning = |(section, key, addr): (String, &'static str, SocketAddr)| {
        let why = unavailable(addr)?;
        let name = section.split('[').next().unwrap_or_default();
        let shown = if name == section { format!("[{name}]") } else { format!("[[{name}]]") };
        Some(locations.warning(&section, key, format!("{key} in {shown}: {addr}: {why}")))
    };
    addresses.into_iter().filter_map(warning).collect()
}

/// Returns the reason why a server couldn't listen at an address. `None` if it could.
fn unavailable(addr: SocketAddr) -> Option<String> {
    // The socket doesn't listen, so that no client connects to it.
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let bound = socket(family, SocketType::STREAM, None).and_then(|socket| {
        set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &addr)
    });
    let error = io::Error::from(bound.err()?);
    Some(match error.kind() {
        io::ErrorKind::AddrInUse => {
            let by =
                holder(addr).map_or_else(String::new, |(name, pid)| format!(" by {name} (process {pid})"));
            format!(
                "address in use{by}; stop that process unless it is the server itself, or choose another port"
            )
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied for this user; ports below 1024 need CAP_NET_BIND_SERVICE".into()
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".into(),
        _ => error.to_string(),
    })
}
