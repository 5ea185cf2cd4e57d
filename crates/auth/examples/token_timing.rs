//! How long it takes to verify a token, and to find one that was verified before.
//!
//!     cargo run --release -p stentor-auth --example token_timing

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for people")]

use std::hint::black_box;
use std::time::Instant;
use stentor_auth::{Algorithm, Digest, Issuer, Key, KeySet, TokenCache, Unverified};

const NOW: u64 = 1_700_000_100;

fn measure(name: &str, mut work: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..20 {
        let (begin, times) = (Instant::now(), 500);
        (0..times).for_each(|_| work());
        best = best.min(begin.elapsed().as_secs_f64() / f64::from(times));
    }
    println!("{name:12} {:6.1} µs", best * 1e6);
}

fn main() {
    let vectors: serde_json::Value = serde_json::from_str(include_str!("../tests/vectors.json")).unwrap();
    let mut keys = KeySet::parse(vectors["jwks"].to_string().as_bytes()).unwrap().keys;
    keys.push(Key::secret(Some("HS"), vectors["secret"].as_str().unwrap().as_bytes()).unwrap());
    let issuer = Issuer {
        name: "https://id.test/".into(),
        audience: Some("stentor".into()),
        algorithms: Algorithm::ALL.into(),
        leeway_seconds: 30,
        lifetime_seconds_max: 3600,
    };
    for (name, token) in vectors["tokens"].as_object().unwrap() {
        let token = token.as_str().unwrap();
        measure(name, || {
            black_box(Unverified::parse(token).unwrap().verify(&issuer, &keys, NOW).unwrap());
        });
    }
    let token = vectors["tokens"]["ES256"].as_str().unwrap();
    let mut cache = TokenCache::new(1 << 20);
    cache.insert(Digest::of(token), (), 1000, u64::MAX);
    measure("known before", || cache.find(Digest::of(black_box(token)), NOW).unwrap());
}
