//! The namespaces that a worker has declared.

use crate::entry::WorkerEntry;
use crate::error::LinkError;
use crate::limits::{NAMESPACE_BYTES_MAX, NAMESPACE_NAME_BYTES_MAX};
use crate::value::{Name, Namespace};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Bytes that an index needs beside its name.
const ENTRY_BYTES: usize = 96;

/// Names of namespaces by index, and the reverse.
///
/// The owner of a link resolves the indexes in a frame's entries when it has taken all of them, so the index of a namespace that is gone keeps
/// its name until the next frame.
#[derive(Default)]
pub(crate) struct Namespaces {
    /// `None`: the index is vacant.
    names: Vec<Option<Arc<str>>>,
    indexes: HashMap<Arc<str>, Namespace>,
    /// The namespaces that are gone since the last frame.
    gone: BTreeSet<Namespace>,
    /// Bytes of the names.
    bytes: usize,
}

impl Namespaces {
    /// Adds a namespace, with the next index or a vacant one.
    pub(crate) fn declare(&mut self, namespace: Namespace, name: Name) -> Result<(), LinkError> {
        let index = usize::from(namespace.0);
        let is_free = self.names.get(index).map_or(index == self.names.len(), Option::is_none);
        if !is_free || namespace == Namespace::END {
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
        self.indexes.insert(name.clone(), namespace);
        match self.names.get_mut(index) {
            Some(vacant) => *vacant = Some(name),
            None => self.names.push(Some(name)),
        }
        Ok(())
    }

    /// Removes a namespace that is gone. Its name no longer counts, and no entry is written with its index.
    pub(crate) fn remove(&mut self, namespace: Namespace) -> Result<(), LinkError> {
        let name = self.name(namespace).filter(|_| !self.gone.contains(&namespace)).cloned();
        let name = name.ok_or(LinkError::Namespace(namespace.0))?;
        self.bytes -= name.len();
        if self.index(&name) == Some(namespace) {
            self.indexes.remove(&name);
        }
        self.gone.insert(namespace);
        Ok(())
    }

    /// A frame begins: the entries of the last one are carried out.
    pub(crate) fn begin_frame(&mut self) {
        for namespace in std::mem::take(&mut self.gone) {
            self.names[usize::from(namespace.0)] = None;
        }
    }

    /// Bytes that the table holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes + self.names.len() * ENTRY_BYTES
    }

    pub(crate) fn name(&self, namespace: Namespace) -> Option<&Arc<str>> {
        self.names.get(usize::from(namespace.0))?.as_ref()
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
