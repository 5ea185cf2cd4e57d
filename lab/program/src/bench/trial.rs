//! One run of one server in one case.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::curve::{self, Curve};
use super::disturbance::{FREQUENCY, GENERATOR, OTHERS, STEAL, others_doubt, steal_doubt};
use super::report::{known_keys, known_metrics};
use super::running::{Ran, run_server};
use super::sampler::{growth_percent_per_10_s, held_kernel_bytes};
use super::{Case, Contestant, Course, Metric, Options, delivery, overload};
use crate::Error;
use crate::generator::{
    Cause, Doubt, FanoutPlan, Latencies, LoadSpec, Misbehaviour, OWN_CPU_MAX, Outcome, Span, is_spoiled,
};
use crate::measure::Calls;

/// Number of publications of a run that counts system calls, and their rate. With it, a traced server finishes one
/// publication before the next is due.
const COUNTED: u64 = 5;
const COUNTED_RATE_HZ: f64 = 1.0;
/// Calls that make up at least this share of a call per message are listed by name.
const CALLS_TOLD: f64 = 0.01;

/// Maximum share of the reconnection time that the generator may need to start the connections. The rest is the
/// server's.
const ASKING_SHARE_MAX: f64 = 0.5;
/// Above this share of its core, the generator can't keep up the rate of connecting.
const CONNECTING_SHARE_MAX: f64 = 0.8;
/// Smaller shares of steal or of a core aren't reported: they are below the resolution of the clock.
const SHARE_MIN: f64 = 0.01;

/// The name of the generator's lag (p99, milliseconds) in the context values.
pub(crate) const LAG: &str = "p99 lag ms";

/// Result of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trial {
    /// The measured figures.
    #[serde(deserialize_with = "known_keys")]
    pub figures: BTreeMap<Metric, f64>,
    /// Values shown beside the table: shares of a core, counts.
    #[serde(default)]
    pub context: BTreeMap<String, f64>,
    #[serde(default, deserialize_with = "known_keys")]
    pub(crate) curves: BTreeMap<Curve, Vec<(f64, f64)>>,
    /// The reasons why the run or its times are invalid.
    pub doubts: Vec<Doubt>,
    /// A figure that couldn't be measured, with the reason. The other figures are valid.
    #[serde(default)]
    pub unmeasured: Option<String>,
    /// Figures that are bounds, because the generator was at its limit.
    #[serde(default, deserialize_with = "known_metrics")]
    pub(crate) bounds: BTreeSet<Metric>,
}

impl Trial {
    /// A run without results.
    pub(super) fn failed(why: &Error) -> Self {
        let doubt = Doubt::about_all(Cause::Other, why.to_string());
        Self { doubts: vec![doubt], ..Self::default() }
    }

    /// The figure, if it isn't in doubt.
    pub(crate) fn valid(&self, metric: Metric) -> Option<f64> {
        if metric.is_its_own_doubt() {
            return self.figures.get(&metric).copied();
        }
        // In a closed loop, a loss of CPU also reduces the throughput. A busy generator makes the throughput a bound.
        let is_about = |doubt: &Doubt| match doubt.cause {
            Cause::Steal | Cause::OtherProcesses if metric == Metric::Rate => true,
            _ => !doubt.latency_only || metric.is_time(),
        };
        self.figures.get(&metric).copied().filter(|_| !self.doubts.iter().any(is_about))
    }

    /// Returns `true` if the run has results. Otherwise, it counts as not measured.
    pub(crate) fn is_measured(&self) -> bool {
        !self.figures.is_empty()
    }

    pub(crate) fn summary(&self) -> String {
        let mut parts: Vec<String> = self
            .figures
            .iter()
            .map(|(metric, value)| format!("{} {}", metric.label(), metric.format(*value)))
            .collect();
        parts.extend(self.context.iter().map(|(name, value)| format!("{name} {value:.2}")));
        parts.extend(self.unmeasured.clone());
        parts.extend(self.doubts.iter().map(|doubt| {
            let what = if doubt.latency_only { "TIMES INVALID" } else { "INVALID" };
            format!("{what}: {}", doubt.what)
        }));
        parts.join(", ")
    }
}

/// Runs a short open loop on the connections of `case`, at this rate, or a closed loop without a rate.
pub(super) fn look(
    case: &Case,
    contestant: &Contestant,
    rate_hz: Option<f64>,
    options: &Options,
) -> Result<Outcome, Error> {
    let LoadSpec::EchoOpen { bytes, warm_up, measure, .. } = case.load else {
        return Err(Error::Usage(format!("{} is no echo", case.name)));
    };
    let measure = measure / 2;
    let load = match rate_hz {
        Some(rate_hz) => LoadSpec::EchoOpen { bytes, rate_hz, warm_up, measure },
        None => LoadSpec::EchoClosed { bytes, warm_up, measure },
    };
    Ok(run_server(contestant, &Case { load, ..case.clone() }, options)?.outcome)
}

/// Runs `case` once on a fresh process. With `counts`, system calls are also counted on a separate process if the case
/// asks for it. Their numbers repeat to three digits, so one run of each server is enough.
pub(super) fn run(
    case: &Case,
    contestant: &Contestant,
    counts: bool,
    options: &Options,
) -> Result<Trial, Error> {
    let mut begun = Trial::default();
    if counts && case.metrics.contains(&Metric::CallsPerMessage) {
        match count_calls(case, contestant, options)? {
            Ok((calls, processes)) => {
                if processes > 1 {
                    begun.context.insert("processes whose calls are counted".to_owned(), processes as f64);
                }
                begun.figures.insert(Metric::CallsPerMessage, calls.values().sum());
                let told = calls.into_iter().filter(|(_, count)| *count >= CALLS_TOLD);
                begun.context.extend(told.map(|(name, count)| (format!("{name}/message"), count)));
            }
            // The other figures stay valid. The row names the missing one.
            Err(why) => begun.unmeasured = Some(format!("system calls weren't counted: {why}")),
        }
    }
    let ran = match case.course {
        // Beside misbehaving clients, the undelivered messages are the figure.
        Course::Beside { how, clients, alone_max } => {
            let ran = beside(case, contestant, (how, clients), alone_max, options, &mut begun)?;
            return Ok(judge(case, ran, begun));
        }
        _ => run_server(contestant, case, options)?,
    };
    match unanswered(&ran.outcome) {
        Some(what) => Err(Error::Server { name: contestant.name().to_owned(), what }),
        None => Ok(judge(case, ran, begun)),
    }
}

/// The text for a load without any answer. Such a server isn't slow, but does something else.
fn unanswered(outcome: &Outcome) -> Option<String> {
    let audit = &outcome.audit;
    if audit.expected == 0 || audit.delivered > 0 {
        return None;
    }
    let lost = audit.first_loss.as_ref().map(|why| format!("; connections were lost ({why})"));
    Some(format!("none of {} messages arrived{}", audit.expected, lost.unwrap_or_default()))
}

/// Runs the load alone and then beside misbehaving clients. A fan-out runs `alone_max` publications alone.
fn beside(
    case: &Case,
    contestant: &Contestant,
    (how, clients): (Misbehaviour, usize),
    alone_max: u64,
    options: &Options,
    found: &mut Trial,
) -> Result<Ran, Error> {
    let mut alone = Case { course: Course::Once, ..case.clone() };
    if let LoadSpec::Fanout(FanoutPlan { count, .. }) = &mut alone.load {
        *count = (*count).min(alone_max);
    }
    let alone = run_server(contestant, &alone, options)?;
    let ran = run_server(contestant, case, options)?;
    // The median over the publications. A lag invalidates it only if it affects every second publication.
    let p99 = |ran: &Ran| {
        let outcome = &ran.outcome;
        let each = Latencies::of(&outcome.p99_of_each_ns);
        let fanout = !each.is_empty();
        let p99 = if fanout { each.percentile(50.0) } else { outcome.latency.percentile(99.0) };
        (p99, outcome.lag.percentile(if fanout { 50.0 } else { 99.0 }))
    };
    let timely = |ran: &Ran| !is_spoiled(p99(ran).1, p99(ran).0);
    if timely(&alone) && timely(&ran) {
        let seconds = |ran: &Ran| p99(ran).0.as_secs_f64();
        found.figures.insert(Metric::LatencyShift, seconds(&ran) / seconds(&alone).max(1e-9));
    }
    found.doubts.extend(alone.outcome.doubts().into_iter().filter(|doubt| !doubt.latency_only));
    let held = held_kernel_bytes(&ran.samples).saturating_sub(ran.sockets_before_bytes);
    found.figures.insert(Metric::KernelPerSlow, held as f64 / clients.max(1) as f64);
    if let Some(others) = &ran.beside {
        found.figures.insert(Metric::CutOff, others.cut_off as f64);
        if others.messages > 0 {
            found.context.insert("done beside".to_owned(), others.messages as f64);
        }
        found.context.insert("generator share beside".to_owned(), others.load.own_share());
        // Doubts about clients that a server may disconnect are left out. Other clients count.
        found.doubts.extend(
            others
                .doubts()
                .into_iter()
                .filter(|_| how.is_audited())
                .map(|doubt| Doubt { what: format!("beside: {}", doubt.what), ..doubt }),
        );
    }
    Ok(ran)
}

/// Adds the figures of a run, and the reasons why they are invalid, to those in `begun`.
pub(super) fn judge(case: &Case, ran: Ran, begun: Trial) -> Trial {
    let Trial { mut figures, mut context, mut doubts, mut unmeasured, mut bounds, .. } = begun;
    let outcome = &ran.outcome;
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    let per_message = match case.course {
        // There are so few messages that heartbeats outweigh them.
        Course::Rested(_) => {
            let cost = |of: fn(&Span) -> Duration| delivery::cost(outcome, of);
            let all = cost(|span| span.server_cpu).map_err(|why| unmeasured = Some(why)).ok();
            all.map(|all| (all, cost(|span| span.started_cpu).ok()))
        }
        _ => outcome.server_cpu_per_message().zip(Some(outcome.cpu_per_message(|span| span.started_cpu))),
    };
    let timed = !outcome.latency.is_empty();
    let last = Latencies::of(&outcome.last_of_each_ns);
    let published = !last.is_empty();
    let rested = matches!(case.course, Course::Rested(_));
    let resting = match ran.load {
        LoadSpec::Idle { hold } if !hold.is_zero() => Some(&outcome.load),
        _ => rested.then_some(&outcome.idle),
    };
    // Of a server that was already running, the lab may know only the answers.
    let is_known = ran.processes > 0;
    let shared = ran.samples.iter().map(|sample| sample.memfd_bytes).max().unwrap_or(0);
    let grown = (is_known && case.metrics.contains(&Metric::BytesPerConnection))
        .then(|| memory_grown(&ran).map_err(|why| unmeasured.get_or_insert(why)).ok())
        .flatten();
    let connections = outcome.connections.max(1) as f64;
    let undelivered = 1.0 - outcome.audit.delivered as f64 / outcome.audit.expected.max(1) as f64;
    let received = outcome.received_bytes as f64 / outcome.messages.max(1) as f64;
    let percentile = |percent| millis(outcome.latency.percentile(percent));
    let found = [
        (Metric::CpuPerMessage, per_message.map(|(all, _)| micros(all))),
        (
            Metric::CpuPerPublication,
            per_message.and_then(|(all, started)| {
                let node = match ran.figures.contains_key(&Metric::EngineBytes) {
                    true => started.map(|entry| entry.max(all.saturating_sub(entry)))?,
                    // One node.
                    false => Some(all).filter(|_| case.metrics.contains(&Metric::CpuPerPublication))?,
                };
                Some(micros(node) * connections)
            }),
        ),
        (Metric::CpuPerConnection, outcome.server_cpu_per_connection().map(micros)),
        (Metric::LatencyP50, timed.then(|| percentile(50.0))),
        (Metric::LatencyP99, timed.then(|| percentile(99.0))),
        (Metric::LastReceiver, published.then(|| millis(last.percentile(50.0)))),
        (Metric::Undelivered, (outcome.audit.expected > 0).then_some(undelivered * 100.0)),
        (Metric::IdleCpu, resting.map(|span| span.server_share() / connections * 1e6)),
        (Metric::BytesPerMessage, (received > 0.0 && outcome.messages > 0).then_some(received)),
        (Metric::MemoryGrowth, is_known.then(|| growth_percent_per_10_s(&ran.samples))),
        (Metric::PeakMemory, is_known.then_some((ran.peak_resident_bytes + shared) as f64)),
        (Metric::BytesPerConnection, grown.map(|bytes| bytes / connections)),
    ];
    figures.extend(&ran.figures);
    figures.extend(found.into_iter().filter_map(|(metric, value)| Some((metric, value?))));
    let beside = [
        ("server share", timed.then(|| outcome.load.server_share())),
        (GENERATOR, timed.then(|| outcome.load.own_share())),
        (LAG, timed.then(|| millis(outcome.lag.percentile(99.0)))),
        ("slowest publication ms", published.then(|| millis(last.max()))),
        ("server share connecting", rested.then(|| outcome.connect.server_share())),
        ("server share at rest", rested.then(|| outcome.idle.server_share())),
        ("documents verified", (outcome.verified > 0).then_some(outcome.verified as f64)),
        ("asking ms", (!outcome.asking.is_zero()).then(|| millis(outcome.asking))),
        ("server processes", (ran.processes > 1).then_some(ran.processes as f64)),
        (STEAL, Some(ran.steal_share).filter(|share| *share >= SHARE_MIN)),
        (OTHERS, Some(ran.others_share).filter(|share| *share >= SHARE_MIN)),
        (FREQUENCY, ran.frequency_mhz),
    ];
    context.extend(beside.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    if !outcome.back_in.is_zero() {
        figures.insert(Metric::AllBack, millis(outcome.back_in));
        figures.insert(Metric::ConnectP99, millis(outcome.back.percentile(99.0)));
        let share = outcome.connect.own_share();
        context.insert("generator share coming back".to_owned(), share);
        // The generator's half of a handshake costs about as much as the server's, and both happen at the same time. A
        // fast server waits for the generator, so the measured time is never shorter than the server's own.
        let asking = outcome.asking.as_secs_f64() / outcome.back_in.as_secs_f64();
        if asking > ASKING_SHARE_MAX || share > CONNECTING_SHARE_MAX {
            bounds.extend([Metric::AllBack, Metric::ConnectP99]);
            let (asking, share) = (asking * 100.0, share * 100.0);
            unmeasured = Some(format!(
                "times of coming back are upper bounds: the last client began after {asking:.0} % of the time, and the generator \
                 used {share:.0} % of its core"
            ));
        }
    }
    if let Some((all, Some(started))) = per_message {
        let names = ran.started.join(" ");
        context.insert(format!("{names} us/message"), micros(started));
        context.insert(format!("without {names} us/message"), micros(all.saturating_sub(started)));
    }
    if let LoadSpec::Budget { .. } = ran.load {
        let connections_max = case.connections;
        if outcome.connections == connections_max as u64 {
            bounds.insert(Metric::Connections);
            unmeasured = Some(format!(
                "connections are a lower bound: a generator has no more than {connections_max}, and the rest of the budget went \
                 into their echoes"
            ));
        }
        figures.insert(Metric::Connections, outcome.connections as f64);
        if let Some((connect, echo)) = curve::fitted(&outcome.progress) {
            figures.insert(Metric::CpuPerConnection, connect * 1e6);
            figures.insert(Metric::CpuPerMessage, echo * 1e6);
        }
        context.insert("echoes".to_owned(), outcome.messages as f64);
        context.insert("took s".to_owned(), outcome.load.wall.as_secs_f64());
    }
    doubts.extend(outcome.doubts());
    let is_connecting =
        case.connect_rate_hz.is_some() && case.metrics.first() == Some(&Metric::CpuPerConnection);
    if is_connecting && outcome.connect.own_share() > CONNECTING_SHARE_MAX {
        let share = outcome.connect.own_share() * 100.0;
        let what = format!("the generator used {share:.0} % of its core");
        doubts.push(Doubt::about_all(Cause::GeneratorBusy, what));
    }
    if outcome.closed_loop && !outcome.load.wall.is_zero() {
        figures.insert(Metric::Rate, outcome.messages as f64 / outcome.load.wall.as_secs_f64());
        // A generator without free CPU makes the server wait.
        bounds.extend((outcome.load.own_share() > OWN_CPU_MAX).then_some(Metric::Rate));
    }
    if !outcome.steps.is_empty() {
        figures.insert(Metric::Deliveries, curve::saturation_hz(&outcome.steps));
        // The step that ends the chat is the result, and the figure is derived from the earlier steps.
        doubts = curve::doubts(&outcome.steps);
        if let Some(why) = curve::lower_bound(&outcome.steps) {
            bounds.insert(Metric::Deliveries);
            unmeasured = Some(format!("a lower bound: {why}"));
        }
        if let Some(step) = curve::deciding(&outcome.steps) {
            context.insert("generator share at the end".to_owned(), step.span.own_share());
            context.insert("server share at the end".to_owned(), step.span.server_share());
        }
    } else {
        doubts.extend(steal_doubt(ran.steal_share));
        doubts.extend(others_doubt(ran.others_share));
    }
    let curves = curve::curves(&ran.load, outcome, &ran.samples);
    let mut trial = Trial { figures, context, curves, doubts, unmeasured, bounds };
    if let Some(phases) = &ran.overload {
        overload::add(&mut trial, phases, &outcome.following, &ran.samples);
    }
    trial.figures.retain(|metric, _| case.metrics.contains(metric));
    let Trial { figures, bounds, .. } = &mut trial;
    bounds.retain(|metric| figures.contains_key(metric));
    trial
}

/// Bytes of private memory that a server took for its connections. The error is the reason why that isn't known: a server may free memory
/// of its start in the meantime.
fn memory_grown(ran: &Ran) -> Result<f64, String> {
    let [before, after] = [ran.before, ran.connected].map(|memory| memory.private_bytes);
    let grown = after.checked_sub(before).map(|bytes| bytes as f64);
    grown.ok_or_else(|| {
        format!(
            "memory per connection wasn't measured: the server's memory fell from {before} to {after} bytes with {} \
             connections",
            ran.outcome.connections
        )
    })
}

/// Calls per message by name and the number of processes, or the reason why they weren't counted.
type Counted = Result<(BTreeMap<String, f64>, usize), String>;

/// Runs a fan-out on the same connections while the system calls of all processes of the server are counted.
fn count_calls(case: &Case, contestant: &Contestant, options: &Options) -> Result<Counted, Error> {
    let mut counted = Case { course: Course::Counted, feed: false, ..case.clone() };
    if let LoadSpec::Fanout(FanoutPlan { rate_hz, warm_up, count, .. }) = &mut counted.load {
        (*rate_hz, *warm_up, *count) = (COUNTED_RATE_HZ, 0, COUNTED);
    }
    let ran = run_server(contestant, &counted, options)?;
    let audit = &ran.outcome.audit;
    let delivered = audit.delivered as f64;
    Ok(match ran.calls {
        _ if audit.delivered != audit.expected => {
            Err(format!("{} of {} messages came", audit.delivered, audit.expected))
        }
        _ if ran.outcome.overlapping > 0 => Err("the traced server didn't keep up".to_owned()),
        Some(Calls { by_name, processes }) => Ok((
            by_name.into_iter().map(|(name, calls)| (name, calls as f64 / delivered)).collect(),
            processes,
        )),
        None => Err("strace isn't installed, or may not trace".to_owned()),
    })
}

#[cfg(test)]
mod tests;
