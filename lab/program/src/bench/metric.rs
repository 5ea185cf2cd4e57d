//! The figures that runs give. One table has the name, the unit and the direction of each, and its wording in sentences.

use serde::{Deserialize, Serialize};

use crate::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Micros,
    Millis,
    /// Bytes; shown in megabytes from a million on.
    Bytes,
    Count,
    /// A number with three decimals.
    Fraction,
    Percent,
    Times,
}

#[derive(PartialEq, Eq)]
enum Better {
    Less,
    More,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident $key:literal $label:literal $unit:ident $better:ident $phrase:literal)*) => {
        /// A figure that a run gives.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Metric {
            $(#[doc = $phrase] $(#[$doc])* #[serde(rename = $key)] $name,)*
        }

        impl Metric {
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            /// Name in results, column heading, unit, whether more is better, and wording in sentences.
            fn row(self) -> (&'static str, &'static str, Unit, bool, &'static str) {
                match self {
                    $(Self::$name => ($key, $label, Unit::$unit, Better::$better == Better::More, $phrase),)*
                }
            }
        }
    };
}

metrics! {
    /// Server CPU per message, without the idle cost.
    CpuPerMessage "cpu_per_message" "CPU/message" Micros Less "CPU per message"
    /// For servers of several nodes: CPU per publication of the node that uses the most CPU. Publications may enter at
    /// this node or at another one.
    CpuPerPublication "cpu_per_publication" "CPU/publication, node" Micros Less "CPU per publication and node"
    CpuPerConnection "cpu_per_connection" "CPU/connection" Micros Less "CPU per connection"
    /// Median latency from the intended time of sending.
    LatencyP50 "latency_p50" "p50" Millis Less "median latency"
    LatencyP99 "latency_p99" "p99" Millis Less "p99 latency"
    /// Peak of the server's resident set and of its memfds.
    PeakMemory "peak_memory" "peak memory" Bytes Less "peak memory"
    BytesPerConnection "bytes_per_connection" "memory/connection" Bytes Less "memory per connection"
    /// p99 of the readers beside slow clients, as a multiple of their p99 alone. Both are the median over the publications, because
    /// the p99 over all publications depends on a few bad ones.
    LatencyShift "latency_shift" "p99 shift" Times Less "p99 beside the others, relative to alone,"
    /// Kernel memory per client that doesn't read, at both ends.
    KernelPerSlow "kernel_per_slow" "kernel/slow client" Bytes Less "kernel memory per slow client"
    /// Growth of the server's resident set and of memfds over the measured part, per 10 seconds.
    MemoryGrowth "memory_growth" "growth/10 s" Percent Less "memory growth"
    /// Server CPU per idle connection and second, including heartbeats.
    IdleCpu "idle_cpu" "CPU/connection/s" Micros Less "CPU per idle connection"
    CallsPerMessage "calls_per_message" "calls/message" Fraction Less "system calls per message"
    /// Messages that didn't arrive, or arrived changed.
    Undelivered "undelivered" "undelivered" Percent Less "undelivered messages"
    /// For a feed: bytes per version and client.
    BytesPerMessage "bytes_per_message" "bytes/message" Bytes Less "bytes per message"
    /// Bytes to and from the Redis between the nodes, per publication and node.
    EngineBytes "engine_bytes" "engine bytes/node" Bytes Less "bytes through the engine per publication and node"
    /// Time until the last client has its answer, or until the last receiver has a publication (the median publication).
    LastReceiver "last_receiver" "last receiver" Millis Less "time to the last receiver"
    UpstreamRequests "upstream_requests" "upstream requests" Count Less "upstream requests"
    /// For several nodes: upstream requests as a multiple of those of one node, which sends one for each version and one for the
    /// next.
    UpstreamRatio "upstream_ratio" "upstream requests/one node's" Times Less "upstream requests, relative to one node's,"
    /// Echoes, or answered requests, per second in a closed loop.
    Rate "rate" "round trips/s" Count More "round trips"
    /// Copies delivered per second with a mean latency below 200 ms.
    Deliveries "deliveries" "deliveries/s" Count More "deliveries"
    /// Number of connections opened within a CPU budget.
    Connections "connections" "connections" Count More "connections"
    /// Kernel memory per connection, at both ends on loopback.
    KernelPerConnection "kernel_per_connection" "kernel/connection" Bytes Less "kernel memory per connection"
    /// From the moment when all clients were disconnected until all are connected again.
    AllBack "all_back" "all back" Millis Less "time until all have reconnected"
    /// For clients that reconnect at once: the 99th percentile of the time from the start of a connection until it is open.
    ConnectP99 "connect_p99" "connect p99" Millis Less "p99 of reconnecting"
    /// Misbehaving clients that the server disconnected. This is a policy, neither good nor bad.
    CutOff "cut_off" "cut off" Count Less "disconnected clients"
    /// Age of the median client's document after an overload, as a multiple of the age before.
    AgeShift "age_shift" "age after/before" Times Less "age after the overload, relative to before,"
    /// The largest number of clients for which a document was kept up to date.
    Clients "clients" "clients" Count More "clients"
}

impl Metric {
    pub(crate) fn name(self) -> &'static str {
        self.row().0
    }

    pub(crate) fn label(self) -> &'static str {
        self.row().1
    }

    pub(crate) fn larger_is_better(self) -> bool {
        self.row().3
    }

    /// The wording in sentences.
    pub(crate) fn phrase(self) -> &'static str {
        self.row().4
    }

    pub(crate) fn of_name(name: &str) -> Result<Self, Error> {
        crate::named("figure", name, Self::ALL, |metric| metric.name()).copied()
    }

    /// Returns `true` if the figure itself shows what went wrong, so that an invalid run still reports it. System calls
    /// belong here too, because they are counted in a separate, audited run.
    pub(crate) fn is_its_own_doubt(self) -> bool {
        matches!(self, Self::Undelivered | Self::CallsPerMessage)
    }

    /// Returns `true` for a time measured by the generator, which includes the generator's lag.
    pub(crate) fn has_lag(self) -> bool {
        matches!(self, Self::LatencyP50 | Self::LatencyP99 | Self::LastReceiver)
    }

    /// Returns `true` if a doubt about times invalidates the figure.
    pub(crate) fn is_time(self) -> bool {
        self.has_lag() || matches!(self, Self::Deliveries | Self::AllBack | Self::ConnectP99)
    }

    /// As [`Self::label`], with the base unit.
    pub(crate) fn label_with_unit(self) -> String {
        let unit = match self.row().2 {
            Unit::Micros => ", µs",
            Unit::Millis => ", ms",
            Unit::Bytes => ", bytes",
            Unit::Percent => ", %",
            Unit::Times | Unit::Count | Unit::Fraction => "",
        };
        format!("{}{unit}", self.label())
    }

    pub(crate) fn format(self, value: f64) -> String {
        match self.row().2 {
            Unit::Micros => format!("{} µs", grouped(value, 2)),
            Unit::Millis if value < 10.0 => format!("{} ms", grouped(value, 3)),
            Unit::Millis => format!("{} ms", grouped(value, 1)),
            Unit::Bytes if value >= 1e6 => format!("{} MB", grouped(value / 1e6, 1)),
            Unit::Bytes => format!("{} B", grouped(value, 0)),
            Unit::Count => grouped(value, 0),
            Unit::Fraction => grouped(value, 3),
            Unit::Percent => format!("{} %", grouped(value, 2)),
            Unit::Times => format!("{value:.2}×"),
        }
    }
}

/// Adds thousands separators to the whole numbers in a text.
pub(crate) fn separated(text: &str) -> String {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let parts = text.as_bytes().chunk_by(|one, other| is_digit(one) == is_digit(other));
    let parts = parts.map(|part| match String::from_utf8_lossy(part) {
        digits if part.len() > 3 && is_digit(&part[0]) => grouped(digits.parse().unwrap_or(0.0), 0),
        other => other.into_owned(),
    });
    parts.collect()
}

/// A number with this many decimals and with thousands separators.
pub(crate) fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (nth, digit) in whole.chars().enumerate() {
        if nth > 0 && (whole.len() - nth).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests;
