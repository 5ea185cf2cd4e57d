//! `ceiling` from the command line, on a fake server: it prints both figures. Their values depend on the build and on
//! the load of this machine.

use crate::fakes::{self, Folder};
use crate::server::Fault;

#[test]
fn generator_and_bare_client_stand_side_by_side() {
    let folder = Folder::new("ceiling");
    folder.peer("honest", Fault::None, 7).peer("babbling", Fault::Babbles, 7);
    let run = |against: &str, seconds: &str| {
        let mut command = fakes::lab();
        command.args(["ceiling", "--against", against, "--pairs", "1", "--seconds", seconds]);
        command
            .args(["--connections", "20", "--peers-dir"])
            .arg(folder.path("peers"))
            .args(fakes::measuring());
        fakes::said(command.output().unwrap())
    };
    // On a busy machine, no message may come in so short a time.
    let (mut code, mut said) = run("honest", "0.2");
    for seconds in ["1", "5"] {
        if code == 1 && said.contains("no message came") {
            (code, said) = run("honest", seconds);
        }
    }
    assert_eq!(code, 0, "{said}");
    for told in ["echo of 64 bytes", "fan-out of 1000 bytes", "bare client ", "≤ 1.2"] {
        assert!(said.contains(told), "{told}: {said}");
    }
    let (code, said) = run("babbling", "0.2");
    assert_eq!(code, 1, "{said}");
}
