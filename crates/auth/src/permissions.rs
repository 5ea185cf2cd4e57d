//! Rules that permit clients to act on topics. An action is refused unless a rule allows it. A client has the
//! actions of all rules together.

use crate::actions::{Action, Actions, Recipients};
use crate::attributes::Attributes;
use crate::pattern::Pattern;
use crate::tree::Tree;
use std::collections::HashMap;
use std::fmt;

/// The namespace of rooms in rules that have no namespace.
const MAIN_NAMESPACE: &str = "/";

/// A topic, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic<'a> {
    /// The feed with this key.
    Feed(&'a str),
    /// A room.
    Room {
        /// The room's namespace.
        namespace: &'a str,
        /// The room's name.
        name: &'a str,
    },
}

impl fmt::Display for Topic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feed(key) => write!(f, "feed {key}"),
            Self::Room { namespace: MAIN_NAMESPACE, name } => write!(f, "room {name}"),
            Self::Room { namespace, name } => write!(f, "room {name} of namespace {namespace}"),
        }
    }
}

/// A rule. It allows clients to take actions on topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(crate) feeds: Vec<Pattern>,
    pub(crate) rooms: Vec<Pattern>,
    pub(crate) namespace: Box<str>,
    pub(crate) allow: Actions,
    pub(crate) to: Recipients,
}

impl Rule {
    /// Makes a rule for feeds and rooms. `topics` are patterns for both, or only for rooms if there is a
    /// `namespace`. Without a `namespace`, the rule applies to rooms of `/`.
    ///
    /// # Errors
    /// A pattern is malformed, or there is no pattern.
    pub fn new<S: AsRef<str>>(
        topics: &[S],
        feeds: &[S],
        rooms: &[S],
        namespace: Option<&str>,
        allow: Actions,
        to: Recipients,
    ) -> Result<Self, String> {
        let parse = |all: &[S]| {
            let parsed = all.iter().map(|text| Pattern::parse(text.as_ref()));
            parsed.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())
        };
        let (topics, mut feeds, mut rooms) = (parse(topics)?, parse(feeds)?, parse(rooms)?);
        if topics.is_empty() && feeds.is_empty() && rooms.is_empty() {
            return Err("names no topics, feeds or rooms".into());
        }
        if namespace.is_none() {
            feeds.extend(topics.iter().cloned());
        }
        rooms.extend(topics);
        Ok(Self { feeds, rooms, namespace: namespace.unwrap_or(MAIN_NAMESPACE).into(), allow, to })
    }

    /// Returns the rule's patterns that may match a topic.
    pub(crate) fn patterns(&self, topic: Topic<'_>) -> &[Pattern] {
        match topic {
            Topic::Feed(_) => &self.feeds,
            Topic::Room { namespace, .. } if *self.namespace == *namespace => &self.rooms,
            Topic::Room { .. } => &[],
        }
    }
}

/// Compiled rules.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    rules: Vec<Rule>,
    feeds: Tree,
    rooms: HashMap<Box<str>, Namespace>,
}

#[derive(Clone, Debug, Default)]
struct Namespace {
    tree: Tree,
    /// `true` if a rule for the namespace applies to anonymous clients.
    anyone: bool,
}

impl Permissions {
    /// Compiles rules.
    pub fn new(rules: Vec<Rule>) -> Self {
        let (mut feeds, mut rooms) = (Tree::default(), HashMap::<_, Namespace>::new());
        for rule in &rules {
            rule.feeds.iter().for_each(|pattern| feeds.insert(pattern, rule.allow, rule.to));
            if !rule.rooms.is_empty() {
                let namespace = rooms.entry(rule.namespace.clone()).or_default();
                namespace.anyone |= rule.to == Recipients::Anyone;
                rule.rooms.iter().for_each(|pattern| namespace.tree.insert(pattern, rule.allow, rule.to));
            }
        }
        Self { rules, feeds, rooms }
    }

    /// Returns the rules in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns all actions that a client may take on a topic. `attributes` is `None` for an anonymous client.
    pub fn actions(&self, attributes: Option<&Attributes>, topic: Topic<'_>) -> Actions {
        let (tree, name) = match topic {
            Topic::Feed(key) => (Some(&self.feeds), key),
            Topic::Room { namespace, name } => (self.rooms.get(namespace).map(|rooms| &rooms.tree), name),
        };
        let Some(tree) = tree else { return Actions::default() };
        // The empty name is the room of all sockets of a namespace. Only `**` matches it.
        if name.is_empty() { tree.everything(attributes) } else { tree.actions(name, attributes) }
    }

    /// Returns `true` if a client may take an action on a topic.
    pub fn allows(&self, attributes: Option<&Attributes>, action: Action, topic: Topic<'_>) -> bool {
        self.actions(attributes, topic).has(action)
    }

    /// Returns `true` if a client may connect to a namespace: to `/`, or to a namespace in a rule that
    /// applies to the client.
    pub fn allows_namespace(&self, attributes: Option<&Attributes>, namespace: &str) -> bool {
        let named = || self.rooms.get(namespace).is_some_and(|rooms| attributes.is_some() || rooms.anyone);
        namespace == MAIN_NAMESPACE || named()
    }
}
