//! The figures that runs give.

use serde::{Deserialize, Serialize};

/// A figure that a run gives. Smaller is better for all but those that [`Metric::larger_is_better`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Server CPU per message, idle cost taken off; microseconds.
    CpuPerMessage,
    /// Server CPU per connection opened; microseconds.
    CpuPerConnection,
    /// Median latency from the intended time of sending; milliseconds.
    LatencyP50,
    /// 99th percentile of the same.
    LatencyP99,
    /// Peak of the server's resident set and of its memfds; bytes.
    PeakMemory,
    /// The server's private memory per connection; bytes.
    BytesPerConnection,
    /// p99 of those that read, beside some that don't, as a multiple of the p99 without them; of each, the
    /// median publication's, since the p99 of all is that of the worst of few.
    LatencyShift,
    /// Kernel memory per connection that doesn't read, both ends; bytes.
    KernelPerSlow,
    /// Growth of the server's resident set and of memfds over the measured part; percent per 10 seconds.
    MemoryGrowth,
    /// Server CPU per idle connection, heartbeats included; microseconds a second.
    IdleCpu,
    /// System calls of the server per message delivered.
    CallsPerMessage,
    /// Of the messages that should have come, those that didn't, or not as they were sent; percent.
    Undelivered,
    /// Bytes received per message, by the clients; of a feed, per version and client.
    BytesPerMessage,
    /// Until the last of those that asked at once was answered, or of a publication's receivers had it (the median
    /// publication's); milliseconds.
    LastReceiver,
    /// Requests that the HTTP API behind a server got.
    UpstreamRequests,
    /// Echoes a second in a closed loop.
    Rate,
    /// Copies delivered a second with a mean latency under 200 ms.
    Deliveries,
    /// Connections that a budget of CPU lasted for.
    Connections,
    /// The kernel's memory per connection, both ends of it on loopback; bytes.
    KernelPerConnection,
    /// From the moment when everybody was cut off until everybody was back; milliseconds.
    AllBack,
    /// Of those that came back at once, from the begin of its connection until it was open, the 99th percentile; milliseconds.
    ConnectP99,
    /// Clients beside the load, which misbehaved, that the server ended. A policy, neither good nor bad.
    CutOff,
    /// The most clients that a document was kept up to date for.
    Clients,
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::CpuPerMessage,
        Self::CpuPerConnection,
        Self::LatencyP50,
        Self::LatencyP99,
        Self::PeakMemory,
        Self::BytesPerConnection,
        Self::LatencyShift,
        Self::KernelPerSlow,
        Self::MemoryGrowth,
        Self::IdleCpu,
        Self::CallsPerMessage,
        Self::Undelivered,
        Self::BytesPerMessage,
        Self::LastReceiver,
        Self::UpstreamRequests,
        Self::Rate,
        Self::Deliveries,
        Self::Connections,
        Self::KernelPerConnection,
        Self::AllBack,
        Self::ConnectP99,
        Self::CutOff,
        Self::Clients,
    ];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuPerMessage => "cpu_per_message",
            Self::CpuPerConnection => "cpu_per_connection",
            Self::LatencyP50 => "latency_p50",
            Self::LatencyP99 => "latency_p99",
            Self::PeakMemory => "peak_memory",
            Self::BytesPerConnection => "bytes_per_connection",
            Self::LatencyShift => "latency_shift",
            Self::KernelPerSlow => "kernel_per_slow",
            Self::MemoryGrowth => "memory_growth",
            Self::IdleCpu => "idle_cpu",
            Self::CallsPerMessage => "calls_per_message",
            Self::Undelivered => "undelivered",
            Self::BytesPerMessage => "bytes_per_message",
            Self::LastReceiver => "last_receiver",
            Self::UpstreamRequests => "upstream_requests",
            Self::Rate => "rate",
            Self::Deliveries => "deliveries",
            Self::Connections => "connections",
            Self::KernelPerConnection => "kernel_per_connection",
            Self::AllBack => "all_back",
            Self::ConnectP99 => "connect_p99",
            Self::CutOff => "cut_off",
            Self::Clients => "clients",
        }
    }

    /// The one of this name in results.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// Whether it says what went wrong, so that a run in doubt gives it nevertheless. System calls were counted in a run of
    /// their own, which has been looked at.
    pub fn is_its_own_doubt(self) -> bool {
        matches!(self, Self::Undelivered | Self::CallsPerMessage)
    }

    /// Whether it is a time that the generator measures, so that its lag is in it.
    pub fn has_lag(self) -> bool {
        matches!(self, Self::LatencyP50 | Self::LatencyP99 | Self::LastReceiver)
    }

    /// The heading of its column.
    pub fn label(self) -> &'static str {
        match self {
            Self::CpuPerMessage => "CPU/message",
            Self::CpuPerConnection => "CPU/connection",
            Self::LatencyP50 => "p50",
            Self::LatencyP99 => "p99",
            Self::PeakMemory => "peak memory",
            Self::BytesPerConnection => "memory/connection",
            Self::LatencyShift => "p99 shift",
            Self::KernelPerSlow => "kernel/slow client",
            Self::MemoryGrowth => "growth/10 s",
            Self::IdleCpu => "CPU/connection/s",
            Self::CallsPerMessage => "calls/message",
            Self::Undelivered => "undelivered",
            Self::BytesPerMessage => "bytes/message",
            Self::LastReceiver => "last receiver",
            Self::UpstreamRequests => "upstream requests",
            Self::Rate => "echoes/s",
            Self::Deliveries => "deliveries/s",
            Self::Connections => "connections",
            Self::KernelPerConnection => "kernel/connection",
            Self::AllBack => "all back",
            Self::ConnectP99 => "connect p99",
            Self::CutOff => "cut off",
            Self::Clients => "clients",
        }
    }

    /// As [`Self::label`], with the unit of the plain figure.
    pub fn label_with_unit(self) -> String {
        let unit = match self {
            Self::CpuPerMessage | Self::CpuPerConnection | Self::IdleCpu => ", µs",
            Self::LatencyP50 | Self::LatencyP99 | Self::LastReceiver | Self::AllBack | Self::ConnectP99 => {
                ", ms"
            }
            Self::PeakMemory | Self::BytesPerConnection | Self::KernelPerSlow | Self::KernelPerConnection => {
                ", bytes"
            }
            Self::MemoryGrowth | Self::Undelivered => ", %",
            Self::LatencyShift
            | Self::CallsPerMessage
            | Self::BytesPerMessage
            | Self::UpstreamRequests
            | Self::Rate
            | Self::Deliveries
            | Self::Connections
            | Self::CutOff
            | Self::Clients => "",
        };
        format!("{}{unit}", self.label())
    }

    /// `value` with its unit.
    pub fn format(self, value: f64) -> String {
        match self {
            Self::CpuPerMessage | Self::CpuPerConnection | Self::IdleCpu => format!("{value:.2} µs"),
            Self::CallsPerMessage => format!("{value:.3}"),
            Self::LatencyP50 | Self::LatencyP99 | Self::LastReceiver | Self::AllBack | Self::ConnectP99 => {
                format!("{value:.3} ms")
            }
            Self::PeakMemory if value >= 1e6 => format!("{:.1} MB", value / 1e6),
            Self::BytesPerMessage
            | Self::PeakMemory
            | Self::BytesPerConnection
            | Self::KernelPerSlow
            | Self::KernelPerConnection => {
                format!("{value:.0} B")
            }
            Self::Rate
            | Self::Deliveries
            | Self::Connections
            | Self::UpstreamRequests
            | Self::CutOff
            | Self::Clients => {
                format!("{value:.0}")
            }
            Self::LatencyShift => format!("{value:.2}×"),
            Self::MemoryGrowth => format!("{value:.1} %"),
            Self::Undelivered => format!("{value:.3} %"),
        }
    }

    /// Whether more of it is better.
    pub fn larger_is_better(self) -> bool {
        matches!(self, Self::Rate | Self::Deliveries | Self::Connections | Self::Clients)
    }

    /// Whether a doubt about times voids it.
    pub fn is_time(self) -> bool {
        matches!(
            self,
            Self::LatencyP50
                | Self::LatencyP99
                | Self::LastReceiver
                | Self::Deliveries
                | Self::AllBack
                | Self::ConnectP99
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_called_as_results_call_it() {
        for metric in Metric::ALL {
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
            assert_eq!(Metric::of_name(metric.name()), Some(metric));
        }
        assert_eq!(Metric::of_name("fog"), None);
    }
}
