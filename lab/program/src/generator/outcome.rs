//! Measurements of a generator.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ChatStep, Following, Latencies};
use crate::measure::{CpuClock, MachineTime};

/// Above this share of its core, the generator's results are invalid.
pub(crate) const OWN_CPU_MAX: f64 = 0.8;
/// Maximum lag behind the schedule as a share of the reported p99.
pub(crate) const LAG_SHARE_MAX: f64 = 0.1;
/// Resolution of the schedule: a turn of the generator's loop with some sends, which is also the precision of the kernel's timers
/// (prctl(2), PR_SET_TIMERSLACK). A smaller lag is a property of the instrument, not a failure of this run.
const LAG_RESOLUTION: Duration = Duration::from_micros(50);
/// At least half of the reported time must be the server's.
const LAG_SHARE_OF_RESOLUTION: f64 = 0.5;

/// A span of time and the CPU used in it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Span {
    /// Duration.
    pub wall: Duration,
    /// CPU time of the server, if its clock was readable.
    pub server_cpu: Duration,
    /// The part of `server_cpu` used by processes that the server has started.
    pub started_cpu: Duration,
    /// CPU time of the generator without active waiting.
    pub own_cpu: Duration,
    /// The share (0 to 1) of the requested CPU time that a hypervisor kept from this machine.
    #[serde(default)]
    pub steal_share: f64,
}

impl Span {
    /// The server's share of one core.
    pub fn server_share(&self) -> f64 {
        share(self.server_cpu, self.wall)
    }

    /// The generator's share of one core.
    pub fn own_share(&self) -> f64 {
        share(self.own_cpu, self.wall)
    }
}

fn share(part: Duration, of: Duration) -> f64 {
    if of.is_zero() { 0.0 } else { part.as_secs_f64() / of.as_secs_f64() }
}

/// The progress of a load at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Number of open connections.
    pub connections: u64,
    /// Number of answered messages.
    pub messages: u64,
    /// CPU time of the server.
    pub server_cpu: Duration,
    /// Resident memory of the server's processes. 0 if unknown.
    pub server_bytes: u64,
    /// Kernel memory of the whole machine. Only differences are meaningful.
    pub kernel_bytes: u64,
}

/// The audit of every message received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Number of messages expected from the measured part.
    pub expected: u64,
    /// Number of messages received from the measured part.
    pub delivered: u64,
    /// Number of sequence numbers skipped.
    pub gaps: u64,
    /// Number of messages whose number had already arrived.
    pub repeated: u64,
    /// Number of messages that arrived after a later one.
    pub reordered: u64,
    /// Number of messages with a different length than sent.
    pub wrong_length: u64,
    /// Number of messages without the expected layout, or with a changed byte (in a payload too short for a checksum: a
    /// changed byte outside its number).
    pub corrupt: u64,
    /// Number of connections that ended or never opened.
    pub lost_connections: u64,
    /// The first reason for a lost connection.
    pub first_loss: Option<String>,
}

impl Audit {
    /// Number of messages known to be delivered, lost or damaged. Gaps and damaged messages aren't added, because the number that
    /// is missing may be that of a corrupt message.
    pub(super) fn accounted(&self) -> u64 {
        self.delivered + self.gaps.max(self.wrong_length + self.corrupt)
    }

    fn merge(&mut self, other: &Self) {
        self.expected += other.expected;
        self.delivered += other.delivered;
        self.gaps += other.gaps;
        self.repeated += other.repeated;
        self.reordered += other.reordered;
        self.wrong_length += other.wrong_length;
        self.corrupt += other.corrupt;
        self.lost_connections += other.lost_connections;
        if self.first_loss.is_none() {
            self.first_loss.clone_from(&other.first_loss);
        }
    }
}

/// The result of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of opened connections.
    pub connections: u64,
    /// The span in which connections were opened.
    pub connect: Span,
    /// The span in which the connections were idle.
    pub idle: Span,
    /// The measured part of the load.
    pub load: Span,
    /// Number of messages handled by the server in the measured span: echoes or deliveries that arrived within it.
    pub messages: u64,
    /// The audit of the measured part.
    pub audit: Audit,
    /// Latency from the intended time of sending to the receiver's read.
    pub latency: Latencies,
    /// The generator's lag behind its schedule.
    pub lag: Latencies,
    /// The latency of the last receiver of each publication, or of all answers, in nanoseconds.
    pub last_of_each_ns: Vec<u64>,
    /// The 99th percentile over the receivers of each publication (with several processes, the largest), in nanoseconds.
    pub p99_of_each_ns: Vec<u64>,
    /// The time since a publication was due, in slices as in the spec, publication by publication. Measured by the process that
    /// publishes.
    pub slices: Vec<Span>,
    /// Number of publications whose deliveries took more than 10 ms and weren't complete when the next one was due.
    pub overlapping: u64,
    /// `true` if each message was sent after the return of the last one. A busy generator then makes a server wait,
    /// which only times show.
    pub closed_loop: bool,
    /// Number of bytes received in the measured span by the process that publishes.
    pub received_bytes: u64,
    /// For clients that ask, or reconnect, at once: the time until all had sent their request.
    pub asking: Duration,
    /// For clients that reconnect at once: the time until all were connected.
    pub back_in: Duration,
    /// For clients that reconnect at once: the time from the start of each connection until it was open.
    pub back: Latencies,
    /// For misbehaving clients: the number of connections that the server ended.
    pub cut_off: u64,
    /// Number of document versions that clients reconstructed and compared with the expected ones.
    pub verified: u64,
    /// For clients that follow a document: samples of their versions.
    #[serde(default)]
    pub following: Vec<Following>,
    /// For a chat with growing rates: its steps.
    pub steps: Vec<ChatStep>,
    /// Samples while connections were opened. For a load with a CPU budget: ten samples per second.
    pub progress: Vec<Progress>,
}

impl Outcome {
    /// Sets the measured span from `begin` to `end`.
    pub(super) fn measured(&mut self, begin: &Reading, end: &Reading) {
        self.load = begin.until(end);
        self.messages = end.arrived - begin.arrived;
        self.received_bytes = end.received_bytes - begin.received_bytes;
    }

    /// Adds the outcome of another process, which connected earlier and ran the load at the same time. So the costs of connecting
    /// add up, and the server's CPU under the load is counted once, from this process.
    pub fn merge(&mut self, other: &Self) {
        self.connections += other.connections;
        self.connect.wall += other.connect.wall;
        self.connect.server_cpu += other.connect.server_cpu;
        self.connect.started_cpu += other.connect.started_cpu;
        self.connect.own_cpu += other.connect.own_cpu;
        self.idle.own_cpu += other.idle.own_cpu;
        self.load.own_cpu += other.load.own_cpu;
        self.messages += other.messages;
        self.audit.merge(&other.audit);
        self.latency.merge(&other.latency);
        self.lag.merge(&other.lag);
        take_larger(&mut self.last_of_each_ns, &other.last_of_each_ns);
        take_larger(&mut self.p99_of_each_ns, &other.p99_of_each_ns);
        self.merge_progress(other);
        self.received_bytes += other.received_bytes;
        self.asking = self.asking.max(other.asking);
        self.back_in = self.back_in.max(other.back_in);
        self.back.merge(&other.back);
        self.cut_off += other.cut_off;
        self.verified += other.verified;
        self.overlapping = self.overlapping.max(other.overlapping);
        self.closed_loop |= other.closed_loop;
        self.steps.extend_from_slice(&other.steps);
    }

    /// Merges the samples: the connections of `other` were opened before those of this outcome.
    fn merge_progress(&mut self, other: &Self) {
        if let Some(before) = other.progress.last() {
            for point in &mut self.progress {
                point.connections += before.connections;
                point.server_cpu += before.server_cpu;
            }
        }
        self.progress.splice(..0, other.progress.iter().copied());
    }

    /// Server CPU per message in the measured span, without the idle cost.
    pub fn server_cpu_per_message(&self) -> Option<Duration> {
        self.cpu_per_message(|span| span.server_cpu)
    }

    /// The CPU per message of the part that `of` selects.
    pub(crate) fn cpu_per_message(&self, of: impl Fn(&Span) -> Duration) -> Option<Duration> {
        if self.messages == 0 || of(&self.load).is_zero() {
            return None;
        }
        let idle = self.load.wall.mul_f64(share(of(&self.idle), self.idle.wall));
        Some(of(&self.load).saturating_sub(idle).div_f64(self.messages as f64))
    }

    /// Server CPU per opened connection, without the idle cost.
    pub fn server_cpu_per_connection(&self) -> Option<Duration> {
        if self.connections == 0 || self.connect.server_cpu.is_zero() {
            return None;
        }
        let idle = self.connect.wall.mul_f64(self.idle.server_share());
        Some(self.connect.server_cpu.saturating_sub(idle).div_f64(self.connections as f64))
    }

    /// The reasons why this result is invalid. Empty if it is valid.
    pub fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        let own = self.load.own_share();
        let worked = self.messages > 0 || self.audit.expected > 0;
        if worked && own > OWN_CPU_MAX {
            let what = format!("the generator used {:.0} % of its core", own * 100.0);
            doubts.push(Doubt { latency_only: self.closed_loop, cause: Cause::GeneratorBusy, what });
        }
        let (lag, p99) = (self.lag.percentile(99.0), self.latency.percentile(99.0));
        if !self.lag.is_empty() && is_spoiled(lag, p99) {
            let what =
                format!("the generator lagged {lag:.1?} behind its schedule (p99), of {p99:.1?} measured");
            doubts.push(Doubt::about_times(Cause::GeneratorLate, what));
        }
        let audit = &self.audit;
        let spoiled = audit.gaps + audit.wrong_length + audit.corrupt;
        for (count, what) in [
            (audit.gaps, "missing"),
            (audit.repeated, "repeated"),
            (audit.reordered, "out of order"),
            (audit.wrong_length, "of a wrong length"),
            (audit.corrupt, "corrupt"),
            (audit.expected.saturating_sub(audit.delivered + spoiled), "not delivered in time"),
        ] {
            if count > 0 {
                doubts.push(Doubt::about_all(Cause::Messages, format!("{count} messages {what}")));
            }
        }
        if audit.lost_connections > 0 {
            let why = audit.first_loss.as_deref().unwrap_or("no reason known");
            let what = format!("{} connections lost ({why})", audit.lost_connections);
            doubts.push(Doubt::about_all(Cause::Connections, what));
        }
        if self.overlapping > 0 {
            let what = format!("{} publications weren't out when the next was due", self.overlapping);
            doubts.push(Doubt::about_all(Cause::Other, what));
        }
        doubts
    }
}

/// Keeps the larger value of each publication.
fn take_larger(ours_ns: &mut [u64], theirs_ns: &[u64]) {
    for (ns, theirs) in ours_ns.iter_mut().zip(theirs_ns) {
        *ns = (*ns).max(*theirs);
    }
}

/// Returns `true` if a generator that was late by `lag` invalidates a latency of `measured`, both at the same
/// percentile. Latency counts from the intended time, so a lag makes it longer by at most the lag, and never shorter.
/// That is why a lag within the schedule's resolution is accepted. The bench then claims no difference smaller than the
/// lag.
pub(crate) fn is_spoiled(lag: Duration, measured: Duration) -> bool {
    let share = lag.as_secs_f64() / measured.as_secs_f64().max(1e-9);
    let allowed = if lag <= LAG_RESOLUTION { LAG_SHARE_OF_RESOLUTION } else { LAG_SHARE_MAX };
    share > allowed
}

/// A reason why a result is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// `true` if only times are invalid; CPU, memory and counts are valid.
    pub latency_only: bool,
    /// The kind, for verdicts.
    #[serde(default)]
    pub cause: Cause,
    /// The text.
    pub what: String,
}

impl Doubt {
    /// A doubt that invalidates only times.
    pub(crate) fn about_times(cause: Cause, what: String) -> Self {
        Self { latency_only: true, cause, what }
    }

    /// A doubt that invalidates the whole result.
    pub(crate) fn about_all(cause: Cause, what: String) -> Self {
        Self { latency_only: false, cause, what }
    }
}

/// The kind of a [`Doubt`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Another cause, or a result of an older version.
    #[default]
    Other,
    /// The generator's core was at its limit.
    GeneratorBusy,
    /// The generator sent later than intended.
    GeneratorLate,
    /// The hypervisor took CPU.
    Steal,
    /// Other processes used the CPU.
    OtherProcesses,
    /// Connections were lost.
    Connections,
    /// Messages were lost or wrong.
    Messages,
}

impl Cause {
    /// The cause in words for a verdict. `None` if the doubt's own text is used.
    pub(crate) fn phrase(self) -> Option<&'static str> {
        match self {
            Self::Other => None,
            Self::GeneratorBusy => Some("the generator was busy"),
            Self::GeneratorLate => Some("the generator was late"),
            Self::Steal => Some("the hypervisor took CPU"),
            Self::OtherProcesses => Some("other processes used the CPU"),
            Self::Connections => Some("connections were lost"),
            Self::Messages => Some("messages were lost or wrong"),
        }
    }
}

/// Reads the clocks at the ends of spans.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    servers: Vec<CpuClock>,
    started: Vec<CpuClock>,
}

/// The clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    at_ns: u64,
    /// CPU of the server, including the processes that it has started.
    server: Duration,
    started: Duration,
    own: Duration,
    machine: MachineTime,
    /// Numbers of messages and bytes received so far.
    arrived: u64,
    received_bytes: u64,
}

impl Probe {
    /// Processes that servers have `started` and that have ended already are ignored.
    pub(super) fn new(server_pids: &[u32], started_pids: &[u32]) -> std::io::Result<Self> {
        let clocks = |pids: &[u32]| pids.iter().map(|pid| CpuClock::of_process(*pid)).collect::<Vec<_>>();
        Ok(Self {
            servers: clocks(server_pids).into_iter().collect::<Result<_, _>>()?,
            started: clocks(started_pids).into_iter().flatten().collect(),
        })
    }

    /// Reads the clocks now. `spun` is the time spent on active waiting so far.
    pub(super) fn read(&self, spun: Duration, arrived: u64, received_bytes: u64) -> Reading {
        let used =
            |clocks: &[CpuClock]| clocks.iter().filter_map(|clock| clock.read().ok()).sum::<Duration>();
        let at_ns = crate::clock::monotonic_ns();
        let started = used(&self.started);
        Reading {
            at_ns,
            // A server that has ended isn't counted. The audit shows its end.
            server: used(&self.servers) + started,
            started,
            own: CpuClock::own().read().unwrap_or_default().saturating_sub(spun),
            machine: MachineTime::now().unwrap_or_default(),
            arrived,
            received_bytes,
        }
    }
}

impl Reading {
    /// The span from `self` to `end`.
    pub(super) fn until(&self, end: &Self) -> Span {
        Span {
            wall: Duration::from_nanos(end.at_ns.saturating_sub(self.at_ns)),
            server_cpu: end.server.saturating_sub(self.server),
            started_cpu: end.started.saturating_sub(self.started),
            own_cpu: end.own.saturating_sub(self.own),
            steal_share: end.machine.steal_since(&self.machine),
        }
    }
}

#[cfg(test)]
mod tests;
