//! Patterns as a tree of their segments, so that a name is compared with few patterns: literal texts are
//! looked up, and only wildcards and claims are tried one by one.

use crate::actions::{Actions, Recipients};
use crate::attributes::Attributes;
use crate::pattern::{Pattern, Segment, has, parts};
use std::collections::HashMap;

/// Allowed actions: those of clients with a token (users), and those of all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Allowed {
    users: Actions,
    anyone: Actions,
}

impl Allowed {
    fn add(&mut self, actions: Actions, to: Recipients) {
        self.users = self.users.with(actions);
        if to == Recipients::Anyone {
            self.anyone = self.anyone.with(actions);
        }
    }

    fn of(self, attributes: Option<&Attributes>) -> Actions {
        if attributes.is_some() { self.users } else { self.anyone }
    }
}

/// A node of the tree, for all names that begin with the same segments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Actions that are allowed on the name that ends here.
    here: Allowed,
    /// Actions that are allowed on all longer names.
    beyond: Allowed,
    texts: HashMap<Box<str>, Self>,
    /// Child nodes for wildcards and claims.
    others: Vec<(Segment, Self)>,
}

impl Tree {
    pub(crate) fn insert(&mut self, pattern: &Pattern, actions: Actions, to: Recipients) {
        let mut node = self;
        for segment in &pattern.segments {
            node = match segment {
                Segment::Rest => return node.beyond.add(actions, to),
                Segment::Text(text) => node.texts.entry(text.clone()).or_default(),
                other => {
                    let known = node.others.iter().position(|(segment, _)| segment == other);
                    let at = known.unwrap_or_else(|| {
                        node.others.push((other.clone(), Self::default()));
                        node.others.len() - 1
                    });
                    &mut node.others[at].1
                }
            };
        }
        node.here.add(actions, to);
    }

    /// Returns the actions that a client may take on all names, by the pattern `**`.
    pub(crate) fn everything(&self, attributes: Option<&Attributes>) -> Actions {
        self.beyond.of(attributes)
    }

    /// Returns all actions that a client may take on a name. Visits each node at most once.
    pub(crate) fn actions(&self, name: &str, attributes: Option<&Attributes>) -> Actions {
        let Some(part) = parts(name).next() else { return self.here.of(attributes) };
        let rest = &name[part.len()..];
        let mut found = self.beyond.of(attributes);
        if let Some(node) = self.texts.get(part) {
            found = found.with(node.actions(rest, attributes));
        }
        for (segment, node) in &self.others {
            if segment.matches(part, &|claim, value| has(attributes, claim, value)) {
                found = found.with(node.actions(rest, attributes));
            }
        }
        found
    }
}
