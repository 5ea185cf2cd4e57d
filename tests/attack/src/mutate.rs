//! Mutations of a [`Script`], all from one random number generator: the same seed makes the same sessions.

use crate::script::{Port, Script, Step};
use bytes::Bytes;
use fastrand::Rng;
use std::time::Duration;

/// Maximum number of mutations of one session.
const MUTATIONS_MAX: usize = 4;
/// Maximum size of a send in bytes. A larger send isn't doubled again.
const SEND_BYTES_MAX: usize = 2 << 20;
/// Maximum number of bytes that are sent one by one: a session lasts only a second or two.
const DRIBBLED_BYTES_MAX: usize = 400;

/// Inputs that often break parsers: boundary numbers, separators, names with a meaning in some language.
const WORDS: [&[u8]; 26] = [
    b"0",
    b"-1",
    b"65536",
    b"2147483648",
    b"4294967295",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1e999",
    b"\x00",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\r\n",
    b"\r\n\r\n",
    b"\x1e",
    b"\"",
    b"\\",
    b"\\ud800",
    b"[[[[[[[[",
    b"{\"\":",
    b"__proto__",
    b"constructor",
    b"%2f..%2f",
    b"{sid}",
    b"451-",
    b"Transfer-Encoding: chunked\r\n",
];

/// Returns a mutation of `seed`, possibly mixed with `other`.
pub(crate) fn mutate(seed: &Script, other: &Script, rng: &mut Rng) -> Script {
    let mut script = seed.clone();
    for _ in 0..rng.usize(0..=MUTATIONS_MAX) {
        match rng.u8(0..18) {
            0..=4 => change_bytes(&mut script, rng),
            5 => change_length(&mut script, rng),
            6 => splice(&mut script, other, rng),
            7 => splice_bytes(&mut script, other, rng),
            8 => repeat_step(&mut script, rng),
            9 => swap_steps(&mut script, rng),
            10 => remove_step(&mut script, rng),
            11 => dribble(&mut script, rng),
            12 => split_send(&mut script, rng),
            13 => join_sends(&mut script),
            14 => end(&mut script, rng),
            15 => reroute(&mut script, Port::Tunnel),
            16 => reroute(&mut script, Port::Second),
            _ => script.reads = !script.reads,
        }
    }
    script
}

/// Returns a random index of a list; `None` if the list is empty.
fn pick(length: usize, rng: &mut Rng) -> Option<usize> {
    (length > 0).then(|| rng.usize(..length))
}

/// Returns the index of a random step that sends bytes.
fn pick_send(script: &Script, rng: &mut Rng) -> Option<usize> {
    let sends =
        |(at, step): (usize, &Step)| matches!(step, Step::Send(_, bytes) if !bytes.is_empty()).then_some(at);
    let all: Vec<usize> = script.steps.iter().enumerate().filter_map(sends).collect();
    Some(all[pick(all.len(), rng)?])
}

/// Changes the bytes that a random step sends.
fn edit(script: &mut Script, rng: &mut Rng, change: impl FnOnce(&mut Vec<u8>, &mut Rng)) {
    let Some(at) = pick_send(script, rng) else { return };
    if let Step::Send(_, sent) = &mut script.steps[at] {
        let mut bytes = sent.to_vec();
        change(&mut bytes, rng);
        *sent = bytes.into();
    }
}

/// Returns a range of bytes, usually a short one.
fn range(length: usize, rng: &mut Rng) -> std::ops::Range<usize> {
    let start = rng.usize(0..=length);
    let longest = if rng.bool() { 8 } else { length };
    start..(start + rng.usize(0..=longest)).min(length)
}

fn change_bytes(script: &mut Script, rng: &mut Rng) {
    edit(script, rng, |bytes, rng| match rng.u8(0..6) {
        0 => {
            for _ in 0..rng.usize(1..8) {
                let at = rng.usize(..bytes.len());
                bytes[at] ^= 1 << rng.u8(0..8);
            }
        }
        1 => bytes.truncate(rng.usize(..bytes.len())),
        2 => drop(bytes.drain(range(bytes.len(), rng))),
        3 if bytes.len() < SEND_BYTES_MAX => {
            let again = bytes[range(bytes.len(), rng)].to_vec();
            let at = rng.usize(0..=bytes.len());
            bytes.splice(at..at, again);
        }
        4 => {
            let word = WORDS[rng.usize(..WORDS.len())];
            let place = range(bytes.len(), rng);
            bytes.splice(place, word.iter().copied());
        }
        _ => {
            let place = range(bytes.len(), rng);
            bytes[place].iter_mut().for_each(|byte| *byte = rng.u8(..));
        }
    });
}

/// Changes a stated length: in a WebSocket frame's header, or the first decimal number after a colon or a
/// question mark, as in `Content-Length` and Engine.IO's payloads.
fn change_length(script: &mut Script, rng: &mut Rng) {
    edit(script, rng, |bytes, rng| {
        let is_frame = bytes.len() >= 6 && !bytes[0].is_ascii_graphic();
        if is_frame {
            bytes[1] = if rng.bool() { 0xfe | rng.u8(0..2) } else { rng.u8(..) };
            return;
        }
        let numbers: Vec<usize> = (1..bytes.len())
            .filter(|at| bytes[*at].is_ascii_digit() && !bytes[at - 1].is_ascii_digit())
            .collect();
        let Some(number) = pick(numbers.len(), rng) else { return };
        let start = numbers[number];
        let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let value = match rng.u8(0..3) {
            0 => String::from_utf8_lossy(WORDS[rng.usize(..8)]).into_owned(),
            1 => rng.u64(..).to_string(),
            _ => rng.u16(..2000).to_string(),
        };
        bytes.splice(start..start + digits, value.into_bytes());
    });
}

/// Joins the beginning of one session and the end of another one.
fn splice(script: &mut Script, other: &Script, rng: &mut Rng) {
    script.steps.truncate(rng.usize(0..=script.steps.len()));
    let from = rng.usize(0..=other.steps.len());
    script.steps.extend_from_slice(&other.steps[from..]);
    if !script.steps.iter().any(|step| matches!(step, Step::Open(..))) {
        script.steps.insert(0, Step::Open(0, Port::Public));
    }
    script.repeat_from = None;
}

/// Inserts bytes of one session into a send of another one.
fn splice_bytes(script: &mut Script, other: &Script, rng: &mut Rng) {
    let Some(Step::Send(_, theirs)) = pick_send(other, rng).map(|at| other.steps[at].clone()) else { return };
    edit(script, rng, |bytes, rng| {
        let place = range(bytes.len(), rng);
        bytes.splice(place, theirs[range(theirs.len(), rng)].iter().copied());
    });
}

fn repeat_step(script: &mut Script, rng: &mut Rng) {
    let Some(at) = pick(script.steps.len(), rng) else { return };
    let (step, times) = (script.steps[at].clone(), rng.usize(1..8));
    // The copies are inserted once, into the script: a repeated session doesn't grow with every pass.
    script.steps.splice(at..at, std::iter::repeat_n(step, times));
}

fn swap_steps(script: &mut Script, rng: &mut Rng) {
    let length = script.steps.len();
    if let (Some(one), Some(other)) = (pick(length, rng), pick(length, rng)) {
        script.steps.swap(one, other);
    }
}

fn remove_step(script: &mut Script, rng: &mut Rng) {
    if let Some(at) = pick(script.steps.len(), rng) {
        script.steps.remove(at);
    }
}

fn dribble(script: &mut Script, rng: &mut Rng) {
    let Some(at) = pick_send(script, rng) else { return };
    if let Step::Send(lane, bytes) = &script.steps[at] {
        let (lane, mut slow) = (*lane, bytes.clone());
        let rest = slow.split_off(slow.len().min(DRIBBLED_BYTES_MAX));
        let pause = Duration::from_millis(rng.u64(0..5));
        script.steps.splice(at..=at, [Step::Dribble(lane, slow, pause), Step::Send(lane, rest)]);
    }
}

fn split_send(script: &mut Script, rng: &mut Rng) {
    let Some(at) = pick_send(script, rng) else { return };
    if let Step::Send(lane, bytes) = &script.steps[at] {
        let (lane, mut first) = (*lane, bytes.clone());
        let rest = first.split_off(rng.usize(0..=first.len()));
        let pause = Step::Pause(Duration::from_millis(rng.u64(0..50)));
        script.steps.splice(at..=at, [Step::Send(lane, first), pause, Step::Send(lane, rest)]);
    }
}

/// Sends everything at once, without waiting for answers.
fn join_sends(script: &mut Script) {
    let mut joined: Vec<Step> = Vec::new();
    for step in script.steps.drain(..) {
        match (&step, joined.last_mut()) {
            (Step::Receive(_), _) => {}
            (Step::Send(lane, bytes), Some(Step::Send(last, sent)))
                if last == lane && sent.len() < SEND_BYTES_MAX =>
            {
                *sent = Bytes::from([sent.as_ref(), bytes.as_ref()].concat());
            }
            _ => joined.push(step),
        }
    }
    script.steps = joined;
    script.repeat_from = None;
}

/// Sends the session to another port: over TLS, or to the second server.
fn reroute(script: &mut Script, to: Port) {
    for step in &mut script.steps {
        if let Step::Open(_, port @ Port::Public) = step {
            *port = to;
        }
    }
}

/// Inserts an abrupt end at a random place.
fn end(script: &mut Script, rng: &mut Rng) {
    let at = rng.usize(0..=script.steps.len());
    let lane = rng.usize(0..2);
    let step = match rng.u8(0..3) {
        0 => Step::Reset(lane),
        1 => Step::Close(lane),
        _ => Step::HalfClose(lane),
    };
    script.steps.insert(at, step);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::Seeds;

    #[test]
    fn the_same_seed_makes_the_same_session() {
        let seeds = Seeds::new(true);
        let make = |seed| {
            let mut rng = Rng::with_seed(seed);
            let (one, other) = (seeds.pick(&mut rng), seeds.pick(&mut rng));
            mutate(one, other, &mut rng)
        };
        for seed in 0..300 {
            assert_eq!(make(seed), make(seed), "{seed}");
        }
        assert!((0..20).any(|seed| make(seed) != make(seed + 1)));
    }

    /// Sessions are bounded: a round must not become a load test of this machine's memory.
    #[test]
    fn sessions_stay_small() {
        let seeds = Seeds::new(true);
        for number in 0..500 {
            let mut rng = Rng::with_seed(number);
            let (one, other) = (seeds.pick(&mut rng), seeds.pick(&mut rng));
            let script = mutate(one, other, &mut rng);
            let sent: usize = script
                .steps
                .iter()
                .map(|step| match step {
                    Step::Send(_, bytes) | Step::Dribble(_, bytes, _) => bytes.len(),
                    _ => 0,
                })
                .sum();
            assert!(sent < 64 << 20, "{number}: {sent}");
        }
    }
}
