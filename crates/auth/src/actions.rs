//! Actions that rules allow, and the clients to which they apply.

use std::fmt;

/// An action of a client on a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Subscribe to the topic: receive its publications.
    Subscribe,
    /// Publish to the topic.
    Publish,
    /// List the members of a room.
    Presence,
    /// Receive earlier publications of the topic.
    History,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 4] = [Self::Subscribe, Self::Publish, Self::Presence, Self::History];

    /// Returns the name in rules.
    pub fn name(self) -> &'static str {
        match self {
            Self::Subscribe => "subscribe",
            Self::Publish => "publish",
            Self::Presence => "presence",
            Self::History => "history",
        }
    }
}

/// A set of actions.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Actions(u8);

impl Actions {
    /// Reads a list of actions' names.
    ///
    /// # Errors
    /// Returns the mistake: the list is empty or has an unknown name.
    pub fn parse<S: AsRef<str>>(names: &[S]) -> Result<Self, String> {
        if names.is_empty() {
            return Err("allow is empty; expected subscribe, publish, presence or history".into());
        }
        names.iter().map(AsRef::as_ref).try_fold(Self::default(), |actions, name| {
            let known = Action::ALL.into_iter().find(|action| action.name() == name);
            let known = known.ok_or_else(|| {
                format!("{name:?} is not an action; expected subscribe, publish, presence or history")
            })?;
            Ok(actions.with(Self(1 << known as u8)))
        })
    }

    /// Returns `true` if the set contains this action.
    pub fn has(self, action: Action) -> bool {
        self.0 & 1 << action as u8 != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

impl fmt::Display for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            Action::ALL.into_iter().filter(|action| self.has(*action)).map(Action::name).collect();
        f.write_str(&names.join(", "))
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Actions({self})")
    }
}

/// The clients to which a rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recipients {
    /// Clients with a token.
    #[default]
    Users,
    /// All clients, including anonymous ones.
    Anyone,
}
