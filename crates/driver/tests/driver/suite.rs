//! One suite for all drivers: each case is written once and run on each of them.
//!
//! To add a driver: one line in the list below. To add a case: a function in one of the modules, and its name
//! in `suite!`.

mod clock;
mod connecting;
mod ending;
mod mixed;
mod pair;
mod receiving;
mod sending;

use mixed::Mixed;
use pair::Pair;
use stentor_driver::sim::{self, SimDriver, World};
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
                what_is_connected_outlives_the_listener a_send_may_precede_the_connection
                a_connection_begun_can_be_ended many_connect_at_once drivers_share_a_port;
            sending: echo nothing_is_sent_at_once a_slow_reader_stalls_one_frame a_slow_reader_stalls_bytes
                a_slow_reader_stalls_a_file thousands_of_frames_leave_in_order
                thousands_of_frames_stall_and_go_on both_ways_at_once the_next_send_follows_the_last
                two_sends_at_once_are_a_bug closing_releases_what_is_in_flight;
            receiving: a_paused_connection_is_not_read a_pause_may_fall_into_the_middle nobody_starves
                buffers_are_lent_and_used_again a_lent_buffer_can_be_written_to
                a_connection_moves_with_bytes_unread a_dropped_detached_connection_is_closed
                a_detached_connection_crosses_threads;
            ending: the_end_of_the_peer_is_told_once a_half_closed_peer_can_still_be_sent_to
                a_pause_delays_the_end finish_sends_what_is_in_flight finish_after_the_peer_is_immediate
                finish_discards_what_arrives finish_gives_up_on_a_peer_that_never_reads
                finish_gives_up_on_a_peer_that_never_ends close_tells_the_peer_and_nobody_else a_reset_closes
                a_reset_reaches_a_paused_connection
                a_reset_reaches_a_connection_paused_while_it_is_read a_reset_ends_what_is_in_flight
                a_failed_send_is_told_later a_stale_id_does_nothing;
            clock: timers_fire_in_order_and_never_early a_cancelled_timer_does_not_fire
                a_timer_due_can_be_cancelled_in_its_turn a_timer_does_not_prolong_its_turn
                a_wake_is_told_once another_thread_wakes a_wait_ends_with_its_time;
        ]);
    };
}

/// Runs a case once for each seed, and says which one failed.
#[allow(clippy::print_stderr)] // It is how a test tells.
fn run<D: Driver>(seeds: u64, make: impl Fn(u64) -> Pair<D>, case: impl Fn(Pair<D>)) {
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

/// Drivers on epoll, with the usual options.
fn epoll(_seed: u64) -> Pair<EpollDriver> {
    Pair::new(|| EpollDriver::new(&Options::default()).unwrap(), None, LARGE_BYTES)
}

/// Drivers on epoll, all of whose limits are met all the time.
fn epoll_tight(_seed: u64) -> Pair<EpollDriver> {
    let options =
        Options { receive_buffer_bytes: 700, events_per_turn: 2, accepts_per_turn: 1, ..Options::default() };
    Pair::new(|| EpollDriver::new(&options).unwrap(), None, LARGE_BYTES)
}

suite!(on_epoll, crate::suite::epoll, 1);
suite!(on_tight_epoll, crate::suite::epoll_tight, 1);

/// Drivers in a simulated network.
fn sim(seed: u64) -> Pair<SimDriver> {
    simulated(seed, 4, sim::Options::default())
}

/// As [`sim`], all of whose limits are met all the time.
fn sim_tight(seed: u64) -> Pair<SimDriver> {
    let options = sim::Options {
        driver: Options { receive_buffer_bytes: 7000, accepts_per_turn: 1, ..Options::default() },
        segment_bytes_max: 9000,
        send_buffer_bytes: 8000,
        receive_buffer_bytes: 6000,
        ..sim::Options::default()
    };
    simulated(seed, 20, options)
}

fn simulated(seed: u64, times: usize, options: sim::Options) -> Pair<SimDriver> {
    let large_bytes = (options.send_buffer_bytes + options.receive_buffer_bytes) * times;
    let world = World::new(seed, options);
    let clock = world.clone();
    Pair::new(|| world.driver(), Some(Box::new(move || clock.step())), large_bytes)
}

suite!(on_sim, crate::suite::sim, 5);
suite!(on_tight_sim, crate::suite::sim_tight, 5);

/// Drivers on io_uring, with the usual options.
fn uring(_seed: u64) -> Pair<UringDriver> {
    Pair::new(|| UringDriver::new(&Options::default()).unwrap(), None, LARGE_BYTES)
}

/// Drivers on io_uring, all of whose limits are met all the time.
fn uring_tight(_seed: u64) -> Pair<UringDriver> {
    let options =
        Options { receive_buffer_bytes: 700, events_per_turn: 2, accepts_per_turn: 1, ..Options::default() };
    let uring_options =
        UringOptions { submission_entries: 4, lone_sends_per_turn: 1, ..UringOptions::default() };
    Pair::new(|| UringDriver::with(&options, &uring_options).unwrap(), None, LARGE_BYTES)
}

/// Drivers on io_uring without descriptors for their connections, with several rings each.
fn uring_direct(_seed: u64) -> Pair<UringDriver> {
    let uring_options =
        UringOptions { direct_from: Some(0), direct_slots_per_ring: 100, ..UringOptions::default() };
    Pair::new(|| UringDriver::with(&Options::default(), &uring_options).unwrap(), None, LARGE_BYTES)
}

/// As [`uring_direct`], all of whose limits are met all the time.
fn uring_direct_tight(_seed: u64) -> Pair<UringDriver> {
    let options =
        Options { receive_buffer_bytes: 700, events_per_turn: 2, accepts_per_turn: 1, ..Options::default() };
    let uring_options = UringOptions {
        submission_entries: 4,
        lone_sends_per_turn: 1,
        direct_from: Some(0),
        direct_slots_per_ring: 1,
        direct_rings_max: 3,
    };
    Pair::new(|| UringDriver::with(&options, &uring_options).unwrap(), None, LARGE_BYTES)
}

/// A server on io_uring, and a client on epoll, between which connections move as well.
fn uring_and_epoll(seed: u64) -> Pair<Mixed> {
    let mut nth = seed;
    let make = move || {
        nth += 1;
        match nth % 2 {
            0 => Mixed::Epoll(Box::new(EpollDriver::new(&Options::default()).unwrap())),
            _ => Mixed::Uring(Box::new(UringDriver::new(&Options::default()).unwrap())),
        }
    };
    Pair::new(make, None, LARGE_BYTES)
}

/// No seed where there is no io_uring.
#[allow(clippy::print_stderr)] // It is how a test tells.
fn uring_seeds(seeds: u64) -> u64 {
    match stentor_driver::probe().fallback_reason {
        None => seeds,
        Some(reason) => {
            eprintln!("skipped: {reason}");
            0
        }
    }
}

suite!(on_uring, crate::suite::uring, crate::suite::uring_seeds(1));
suite!(on_tight_uring, crate::suite::uring_tight, crate::suite::uring_seeds(1));
suite!(on_direct_uring, crate::suite::uring_direct, crate::suite::uring_seeds(1));
suite!(on_tight_direct_uring, crate::suite::uring_direct_tight, crate::suite::uring_seeds(1));
// The second seed exchanges them.
suite!(on_uring_and_epoll, crate::suite::uring_and_epoll, crate::suite::uring_seeds(2));
