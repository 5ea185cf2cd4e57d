//! The check at the end of an array or object: whether comparing its parts in place was right.

use super::{Frame, Lockstep, Unsure, name};
use crate::identity;
use crate::write::REPLACE_BYTES;

/// Arrays with less text than this, in bytes, are parsed rather than trusted.
const TRUSTED_BYTES_MIN: usize = 4096;
/// Of a trusted array, at most one in this many elements may have changed.
const TRUSTED_SHARE: usize = 8;
/// Number of changed members above which an object's names are sorted instead of compared pairwise.
pub(super) const COMPARED_NAMES_MAX: usize = 8;

/// The members of an object, or its first ones: the positions before their names.
#[derive(Clone, Copy)]
pub(super) struct Members<'m> {
    pub(super) first: usize,
    pub(super) others: &'m [u32],
    /// The changed ones of them.
    pub(super) changed: &'m [u32],
}

impl<'m> Members<'m> {
    fn places(self) -> impl Iterator<Item = usize> + use<'m> {
        [self.first].into_iter().chain(self.others.iter().map(|comma| *comma as usize))
    }
}

impl Frame {
    /// Returns `true` if each element of an array that ends at `end` corresponds to the old one in its place.
    /// That is the case if [`Walk`](crate::walk::Walk) would find the same: by identity, or because at most
    /// one element between two kept ones is unmatched.
    pub(super) fn is_in_place(&self, end: usize, count: usize) -> bool {
        let is_isolated = end - self.start >= TRUSTED_BYTES_MIN
            && !self.has_neighbours
            && self.changed <= count / TRUSTED_SHARE;
        self.changed <= 1 || self.is_identified || is_isolated
    }
}

impl Lockstep<'_> {
    /// Ends the innermost array or object, which has differences, at `end`.
    #[cold]
    #[inline(never)]
    pub(super) fn close_frame(&mut self, end: usize) -> Result<(), Unsure> {
        let frame = self.frames.pop().ok_or(Unsure::Other)?;
        if self.writer.len() == frame.written {
            // The values are only spelled differently.
            self.commas.truncate(frame.commas);
            return Ok(());
        }
        let new_end = self.in_new(end);
        let in_array = self.frames.last().is_some_and(|parent| !parent.is_object);
        let others = &self.commas[frame.commas..];
        let (is_sure, is_identified) = if frame.is_object {
            let members = Members { first: frame.start, others, changed: &self.members[frame.members..] };
            (self.has_unique_names(members)?, in_array && self.keeps_identity(members)?)
        } else {
            (frame.is_in_place(end, others.len() + 1), false)
        };
        if !is_sure {
            return self.parse(frame, end, new_end);
        }
        self.commas.truncate(frame.commas);
        self.members.truncate(frame.members);
        let new_len = new_end - frame.new_start;
        if self.writer.len() - frame.written > REPLACE_BYTES + new_len {
            // Like `Walk::value`: replaces the complete value if that is shorter.
            let mark = self.push_path(true)?;
            if self.writer.len() - frame.written > REPLACE_BYTES + self.writer.path_len() + new_len {
                self.writer.truncate(frame.written);
                let new = &self.new[frame.new_start..new_end];
                self.writer.replace(new, usize::MAX).map_err(|_| Unsure::Other)?;
            }
            self.writer.pop(mark);
        }
        self.mark_changed(is_identified);
        Ok(())
    }

    /// Returns `true` if the name of each changed member is unique in the object.
    pub(super) fn has_unique_names(&self, members: Members<'_>) -> Result<bool, Unsure> {
        let is_escaped = |name: &[u8]| name.contains(&b'\\');
        let changed = members.changed;
        if changed.len() > COMPARED_NAMES_MAX {
            let names = members.places().map(|place| Ok(name(self.old, place)?.0));
            let mut names: Vec<&[u8]> = names.collect::<Result<_, Unsure>>()?;
            names.sort_unstable();
            return Ok(
                names.windows(2).all(|pair| pair[0] != pair[1]) && !names.iter().any(|name| is_escaped(name))
            );
        }
        let mut changed_names: [&[u8]; COMPARED_NAMES_MAX] = [&[]; COMPARED_NAMES_MAX];
        for (name_of, place) in changed_names.iter_mut().zip(changed) {
            *name_of = name(self.old, *place as usize)?.0;
        }
        let changed_names = &changed_names[..changed.len()];
        let mut found = 0;
        for place in members.places() {
            let (name, _) = name(self.old, place)?;
            found += changed_names.iter().filter(|changed| **changed == name).count();
            if is_escaped(name) {
                return Ok(false);
            }
        }
        // Each changed member found only itself.
        Ok(found == changed.len())
    }

    /// Returns `true` if an object has an identifying member whose value is unchanged.
    fn keeps_identity(&self, members: Members<'_>) -> Result<bool, Unsure> {
        let mut changed = members.changed.iter().peekable();
        for place in members.places() {
            if changed.next_if(|changed| **changed as usize == place).is_some() {
                continue;
            }
            let (name, end) = name(self.old, place)?;
            let is_value = matches!(self.old.get(end + 1), Some(b'"' | b'-' | b'0'..=b'9'));
            if is_value && identity::is_trusted(self.options, name) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
