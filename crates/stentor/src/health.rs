//! `stentor health`: checks that a running server answers. For health checks of containers without another
//! HTTP client.
//!
//! The check uses the port for clients, so that it detects a hanging data plane. A server that drains is not
//! healthy.

use crate::cli::HealthArgs;
use anyhow::{Context, bail};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

/// Timeout for connecting, and maximum time without data after that.
const TIME_MAX: Duration = Duration::from_secs(2);
/// Maximum number of bytes of a response that are read. Its first line is shorter.
const LINE_BYTES_MAX: u64 = 256;

#[allow(clippy::print_stdout, reason = "the answer is the requested output")]
pub(crate) fn run(args: &HealthArgs) -> anyhow::Result<ExitCode> {
    let addr = args.listen;
    match request_status(addr).with_context(|| format!("no server answers at {addr}"))? {
        200 => println!("ok"),
        status => bail!("the server at {addr} is not ready: status {status}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the status of `/healthz`.
fn request_status(addr: SocketAddr) -> io::Result<u16> {
    let mut stream = TcpStream::connect_timeout(&addr, TIME_MAX)?;
    stream.set_read_timeout(Some(TIME_MAX))?;
    stream.set_write_timeout(Some(TIME_MAX))?;
    // A single write sends the request in one packet.
    stream.write_all(
        format!("GET /healthz HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    status.ok_or_else(|| io::Error::other("what answers there isn't a web server"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_response_is_printed() {
        fn check(answer: &'static str, expect: Result<(), &str>) {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let listen = listener.local_addr().unwrap();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                let length = stream.read(&mut request).unwrap();
                assert!(request[..length].starts_with(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:"));
                stream.write_all(answer.as_bytes()).unwrap();
            });
            let outcome = run(&HealthArgs { listen }).map(|_| ()).map_err(|error| format!("{error:#}"));
            match (&outcome, expect) {
                (Ok(()), Ok(())) => {}
                (Err(text), Err(part)) => assert!(text.contains(part), "{answer:?}: {text}"),
                _ => panic!("{answer:?}: {outcome:?}"),
            }
            server.join().unwrap();
        }
        check("HTTP/1.1 200 OK\r\n\r\nok", Ok(()));
        check("HTTP/1.1 503 Service Unavailable\r\n\r\n", Err("is not ready: status 503"));
        check("SSH-2.0-OpenSSH\r\n", Err("isn't a web server"));
        check("", Err("isn't a web server"));
    }

    #[test]
    fn an_unreachable_server_is_reported() {
        // A port that is bound and doesn't listen refuses connections. Another test could take one that was free.
        let refusing = tokio::net::TcpSocket::new_v4().unwrap();
        refusing.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listen = refusing.local_addr().unwrap();
        let error = run(&HealthArgs { listen }).unwrap_err();
        assert!(format!("{error:#}").starts_with("no server answers at 127.0.0.1:"), "{error:#}");
    }
}
