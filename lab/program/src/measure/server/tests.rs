use super::*;

fn start(script: &str) -> Result<Server, Error> {
    Server::start(&ServerCommand {
        name: "test".into(),
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        core: None,
    })
}

#[test]
fn waits_for_the_ready_line() {
    let server = start("echo starting; echo ready https://127.0.0.1:4711; exec sleep 60").unwrap();
    assert_eq!(server.address(), SocketAddr::from(([127, 0, 0, 1], 4711)));
    let pid = server.pid();
    server.stop().unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn knows_what_a_server_has_started() {
    let server = start("sleep 60 & echo ready http://127.0.0.1:4711; wait").unwrap();
    let started = server.started();
    let names = started.iter().map(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap());
    // A process that is about to become `sleep` still has the name of the shell.
    assert_eq!(names.filter(|name| ["sleep\n", "sh\n"].contains(&name.as_str())).count(), 1);
    server.stop().unwrap();
    let alone = start("echo ready http://127.0.0.1:4711; exec sleep 60").unwrap();
    assert!(alone.started().is_empty());
}

#[test]
fn tells_what_a_failing_server_said() {
    let error = start("echo no such room >&2; exit 3").unwrap_err().to_string();
    assert!(error.contains("ended before it was ready") && error.contains("no such room"), "{error}");
    let error = start("echo ready http://somewhere; exec sleep 60").unwrap_err().to_string();
    assert!(error.contains("names no address"), "{error}");
}

#[test]
fn reads_output_that_comes_after_the_end_of_the_server() {
    // The last output comes after the server has ended.
    let script = "echo ready http://127.0.0.1:4711; (sleep 0.5; echo out of luck >&2) & exit 3";
    let mut server = start(script).unwrap();
    server.child.wait().unwrap();
    let error = server.error("it broke off").to_string();
    assert!(error.contains("it broke off; it said:\nout of luck"), "{error}");
    let error = server.stop().unwrap_err().to_string();
    assert!(error.contains("ended by itself") && error.contains("out of luck"), "{error}");
}
