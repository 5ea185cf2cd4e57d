//! Refused messages, by reason.

use crate::socketio::WireError;

/// The reason why a message of another server is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// The message isn't one of the adapter.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// The message is for another namespace than its channel.
    #[error("the message is for another namespace than its channel")]
    Namespace,
    /// The name of a room is empty or too long.
    #[error("the name of a room is empty or longer than {} bytes", stentor_hub::ROOM_BYTES_MAX)]
    RoomName,
    /// Requests arrive faster than they are answered.
    #[error("there are too many requests")]
    Rate,
    /// The memory budget has no room for the decoded message.
    #[error("the memory budget has no room for the message")]
    Memory,
}

impl Refused {
    /// The label in metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Wire(error) => error.label(),
            Self::Namespace => "namespace",
            Self::RoomName => "room_name",
            Self::Rate => "rate",
            Self::Memory => "memory",
        }
    }
}

/// All labels.
pub(super) const LABELS: [&str; 9] = [
    "malformed",
    "too_large",
    "obsolete",
    "unknown_type",
    "reserved_event",
    "namespace",
    "room_name",
    "rate",
    "memory",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_counter() {
        let wire = [
            WireError::Malformed,
            WireError::TooLarge,
            WireError::TooDeep,
            WireError::TooMany,
            WireError::NameTooLong,
            WireError::Obsolete,
            WireError::Pickle,
            WireError::UnknownType,
            WireError::NoBinary,
            WireError::ReservedEvent,
            WireError::BadPlaceholder,
        ];
        let reasons = wire.map(Refused::Wire).into_iter();
        for reason in reasons.chain([Refused::Namespace, Refused::RoomName, Refused::Rate, Refused::Memory]) {
            assert!(LABELS.contains(&reason.label()), "{reason}");
        }
    }
}
