//! The namespaces that a worker has declared.

use crate::entry::WorkerEntry;
use crate::error::LinkError;
use crate::limits::{NAMESPACE_BYTES_MAX, NAMESPACE_NAME_BYTES_MAX};
use crate::value::{Name, Namespace};
use std::collections::HashMap;
use std::sync::Arc;

/// Names of namespaces by index, and the reverse.
#[derive(Default)]
pub(crate) struct Namespaces {
    names: Vec<Arc<str>>,
    indexes: HashMap<Arc<str>, Namespace>,
    /// Bytes of the names.
    bytes: usize,
}

impl Namespaces {
    /// Adds the next namespace.
    pub(crate) fn declare(&mut self, namespace: Namespace, name: Name) -> Result<(), LinkError> {
        if usize::from(namespace.0) != self.names.len() || namespace == Namespace::END {
            return Err(LinkError::Namespace(namespace.0));
        }
        if name.len() > NAMESPACE_NAME_BYTES_MAX {
            return Err(LinkError::NamespaceName(name.len()));
        }
        self.bytes += name.len();
        if self.bytes > NAMESPACE_BYTES_MAX {
            return Err(LinkError::TooManyNamespaces);
        }
        let name: Arc<str> = name.into();
        self.names.push(name.clone());
        self.indexes.insert(name, namespace);
        Ok(())
    }

    pub(crate) fn name(&self, namespace: Namespace) -> Option<&Arc<str>> {
        self.names.get(usize::from(namespace.0))
    }

    pub(crate) fn index(&self, name: &str) -> Option<Namespace> {
        self.indexes.get(name).copied()
    }

    /// Checks that the namespace of an entry is declared.
    pub(crate) fn check(&self, entry: &WorkerEntry) -> Result<(), LinkError> {
        use WorkerEntry as E;
        let namespace = match entry {
            E::Released { namespace, .. } if *namespace == Namespace::END => return Ok(()),
            E::Add { namespace, .. }
            | E::Del { namespace, .. }
            | E::Join { namespace, .. }
            | E::Leave { namespace, .. }
            | E::Broadcast { namespace, .. }
            | E::Select { namespace, .. }
            | E::Relay { namespace, .. }
            | E::State { namespace, .. }
            | E::Persist { namespace, .. }
            | E::Restore { namespace, .. }
            | E::Released { namespace, .. } => *namespace,
            _ => return Ok(()),
        };
        self.name(namespace).map(|_| ()).ok_or(LinkError::Namespace(namespace.0))
    }
}
