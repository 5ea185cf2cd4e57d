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
