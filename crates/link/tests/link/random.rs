//! Random bytes that are read, random changes of valid frames, and workers that write random entries.

use crate::vectors::{read, worker_entries};
use crate::{hello_frame, json, name, text};
use bytes::Bytes;
use smallvec::smallvec;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use stentor_link::{
    Action, Application, ApplicationOptions, Entry, FrameError, Handle, Hello, Namespace, QueuedBytes,
    Received, ServerEntry, SessionId, WorkerEntry, Writer,
};

/// Entries that can be read can be written, and then read the same.
fn check<E: Entry + std::fmt::Debug + PartialEq>(frame: &[u8]) -> usize {
    let Ok(received) = Received::<E>::new(Bytes::copy_from_slice(frame)) else { return 0 };
    let (number, ack) = (received.number, received.ack);
    let mut writer = Writer::default();
    let entries: Vec<E> = received.map_while(Result::ok).collect();
    entries.iter().for_each(|entry| writer.entry(entry));
    let written = writer.finish(number, ack).to_bytes();
    // The encoding is unique, but that a JSON text may be left out.
    assert_eq!(written, frame[..written.len()]);
    assert_eq!(read::<E>(&written).as_ref(), Ok(&entries));
    entries.len()
}

#[test]
fn random_entries_read_the_same_after_they_were_written() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut found = 0;
    for _ in 0..50_000 {
        let mut frame = vec![0; 8];
        // Small numbers make lengths and counts that often fit.
        while frame.len() < 40 {
            frame.push(match rng.u8(..4) {
                0 => rng.u8(..),
                1 => rng.u8(..4),
                2 => rng.u8(1..22),
                _ => 0,
            });
        }
        found += check::<WorkerEntry>(&frame);
        frame[8] = frame[8].wrapping_add(63);
        found += check::<ServerEntry>(&frame);
    }
    assert!(found > 5_000, "{found}");
}

#[test]
fn frames_with_changed_bytes_are_read_or_refused() {
    let valid = b"\x01\0\0\0\0\0\0\0\x06\x07\0\0\0\0\0\x02\0id\0\0\x02\0\x02\0id\x01\0r\x07\0\0\0{\"a\":1}\
                  \x0a\0\0\x17\x01\0\x01\0r\x02\0\x01\0x\x02\0yy\x02\0o1\x02\0\x06\0\0\x0051-\x03\0\0\0\x01\x15";
    assert_eq!(read::<WorkerEntry>(valid).map(|entries| entries.len()), Ok(3));
    let mut refused = 0;
    for at in 8..valid.len() {
        for value in 0..=255 {
            let mut frame = valid.to_vec();
            frame[at] = value;
            check::<WorkerEntry>(&frame);
            let result: Result<Vec<_>, FrameError> = read::<WorkerEntry>(&frame);
            refused += usize::from(result.is_err());
        }
    }
    assert!(refused > 1_000, "{refused}");
}

/// Entries that say something about sessions and namespaces that exist.
fn plausible(rng: &mut fastrand::Rng) -> WorkerEntry {
    let (handle, namespace) = (Handle(rng.u32(..6)), Namespace(rng.u16(..2)));
    let bye = |mode: &str| WorkerEntry::Bye { bye: json(&format!(r#"{{"mode":"{mode}"}}"#)) };
    match rng.u8(..12) {
        0 => WorkerEntry::Accept { handle, headers: json("{}") },
        1 => WorkerEntry::Refuse { handle, response: json("{}") },
        2 => WorkerEntry::Close { handle, discard: true },
        3 => WorkerEntry::Del { handle, namespace },
        4 => WorkerEntry::Released { handle, namespace: Namespace::END, data: None },
        5 => WorkerEntry::Config {
            config: json(if rng.bool() { r#"{"asks":true}"# } else { r#"{"asks":false}"# }),
        },
        6 if rng.u8(..4) == 0 => bye("handover"),
        7 if rng.u8(..4) == 0 => bye("done"),
        8 if rng.u8(..4) == 0 => bye("stop"),
        9 if rng.u8(..4) == 0 => rng.choice(worker_entries()).unwrap().0,
        _ => WorkerEntry::Nop {},
    }
}

/// The next action. Changes of sockets don't wait.
fn next_action(app: &mut Application, now: Instant) -> Option<Action> {
    loop {
        match app.poll_action() {
            None if app.proceed(0, now).is_some() => {}
            action => return action,
        }
    }
}

/// Random entries of workers: each request is answered once, and each session that was accepted is closed once at most.
#[test]
fn workers_that_write_random_entries_do_no_harm() {
    let mut ended = 0;
    for seed in 0..1_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut now = Instant::now();
        let mut app = Application::new(ApplicationOptions::default(), 1);
        let (mut open, mut requested, mut last) = (BTreeSet::new(), BTreeSet::new(), 0);
        let (mut link, mut number) = (0, 0);
        for step in 0..60 {
            let needs_link = app.link(link).is_none_or(|link| link.is_ended());
            match rng.u8(..6) {
                _ if needs_link => {
                    let hello = Hello::read(hello_frame(&format!("{step}"), (None, 0), "redeliver")).unwrap();
                    (link, number) = (app.handle_hello(hello, now).unwrap(), 0);
                }
                0 => {
                    last += 1;
                    requested.insert(last);
                    app.handle_request(SessionId(last), json("{}"), QueuedBytes::default(), now);
                }
                1 => app.handle_message(SessionId(rng.u64(..=last)), smallvec![text("2")], now),
                2 if rng.bool() => {
                    let id = rng.u64(..=last);
                    app.handle_closed(SessionId(id), name("x"), None, now);
                    requested.remove(&id);
                    open.remove(&id);
                }
                2 => _ = app.release(SessionId(rng.u64(..=last)), now),
                _ => {
                    let mut writer = Writer::default();
                    if number == 0 {
                        let names = ["/", "/a"].into_iter().zip(0..);
                        names.for_each(|(text, index)| {
                            writer.entry(&WorkerEntry::Nsp { namespace: Namespace(index), name: name(text) });
                        });
                    }
                    (0..rng.u8(1..4)).for_each(|_| writer.entry(&plausible(&mut rng)));
                    number += 1;
                    app.handle_frame(link, writer.finish(number, 0).to_bytes(), now);
                    ended += u32::from(app.link(link).is_none_or(|link| link.is_ended()));
                }
            }
            now += Duration::from_millis(rng.u64(..50));
            app.handle_timeout(now);
            while let Some(action) = next_action(&mut app, now) {
                match action {
                    Action::Accept(id, _) => {
                        assert!(requested.remove(&id.0) && open.insert(id.0), "seed {seed}")
                    }
                    Action::Refuse(id, _) => assert!(requested.remove(&id.0), "seed {seed}"),
                    Action::Close(id, _) => assert!(open.remove(&id.0), "seed {seed}"),
                    Action::Session(_, id, _) => {
                        assert!(open.contains(&id.0) || requested.contains(&id.0), "seed {seed}");
                    }
                    Action::Describe(id, handle) => app.handle_description(id, handle, json("{}"), now),
                    _ => {}
                }
            }
            assert_eq!(app.len(), open.len() + requested.len(), "seed {seed}");
        }
    }
    assert!(ended > 500, "{ended}");
}
