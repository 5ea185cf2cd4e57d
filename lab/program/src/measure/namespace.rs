//! A separate network namespace, so that every server has the same congestion control and sockets of other programs aren't counted.
//!
//! The system's default may be BBR, which costs 1.4–1.6 times the CPU on large messages over loopback. In a namespace the routes to
//! 127.0.0.0/8 can select another one (ip-route(8), `congctl`) without a change to the machine. If namespaces are forbidden, the run
//! uses the system's default and reports that.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Environment variable that is set for the process inside the namespace: the congestion control.
const INSIDE: &str = "STENTOR_LAB_CONGESTION";
/// Environment variable with the servers left out, separated by commas.
const LEFT_OUT: &str = "STENTOR_LAB_LEFT_OUT";

/// Returns `true` if this process is in such a namespace, without access to other networks.
pub fn is_in_namespace() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Inside a namespace, returns the value given to [`enter_namespace`]: servers that couldn't be installed.
pub fn left_out() -> Option<Vec<String>> {
    let names = env::var(LEFT_OUT).ok().filter(|_| is_in_namespace())?;
    Some(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Runs this program again, with the same arguments, in a network namespace whose loopback uses `congestion` (such as `cubic`).
/// Returns only inside the namespace, with the name of the congestion control, or with the reason if it isn't allowed. The new process
/// gets the names in `left_out`, servers that couldn't be installed.
pub fn enter_namespace(congestion: &str, left_out: &[String]) -> Result<String, String> {
    if let Ok(inside) = env::var(INSIDE) {
        return Ok(inside);
    }
    if !congestion.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
        return Err(format!("`{congestion}` is no name of a congestion control"));
    }
    let program = env::current_exe().map_err(|error| format!("this program's path is unknown: {error}"))?;
    let unshare = unshare_arguments();
    let routes = format!(
        "ip link set lo up && \
         ip route change local 127.0.0.0/8 dev lo table local proto kernel scope host src 127.0.0.1 congctl {congestion} && \
         ip route change local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1 congctl {congestion}"
    );
    // A child process tries this first, so that a refusal doesn't affect the current process.
    try_namespace(&unshare, &routes)?;
    let error = Command::new("unshare")
        .args(&unshare)
        .args(["sh", "-c", &format!("{routes} && exec \"$0\" \"$@\"")])
        .arg(program)
        .args(env::args_os().skip(1))
        .env(INSIDE, congestion)
        .env(LEFT_OUT, left_out.join(","))
        .exec();
    Err(format!("unshare can't be run: {error}"))
}

fn unshare_arguments() -> Vec<&'static str> {
    let is_root = rustix::process::geteuid().is_root();
    if is_root { vec!["--net"] } else { vec!["--net", "--map-root-user"] }
}

/// Runs these shell lines in a temporary network namespace. The error is the reason why that isn't possible.
fn try_namespace(unshare: &[&str], script: &str) -> Result<(), String> {
    match Command::new("unshare").args(unshare).args(["sh", "-c", script]).output() {
        Err(error) => Err(format!("unshare can't be run: {error}")),
        Ok(output) if !output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(said.lines().next().unwrap_or("it failed").to_owned())
        }
        Ok(_) => Ok(()),
    }
}

/// Checks that [`enter_namespace`] would be allowed. The error is the reason against it.
pub fn is_fit_for_namespaces() -> Result<(), String> {
    try_namespace(&unshare_arguments(), "ip link set lo up")
}

/// Limits the kernel's receive buffers, in the lab's own network namespace only. A system's limit may be 32 MB, and on loopback,
/// without loss, buffers grow up to it.
pub fn bound_receive_buffers(bytes: usize) -> std::io::Result<()> {
    match is_in_namespace() {
        true => fs::write("/proc/sys/net/ipv4/tcp_rmem", format!("4096 {bytes} {bytes}")),
        false => Err(std::io::ErrorKind::PermissionDenied.into()),
    }
}

/// The system's default congestion control.
pub fn congestion_control() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
        .map_or("unknown".to_owned(), |name| name.trim().to_owned())
}
