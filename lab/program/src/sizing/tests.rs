use super::*;

/// Costs of round figures.
const COSTS: &str = r#"
calibration_us = [5.0, "s"]
[sources.s]
date = "2026-01-01"
about = "made up"
[protocols.websocket]
message_us = [6.0, "s"]
deliver_us = [2.0, "s"]
connect_us = [20.0, "s"]
idle_us = [1.0, "s"]
bytes = [400.0, "s"]
[tls]
message_us = [1.0, "s"]
kilobyte_us = [0.5, "s"]
connect_us = [100.0, "s"]
bytes = [4000.0, "s"]
[deflate]
publication_us = [50.0, "s"]
delivery_us = [0.5, "s"]
[feeds]
version_us = [70.0, "s"]
kilobyte_us = [3.0, "s"]
bytes = [2000.0, "s"]
[process]
kilobyte_us = [0.2, "s"]
hop_us = [3.0, "s"]
bytes = [20e6, "s"]
socket_bytes = [5000.0, "s"]
room_bytes = [150.0, "s"]
[cluster]
publish_us = [50.0, "s"]
receive_us = [30.0, "s"]
interest_bytes = [50.0, "s"]
[engines.redis]
message_us = [1.5, "s"]
node_us = [0.5, "s"]
"#;

fn costs() -> Costs {
    Costs::parse(COSTS).unwrap()
}

fn load() -> Load {
    Load { protocol: "websocket".into(), bytes: 100.0, recipients: 1.0, ..Load::default() }
}

/// One core without a reserve, so that the CPU is the sum of the works.
fn one_core() -> Machines {
    Machines { cores: 1.0, memory_bytes: 1e12, reserve: 0.0, calibration: 1.0, engine: "redis".into() }
}

/// The CPU of a load on one node with a single core, in microseconds per second.
fn cpu_us(load: Load) -> f64 {
    plan(&load, &Machines { cores: 1e9, ..one_core() }, &costs())
        .map(|plan| {
            let of_cores = |part: &&Part| part.name == "messages between cores";
            let hops: f64 = plan.cpu.iter().filter(of_cores).map(|part| part.amount).sum();
            ((plan.busy_cores - hops) * 1e6 * 1e3).round() / 1e3
        })
        .unwrap()
}

#[test]
fn cpu_is_the_sum_of_rates_times_costs() {
    let ten = |change: fn(&mut Load)| {
        let mut load = Load { messages_hz: 10.0, ..load() };
        change(&mut load);
        cpu_us(load)
    };
    // A message is received and delivered once, and then to each further recipient.
    assert_eq!(ten(|_| {}), 10.0 * 6.0);
    assert_eq!(ten(|load| load.recipients = 0.0), 10.0 * 6.0);
    assert_eq!(ten(|load| load.recipients = 5.0), 10.0 * (6.0 + 4.0 * 2.0));
    // Two kilobytes above the size of the figures, for each recipient.
    assert_eq!(ten(|load| load.bytes = 2_100.0), 10.0 * (6.0 + 2.0 * 0.2));
    let long = ten(|load| (load.bytes, load.recipients) = (2_100.0, 5.0));
    assert_eq!(long, 10.0 * (6.0 + 4.0 * 2.0 + 5.0 * 2.0 * 0.2));
    assert_eq!(ten(|load| load.tls = true), 10.0 * (6.0 + 2.0 * 1.0));
    let with_tls = ten(|load| (load.tls, load.bytes, load.recipients) = (true, 2_100.0, 2.0));
    assert_eq!(with_tls, 10.0 * (6.0 + 2.0 + 3.0 * 1.0 + 2.0 * 2.0 * (0.2 + 0.5)));
    let deflated = ten(|load| (load.deflate, load.recipients, load.bytes) = (true, 5.0, 600.0));
    assert_eq!(deflated, 10.0 * (6.0 + 4.0 * 2.0 + 5.0 * 0.5 * 0.2 + 50.0 + 5.0 * 0.5));
    assert_eq!(ten(|load| load.deflate = true), ten(|_| {}));
    assert_eq!(cpu_us(Load { connects_hz: 3.0, ..load() }), 60.0);
    assert_eq!(cpu_us(Load { connects_hz: 3.0, tls: true, ..load() }), 360.0);
    assert_eq!(cpu_us(Load { connections: 1_000.0, ..load() }), 1_000.0);
    let feeds = Feeds { count: 10.0, bytes: 2_000.0, versions_hz: 2.0 };
    // Twenty versions, and two deltas per second to each of 100 connections, of 1.3 kB.
    let expected = 20.0 * (70.0 + 2.0 * 3.0) + 200.0 * (2.0 + 1.2 * 0.2) + 100.0;
    assert_eq!(cpu_us(Load { connections: 100.0, feeds, ..load() }), expected);
}

#[test]
fn calibration_scales_the_cpu_and_not_the_memory() {
    let load = Load { messages_hz: 1_000.0, connections: 500.0, ..load() };
    let [own, slow] =
        [1.0, 1.3].map(|calibration| plan(&load, &Machines { calibration, ..one_core() }, &costs()).unwrap());
    assert!((slow.busy_cores / own.busy_cores - 1.3).abs() < 1e-9);
    assert_eq!(slow.used_bytes, own.used_bytes);
    assert_eq!(costs().calibration(6.5), 1.3);
}

#[test]
fn memory_is_the_sum_of_counts_times_sizes() {
    let used = |load: Load| plan(&load, &one_core(), &costs()).unwrap().used_bytes;
    let connections = Load { connections: 1_000.0, ..load() };
    assert_eq!(used(connections.clone()), 20e6 + 1_000.0 * (400.0 + 5_000.0));
    assert_eq!(used(Load { tls: true, ..connections }), 20e6 + 1_000.0 * (400.0 + 5_000.0 + 4_000.0));
    let feeds = Feeds { count: 10.0, bytes: 5_000.0, versions_hz: 0.0 };
    assert_eq!(used(Load { rooms: 100.0, feeds, ..load() }), 20e6 + 100.0 * 150.0 + 10.0 * 7_000.0);
}

#[test]
fn reserves_are_added_to_both() {
    let load = Load { messages_hz: 10_000.0, connections: 1_000.0, ..load() };
    let machines = Machines { reserve: 0.5, ..one_core() };
    let plan = plan(&load, &machines, &costs()).unwrap();
    assert_eq!(plan.cores, plan.busy_cores * 2.0);
    assert!((plan.memory_bytes * 0.75 - plan.used_bytes).abs() < 1.0);
    assert!(plan.engine.is_none());
}

#[test]
fn recipients_are_in_random_places() {
    assert_eq!(places_with_recipients(1.0, 5.0), 1.0);
    assert_eq!(places_with_recipients(4.0, 0.0), 0.0);
    assert_eq!(places_with_recipients(4.0, 1.0), 1.0);
    assert_eq!(places_with_recipients(2.0, 2.0), 1.5);
    assert!((places_with_recipients(4.0, 1e6) - 4.0).abs() < 1e-9);
}

#[test]
fn messages_to_other_cores_are_counted_where_recipients_are() {
    let load = Load { messages_hz: 100.0, recipients: 2.0, ..load() };
    let machines = Machines { cores: 2.0, ..one_core() };
    let plan = plan(&load, &machines, &costs()).unwrap();
    let hops = plan.cpu.iter().find(|part| part.name == "messages between cores").unwrap();
    // Of 1.5 cores with recipients, half are another core than the publisher's.
    assert!((hops.amount * 1e6 - 100.0 * 0.75 * 3.0).abs() < 1e-6, "{hops:?}");
}

#[test]
fn more_nodes_add_the_engines_cost_and_a_process_each() {
    // Memory of 2.5 nodes.
    let load = Load { connections: 100_000.0, messages_hz: 1_000.0, rooms: 10.0, ..load() };
    let machines = Machines { memory_bytes: 300e6, ..one_core() };
    let plan = plan(&load, &machines, &costs()).unwrap();
    assert_eq!((plan.nodes, plan.limit), (3, Limit::Memory));
    let amount = |parts: &[Part], name: &str| parts.iter().find(|part| part.name == name).unwrap().amount;
    assert_eq!(amount(&plan.memory, "processes"), 60e6);
    assert_eq!(amount(&plan.memory, "rooms"), 10.0 * (150.0 + 50.0));
    assert!((amount(&plan.cpu, "publishing to the engine") - 0.05).abs() < 1e-9);
    // The only recipient is on another node with a probability of two thirds.
    assert!((amount(&plan.cpu, "receiving from the engine") - 0.03 * 2.0 / 3.0).abs() < 1e-9);
    let engine = plan.engine.unwrap();
    assert_eq!(engine.published_hz, 1_000.0);
    assert!((engine.sent_hz - 1_000.0 * 5.0 / 3.0).abs() < 1e-6);
    assert!((engine.cores - 1_000.0 * (1.5 + 5.0 / 3.0 * 0.5) / 1e6).abs() < 1e-9);
}

#[test]
fn the_limit_is_the_resource_that_needs_more_nodes() {
    let load = Load { messages_hz: 1e6, ..load() };
    let plan = plan(&load, &one_core(), &costs()).unwrap();
    assert_eq!(plan.limit, Limit::Cpu);
    assert!(plan.nodes > 6 && plan.busy_cores <= f64::from(plan.nodes), "{plan:?}");
}

#[test]
fn a_load_that_no_number_of_nodes_carries_is_an_error() {
    // Every node receives each message, which takes more than a core.
    let load = Load { connections: 1e6, messages_hz: 40_000.0, recipients: 1e6, ..load() };
    let told = plan(&load, &one_core(), &costs()).unwrap_err().to_string();
    assert!(told.contains("more than 1000 nodes because of the CPU"), "{told}");
}
