use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use super::*;

#[test]
fn reads_sockstat() {
    let text = "sockets: used 50\nTCP: inuse 12 orphan 0 tw 5 alloc 13 mem 3\nUDP: inuse 1 mem 9\n";
    assert_eq!((socket_pages(text), socket_pages("")), (3, 0));
}

#[test]
fn sees_memfds() {
    let pid = std::process::id();
    let before = memfd_bytes(pid).unwrap();
    let memfd = rustix::fs::memfd_create(c"test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&memfd, &[1; 10_000]).unwrap();
    let with = memfd_bytes(pid).unwrap();
    assert!((10_000..20_000).contains(&(with - before)), "{before} {with}");
}

#[test]
fn sees_our_own_pages() {
    let before = ProcessMemory::of_process(std::process::id()).unwrap();
    let pages = vec![1u8; 32 << 20];
    let after = ProcessMemory::of_process(std::process::id()).unwrap();
    assert!(after.private_bytes > before.private_bytes + (24 << 20), "{before:?} {after:?}");
    assert!(after.peak_resident_bytes >= 32 << 20);
    drop(pages);
}

/// The kernel reports the program's unwritten pages as shared once two processes run it. The program is a copy, so that no other process
/// runs it.
#[test]
fn another_process_of_the_same_program_changes_nothing() {
    let program = std::env::temp_dir().join(format!("stentor-lab-cat-{}", std::process::id()));
    fs::copy("/bin/cat", &program).unwrap();
    // A process that has answered waits for its next line, and uses no further memory.
    let start = || -> Child {
        let mut command = Command::new(&program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"line\n").unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        child
    };
    let mut first = start();
    let alone = ProcessMemory::of_process(first.id()).unwrap().private_bytes;
    let mut second = start();
    let beside = ProcessMemory::of_process(first.id()).unwrap().private_bytes;
    for child in [&mut first, &mut second] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    fs::remove_file(&program).unwrap();
    assert!(alone > 0);
    assert_eq!(alone, beside);
}
