//! One suite for all drivers: each case is written once and run on each of them.
//!
//! To add a driver: one line in the list below. To add a case: a function in one of the modules, and its name
//! in `suite!`.

mod clock;
mod connecting;
mod ending;
pub(crate) mod pair;
mod receiving;
mod sending;

use pair::Pair;
use stentor_driver::sim::{self, World};
use stentor_driver::{Driver, EpollDriver, Options, UringDriver, UringOptions};

/// More than the kernel's buffers of two sockets hold.
const LARGE_BYTES: usize = 12 << 20;

macro_rules! suite {
    ($driver:ident, $make:expr, $seeds:expr, [$($group:ident: $($case:ident)*;)*]) => {
        mod $driver {
            $(mod $group {
                $(#[test] fn $case() { crate::suite::run($seeds, $make, crate::suite::$group::$case) })*
            })*
        }
    };
    ($driver:ident, $make:expr, $seeds:expr) => {
        suite!($driver, $make, $seeds, [
            connecting: port_0_picks_one a_connection_knows_its_listener an_address_is_taken_once the_source_address_is_chosen_and_seen
                ipv6_works an_ipv4_peer_is_one_everywhere a_refused_connection_is_closed
                connections_outlive_the_listener a_pause_leaves_connections_in_the_queue
                a_send_may_precede_the_connection
                a_connection_begun_can_be_ended many_connect_at_once drivers_share_a_port;
            sending: echo nothing_is_sent_at_once a_slow_reader_stalls_one_frame a_slow_reader_stalls_bytes
                a_slow_reader_stalls_a_file thousands_of_frames_leave_in_order
                thousands_of_frames_stall_and_go_on both_ways_at_once the_next_send_follows_the_last
                two_sends_at_once_are_a_bug closing_releases_frames_in_flight;
            receiving: a_paused_connection_is_not_read a_pause_may_fall_into_the_middle no_connection_starves
                buffers_are_lent_and_used_again a_lent_buffer_can_be_written_to
                a_connection_moves_with_bytes_unread a_dropped_detached_connection_is_closed
                a_detached_connection_crosses_threads;
            ending: the_end_of_the_peer_is_reported_once a_half_closed_peer_can_still_be_sent_to
                a_pause_delays_the_end the_end_is_reported_to_a_paused_connection finish_sends_frames_in_flight finish_after_the_peer_is_immediate
                finish_discards_received_bytes finish_gives_up_on_a_peer_that_never_reads
                finish_gives_up_on_a_peer_that_never_ends close_reaches_only_the_peer a_reset_closes
                a_reset_reaches_a_paused_connection
                a_reset_reaches_a_connection_paused_while_it_is_read a_reset_ends_sends_in_flight
                a_failed_send_is_reported_later a_stale_id_does_nothing;
            clock: timers_fire_in_order_and_never_early a_cancelled_timer_does_not_fire
                a_timer_due_can_be_cancelled_in_its_turn a_timer_does_not_prolong_its_turn
                a_wake_is_reported_once another_thread_wakes a_wait_ends_with_its_time;
        ]);
    };
}

/// Runs a case once for each seed, and reports the failed one.
#[allow(clippy::print_stderr)] // Tests report on stderr.
fn run(seeds: u64, make: impl Fn(u64) -> Pair, case: impl Fn(Pair)) {
    struct Seed(u64);
    impl Drop for Seed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("seed {}", self.0);
            }
        }
    }
    for seed in 0..seeds {
        let _shown = Seed(seed);
        case(make(seed));
    }
}

/// Makes options whose limits are reached all the time.
fn tight() -> Options {
    Options { receive_buffer_bytes: 700, events_per_turn: 2, accepts_per_turn: 1, ..Options::default() }
}

pub(crate) fn epoll(options: &Options) -> Box<dyn Driver> {
    Box::new(EpollDriver::new(options).unwrap())
}

pub(crate) fn uring(options: &Options, uring_options: &UringOptions) -> Box<dyn Driver> {
    Box::new(UringDriver::with(options, uring_options).unwrap())
}

fn usual_epoll(_seed: u64) -> Pair {
    Pair::new([(); 3].map(|()| epoll(&Options::default())), LARGE_BYTES)
}

fn tight_epoll(_seed: u64) -> Pair {
    Pair::new([(); 3].map(|()| epoll(&tight())), LARGE_BYTES)
}

suite!(on_epoll, crate::suite::usual_epoll, 1);
suite!(on_tight_epoll, crate::suite::tight_epoll, 1);

/// Makes drivers in a simulated network.
fn sim(seed: u64) -> Pair {
    simulated(seed, 4, sim::Options::default())
}

/// Like [`sim`], with limits that are reached all the time.
fn sim_tight(seed: u64) -> Pair {
    let options = sim::Options {
        driver: Options { receive_buffer_bytes: 7000, accepts_per_turn: 1, ..Options::default() },
        segment_bytes_max: 9000,
        send_buffer_bytes: 8000,
        receive_buffer_bytes: 6000,
        ..sim::Options::default()
    };
    simulated(seed, 20, options)
}

fn simulated(seed: u64, times: usize, options: sim::Options) -> Pair {
    let large_bytes = (options.send_buffer_bytes + options.receive_buffer_bytes) * times;
    let world = World::new(seed, options);
    let drivers = [(); 3].map(|()| -> Box<dyn Driver> { Box::new(world.driver()) });
    Pair::simulated(drivers, large_bytes, move || world.step())
}

suite!(on_sim, crate::suite::sim, 5);
suite!(on_tight_sim, crate::suite::sim_tight, 5);

/// Returns `true`, and prints a note, if there is no io_uring.
#[allow(clippy::print_stderr)] // Tests report on stderr.
pub(crate) fn no_uring() -> bool {
    let reason = stentor_driver::probe().fallback_reason;
    reason.as_ref().inspect(|reason| eprintln!("skipped: {reason}")).is_some()
}

/// Returns no seed if there is no io_uring.
fn uring_seeds(seeds: u64) -> u64 {
    if no_uring() { 0 } else { seeds }
}

fn urings(options: &Options, uring_options: &UringOptions) -> Pair {
    Pair::new([(); 3].map(|()| uring(options, uring_options)), LARGE_BYTES)
}

fn usual_uring(_seed: u64) -> Pair {
    urings(&Options::default(), &UringOptions::default())
}

/// Makes drivers with limits that are reached all the time.
fn tight_uring(_seed: u64) -> Pair {
    urings(
        &tight(),
        &UringOptions { submission_entries: 4, lone_sends_per_turn: 1, ..UringOptions::default() },
    )
}

/// Makes drivers without file descriptors for their connections, with several rings each.
fn direct_uring(_seed: u64) -> Pair {
    let direct = UringOptions { direct_from: Some(0), direct_slots_per_ring: 100, ..UringOptions::default() };
    urings(&Options::default(), &direct)
}

/// Like [`direct_uring`], with limits that are reached all the time.
fn tight_direct_uring(_seed: u64) -> Pair {
    let direct = UringOptions {
        submission_entries: 4,
        lone_sends_per_turn: 1,
        direct_from: Some(0),
        direct_slots_per_ring: 1,
        direct_rings_max: 3,
    };
    urings(&tight(), &direct)
}

/// Alternates both kinds of drivers, so that connections also move from one kind to the other. The second
/// seed swaps the kinds.
fn uring_and_epoll(seed: u64) -> Pair {
    let make = |nth| match (seed + nth) % 2 {
        0 => uring(&Options::default(), &UringOptions::default()),
        _ => epoll(&Options::default()),
    };
    Pair::new([0, 1, 2].map(make), LARGE_BYTES)
}

suite!(on_uring, crate::suite::usual_uring, crate::suite::uring_seeds(1));
suite!(on_tight_uring, crate::suite::tight_uring, crate::suite::uring_seeds(1));
suite!(on_direct_uring, crate::suite::direct_uring, crate::suite::uring_seeds(1));
suite!(on_tight_direct_uring, crate::suite::tight_direct_uring, crate::suite::uring_seeds(1));
suite!(on_uring_and_epoll, crate::suite::uring_and_epoll, crate::suite::uring_seeds(2));
