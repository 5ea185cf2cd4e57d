//! Peers that fail in every possible way, Ctrl-C, and resuming afterwards.

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::fakes::{self, Folder, read};
use crate::server::Fault;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn trials(result: &Value, server: usize) -> &Vec<Value> {
    result["report"]["cases"][0]["servers"][server]["trials"].as_array().unwrap()
}

#[test]
fn each_failing_peer_is_told_and_the_others_go_on() {
    let folder = Folder::new("failing");
    folder
        .peer("honest", Fault::None, 7)
        .peer("crashing", Fault::Crashes, 3000)
        .peer("babbling", Fault::Babbles, 7)
        .script("uninstallable", "echo no compiler here >&2; exit 1", "exit 0")
        .script("unstartable", "exit 0", "echo the port is taken >&2; exit 1")
        .script("nameless", "exit 0", "echo ready http://somewhere; exec sleep 60")
        // The peer listens nowhere, so every connection is refused. A shell that becomes another program has no memory
        // for a moment. The lab reads the memory as soon as the peer is ready, and could take the peer for ended.
        .script("deaf", "exit 0", "echo ready http://127.0.0.1:9; sleep 60 & wait")
        .script("misdescribed", "exit 0", "exit 0");
    fs::write(folder.path("peers/misdescribed/peer.toml"), "abuot = \"a fake\"\n").unwrap();
    let names = "crashing,babbling,uninstallable,misdescribed,unstartable,nameless,deaf,honest";
    let (code, said) = folder.run(&["run", "fanout", "--smoke", "--peers", names]);
    assert_eq!(code, 1, "{said}");
    // The error occurs once, although the lab looks for the compiler twice.
    assert_eq!(said.matches("no compiler here").count(), 1, "{said}");
    assert!(
        said.contains("without uninstallable: ") && said.contains("peers/uninstallable/install failed"),
        "{said}"
    );
    assert!(said.contains("without misdescribed: ") && said.contains("unknown field `abuot`"), "{said}");
    let result = read(&folder.results()[0]);
    let servers = result["report"]["cases"][0]["servers"].as_array().unwrap();
    let trial_of = |name: &str| &servers.iter().find(|server| server["name"] == name).unwrap()["trials"][0];
    for (server, told) in [
        ("crashing", "out of luck"),
        ("babbling", "in the handshake"),
        ("unstartable", "the port is taken"),
        ("nameless", "names no address"),
        ("deaf", "refused"),
    ] {
        let trial = trial_of(server);
        assert!(trial["figures"].as_object().unwrap().is_empty(), "{server}: {trial}");
        let doubt = trial["doubts"][0]["what"].as_str().unwrap();
        assert!(doubt.contains(server) && doubt.contains(told), "{server}: {doubt}");
        // The report must show each doubt.
        assert!(said.contains(doubt.lines().next().unwrap()), "{doubt} / {said}");
    }
    assert!(said.contains("not everybody could be measured"), "{said}");
    assert!(!trial_of("honest")["figures"].as_object().unwrap().is_empty(), "{said}");
    // The report has the figures of the honest peer. If the machine was too busy, it has the reason in their place.
    let doubts = trial_of("honest")["doubts"].as_array().unwrap();
    let is_measured =
        said.lines().any(|line| line.trim_start().starts_with("honest ") && line.contains(" µs"));
    let is_disturbed = |doubt: &Value| fakes::is_of_disturbance(doubt["what"].as_str().unwrap());
    assert!(is_measured || (!doubts.is_empty() && doubts.iter().all(is_disturbed)), "{said}");
    assert_eq!(result["report"]["missing"], serde_json::json!(["uninstallable", "misdescribed"]), "{said}");
}

#[test]
fn installing_tells_of_each_and_goes_on() {
    let folder = Folder::new("installing");
    let touch = format!("touch {}", folder.path("installed").display());
    folder
        .script("honest", &touch, "exit 0")
        .script("uninstallable", "echo no compiler here >&2; exit 1", "exit 0")
        .script("unusable", "exit 0", "exit 0");
    fs::set_permissions(folder.path("peers/unusable/install"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(folder.path("peers/README.md"), "npm\n").unwrap();
    let check = |arguments: &[&str], code: i32, told: &[&str]| {
        let (found, said) = fakes::said(folder.tell(arguments).output().unwrap());
        assert!(found == code && told.iter().all(|told| said.contains(told)), "{found}: {said}");
    };
    // An unknown name is an error. Nothing is installed then.
    check(&["install", "honest", "nobody"], 1, &["no server `nobody`; there are", "honest"]);
    assert!(!folder.path("installed").exists());
    let why = [
        "peers/uninstallable/install failed",
        "peers/README.md has what",
        "no compiler here",
        "honest: ready",
    ];
    check(&["install", "uninstallable", "honest"], 1, &why);
    assert!(folder.path("installed").exists());
    check(&["install", "unusable"], 1, &["server unusable: ", "peers/unusable/install can't be run"]);
    check(&["install", "honest"], 0, &["honest: ready"]);
    check(&["peers"], 0, &["honest"]);
    fs::write(folder.path("peers/unusable/peer.toml"), "about = 1\n").unwrap();
    check(&["peers"], 1, &["honest", "peers/unusable/peer.toml: "]);
    check(&["install", "--all"], 1, &["honest: ready", "peers/unusable/peer.toml: ", "not installed: "]);
    fs::remove_dir_all(folder.path("peers")).unwrap();
    check(&["peers"], 0, &["stentor", "there are no peers in"]);
    check(&["install", "--all"], 1, &["there are no peers in"]);
}

#[test]
fn misspelt_names_are_answered_with_those_there_are() {
    let folder = Folder::new("misspelt");
    folder.peer("honest", Fault::None, 7);
    let check = |arguments: &[&str], code: i32, told: &str| {
        let (found, said) = folder.run(arguments);
        assert!(found == code && said.contains(told), "{found}: {said}");
    };
    check(&["run", "fan-out", "--smoke", "--peers", "honest"], 1, "there are echo-25k");
    for (arguments, code, told) in [
        (&["--peers", "honset"][..], 1, "no server `honset`; there are"),
        (&["--peers", "honest:fog"], 1, "doesn't speak `fog`, but websocket"),
        (&["--peers", "stentor:fog"], 1, "doesn't speak `fog`"),
        (&["--peers", "honest,honest"], 1, "honest is named twice"),
        (&["--peers", "honest", "--cases", "fog"], 1, "no case `fog`; there are"),
        (&["--peers", "honest", "--pairs", "0"], 2, "a number from 1"),
        (&["--peers", "honest", "--resume"], 1, "no result of fanout"),
        (&["--peers", "honest", "--quick"], 2, "cannot be used with"),
    ] {
        check(&[&["run", "fanout", "--smoke"], arguments].concat(), code, told);
    }
    fs::remove_dir_all(folder.path("results")).unwrap();
    fs::write(folder.path("results"), "no folder").unwrap();
    check(&["run", "fanout", "--smoke", "--peers", "honest"], 1, "/results: ");
}

/// Names of the processes with this text in their environment.
fn marked(mark: &str) -> Vec<String> {
    let is_marked = |folder: &Path| {
        let environment = fs::read(folder.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let marked = processes.filter(|folder| is_marked(folder));
    marked.map(|folder| fs::read_to_string(folder.join("comm")).unwrap_or_default()).collect()
}

/// A named pipe, and its reading end. `stays` keeps the pipe open after the last writer has closed it.
struct Fifo {
    path: PathBuf,
    reader: File,
}

impl Fifo {
    fn new(folder: &Folder, name: &str, stays: bool) -> Self {
        let path = folder.path(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        // Opening the pipe doesn't wait for a writer.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let reader = OpenOptions::new().read(true).write(stays).custom_flags(flags).open(&path).unwrap();
        Self { path, reader }
    }

    /// Waits until the pipe has data or ends. Returns `true` if it ends.
    fn ends(&mut self, within: Duration) -> bool {
        let timeout = within.try_into().unwrap();
        let ready = poll(&mut [PollFd::new(&self.reader, PollFlags::IN)], Some(&timeout)).unwrap();
        assert_eq!(ready, 1, "{} has nothing", self.path.display());
        self.reader.read(&mut [0]).unwrap() == 0
    }
}

/// Runs a command that holds the writing end of a pipe, as do all processes that it starts.
fn holding(fifo: &Fifo, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "fifo=$0; exec \"$@\" 9>\"$fifo\""]).arg(&fifo.path);
    shell.arg(command.get_program()).args(command.get_args()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

/// Waits until no process holds the pipe or has this text in its environment. Terminated processes may take a moment.
/// If not terminated, they would run much longer.
fn check_all_gone(mut held: Fifo, mark: &str, said: &str) {
    assert!(held.ends(Duration::from_secs(30)), "{said}");
    assert_eq!(marked(mark), Vec::<String>::new(), "{said}");
    fs::remove_file(held.path).unwrap();
}

#[test]
fn an_interrupt_keeps_what_was_measured_and_leaves_nobody_behind() {
    let folder = Folder::new("interrupted");
    let mut started = Fifo::new(&folder, "started", true);
    let run = format!("echo >{}; {}", started.path.display(), fakes::serve(Fault::None, 7));
    folder.script("honest", "exit 0", &run);
    let variable = "STENTOR_LAB_TEST";
    let mark = format!("{variable}={}", std::process::id());
    let run = ["run", "fanout", "--smoke", "--peers", "honest", "--pairs", "500"];
    let held = Fifo::new(&folder, "held", false);
    let mut command = holding(&held, &folder.command(&run));
    let lab = command.env(variable, std::process::id().to_string()).spawn().unwrap();
    // Waits until one run is in the file and another one is under way.
    loop {
        assert!(!started.ends(Duration::from_secs(120)));
        if !folder.results().is_empty() {
            break;
        }
    }
    kill_process(Pid::from_child(&lab), Signal::INT).unwrap();
    let (code, said) = fakes::said(lab.wait_with_output().unwrap());
    assert_eq!(code, 130, "{said}");
    assert!(said.contains("interrupted") && said.contains("--resume"), "{said}");
    check_all_gone(held, &mark, &said);
    let path = folder.results()[0].clone();
    let measured = trials(&read(&path), 0).clone();
    assert!(!measured.is_empty() && measured.len() < 500, "{said}");
    assert!(measured.iter().all(|trial| !trial["figures"].as_object().unwrap().is_empty()), "{measured:?}");
    assert!(fs::read_to_string(path.with_extension("html")).unwrap().ends_with("</html>"));

    // Resumes with the same file, for two more pairs.
    let pairs = (measured.len() + 2).to_string();
    let (code, said) =
        folder.run(&["run", "fanout", "--smoke", "--peers", "honest", "--pairs", &pairs, "--resume"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(&format!("{} of {pairs} runs were measured before", measured.len())), "{said}");
    assert_eq!(folder.results(), std::slice::from_ref(&path));
    let result = read(&path);
    let resumed = trials(&result, 0);
    assert_eq!(resumed.len(), measured.len() + 2);
    assert_eq!(resumed[..measured.len()], measured[..]);

    // A changed result can't be resumed.
    let check = |change: &dyn Fn(&mut Value), told: &str| {
        let mut other = result.clone();
        change(&mut other);
        fs::write(&path, other.to_string()).unwrap();
        let file = path.to_str().unwrap();
        let (code, said) = folder.run(&["run", "fanout", "--smoke", "--peers", "honest", "--resume", file]);
        assert!(code == 1 && said.contains("can't be resumed") && said.contains(told), "{said}");
    };
    check(&|result| result["servers"][0]["versions"]["honest"] = "2".into(), "honest 2 / honest 1");
    check(&|result| result["effort"] = "full".into(), "effort: full / smoke");
    check(&|result| result["machine"]["kernel"] = "2.4".into(), "kernel: 2.4");
}

#[test]
fn an_interrupt_ends_what_installs() {
    let folder = Folder::new("installs");
    let mut begun = Fifo::new(&folder, "begun", true);
    folder.script("endless", &format!("sleep 100 & echo >{}; wait", begun.path.display()), "exit 0");
    let variable = "STENTOR_LAB_TEST_INSTALL";
    let mark = format!("{variable}={}", std::process::id());
    let run = ["run", "fanout", "--smoke", "--peers", "endless", "--congestion", "system"];
    for (arguments, told) in
        [(&["install", "endless"][..], "isn't installed"), (&run[..], "nothing was measured yet")]
    {
        let held = Fifo::new(&folder, "held", false);
        let mut command = holding(&held, &folder.tell(arguments));
        let command = command.env(variable, std::process::id().to_string()).current_dir(folder.path(""));
        let lab = command.spawn().unwrap();
        assert!(!begun.ends(Duration::from_secs(120)));
        kill_process(Pid::from_child(&lab), Signal::TERM).unwrap();
        let (code, said) = fakes::said(lab.wait_with_output().unwrap());
        assert!(code == 143 && said.contains("interrupted; ") && said.contains(told), "{code}: {said}");
        check_all_gone(held, &mark, &said);
    }
}

/// A run without a result is repeated, in its place.
#[test]
fn a_failed_run_is_repeated_when_resumed() {
    let folder = Folder::new("failed-once");
    folder.peer("honest", Fault::None, 7);
    let run = ["run", "fanout", "--smoke", "--peers", "honest", "--pairs", "2"];
    let (code, said) = folder.run(&run);
    assert_eq!(code, 0, "{said}");
    let path = folder.results()[0].clone();
    let mut result = read(&path);
    let before = trials(&result, 0).clone();
    result["report"]["cases"][0]["servers"][0]["trials"][0]["figures"] = serde_json::json!({});
    fs::write(&path, result.to_string()).unwrap();
    let (code, said) = folder.run(&[&run[..], &["--resume"]].concat());
    assert!(code == 0 && said.contains("1 of 2 runs were measured before"), "{said}");
    let result = read(&path);
    let after = trials(&result, 0);
    assert!(after.len() == 2 && after[1] == before[1] && after[0] != before[0], "{after:?}");
    assert!(!after[0]["figures"].as_object().unwrap().is_empty(), "{after:?}");
}
