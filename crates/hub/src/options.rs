//! The options of a shard.

use crate::budget::LiveBytes;
use crate::dispatch::CoreId;
use crate::history::HistoryLimits;
use crate::log::RecoveryLimits;
use crate::patches::PatchLimits;
use crate::presence::PresenceOptions;
use std::time::Duration;

/// The options of a shard. All shards of a process share the same values except `core`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The core of this shard.
    pub core: CoreId,
    /// The number of cores, 1 to [`CORES_MAX`](crate::CORES_MAX).
    pub cores: usize,
    /// The seed of epochs, ids, and hashes of names that clients choose. Drawn at random when the process
    /// starts; the same on all cores.
    pub seed: [u64; 2],
    /// Maximum pending bytes of a session under `Queue` and `DropOldest`, in flight included; at most 4 GiB.
    pub send_buffer_bytes_max: usize,
    /// Maximum number of subscriptions of one session. A subscription that the server has ended counts until
    /// the session has taken its pending deliveries.
    pub subscriptions_max: usize,
    /// Maximum number of topics that this core knows: those of its own sessions, those with their home here, and
    /// plain rooms with members on other cores.
    pub topics_max: usize,
    /// Rooms that keep history: by the longest matching prefix of the name.
    pub room_history: Vec<(String, HistoryLimits)>,
    /// `true` if positions in rooms with history come from outside the process, through
    /// [`Hub::handle_positioned`](crate::Hub::handle_positioned) and
    /// [`Hub::handle_history`](crate::Hub::handle_history). Needs `reports_rooms`.
    pub external_positions: bool,
    /// The limits of patches kept for feeds.
    pub patches: PatchLimits,
    /// Minimum interval between two versions of a feed for one subscription of policy `Latest`.
    pub feed_interval_min: Duration,
    /// Options of rooms that have presence. `None` disables presence.
    pub presence: Option<PresenceOptions>,
    /// The limits of the recovery log. `None` keeps nothing, and no session can be suspended.
    pub recovery: Option<RecoveryLimits>,
    /// `true` if [`Hub::poll_subscribed`](crate::Hub::poll_subscribed) reports rooms too, because there are
    /// other nodes. Clients of those nodes may name versions of feeds that this node doesn't have yet.
    pub reports_rooms: bool,
    /// Counts the distinct live bytes of the process.
    pub live: LiveBytes,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            core: 0,
            cores: 1,
            seed: [0, 0],
            send_buffer_bytes_max: 1 << 20,
            subscriptions_max: 1_000,
            topics_max: 1_000_000,
            room_history: Vec::new(),
            external_positions: false,
            patches: PatchLimits::default(),
            feed_interval_min: Duration::ZERO,
            presence: None,
            recovery: None,
            reports_rooms: false,
            live: LiveBytes::default(),
        }
    }
}
