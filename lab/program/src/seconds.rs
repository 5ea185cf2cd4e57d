//! Durations as seconds, in scenarios and in the tasks of generators.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

/// Writes a number.
pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

/// Reads a number that isn't negative.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(de::Error::custom)
}
