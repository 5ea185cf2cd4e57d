//! Compares two versions of a document text against text, without parsing their common parts.
//!
//! Both texts are without whitespace, and the old one was checked. After the same bytes at the same place,
//! text is JSON in one version if it is in the other, so equal text needs no check: it is skipped in blocks,
//! and only its brackets and commas are read, because they locate a difference within the document. After the
//! last difference not even these are read, unless they may change what a difference means (module
//! [`rest`]). Where the texts differ, there are two cases:
//!
//! 1. A value was replaced by another one. It is read in both texts, and the comparison continues after it.
//! 2. Any other difference: members or elements were added, removed or moved. The innermost array or object
//!    is parsed in both texts and compared by [`Walk`], like complete documents.
//!
//! The second case also applies to an array in which several elements changed, if they may have been moved,
//! and to an object with duplicate names. If the root itself is affected, or too much text would be parsed
//! more than once, this module gives up, and the complete documents are compared.
//!
//! Invariants: `old[..at]` and `new[..new_at]` have the same open arrays and objects (`frames`, then `opens`),
//! with the same number of parts before the current one. `commas` has an entry for each of these parts but
//! the first, and `members` for each changed member. The output of `writer` from `frame.written` on belongs to
//! the frame.

mod close;
mod rest;

use super::Options;
use super::hash::Keys;
use super::number::Number;
use super::tape::{self, Parsed};
use super::text;
use super::walk::{Walk, Work};
use super::write::{PathMark, Token, Writer};
use rest::{Attempts, common_prefix};
use stentor_json::{BLOCK_BYTES, DEPTH_MAX, Strings, Visitor, is_space, mask};

/// Reason why the complete documents must be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsure {
    /// The new text has whitespace.
    Space,
    /// Any other reason, including text that isn't JSON.
    Other,
}

/// An array or object that was opened after the last difference.
struct Open {
    start: u32,
    /// Length of `commas` in [`Lockstep`] before it began.
    commas: u32,
}

/// An open array or object with a difference inside.
#[derive(Clone, Copy)]
struct Frame {
    /// Start of the array or object in both texts.
    start: usize,
    new_start: usize,
    is_object: bool,
    /// Lengths of the lists in [`Lockstep`] and of the patch before the frame began.
    commas: usize,
    members: usize,
    written: usize,
    /// Number of changed parts. For an array also the index of the last one, and `true` if two changed
    /// elements were neighbors.
    changed: usize,
    last_changed: usize,
    has_neighbours: bool,
    /// `true` if every changed element is an object that kept its identity.
    is_identified: bool,
}

/// A running comparison.
pub(crate) struct Lockstep<'a> {
    options: &'a Options,
    keys: &'a Keys,
    old: &'a [u8],
    new: &'a [u8],
    at: usize,
    new_at: usize,
    /// Start, in the old text, of the token after the last bracket, comma or changed value.
    token: usize,
    /// `true` if a value ends at `token`.
    after_value: bool,
    frames: Vec<Frame>,
    /// The arrays and objects inside those of `frames`. Empty while a difference is handled.
    opens: Vec<Open>,
    /// Positions of the commas of all open frames, in the old text.
    commas: Vec<u32>,
    /// Position before the name of each changed member of an open frame, in the old text.
    members: Vec<u32>,
    writer: Writer,
    /// Number of bytes that may still be parsed.
    parse_bytes: usize,
    work: Work,
}

/// Returns the patch from `old` to `new`, possibly without operations, and the number of steps of the
/// comparison. At most `parse_bytes_max` bytes are parsed, and no more than both texts have.
pub(crate) fn compare(
    options: &Options,
    keys: &Keys,
    old: &[u8],
    new: &[u8],
    parse_bytes_max: usize,
) -> Result<(Writer, u64), Unsure> {
    // A value takes at least two bytes.
    let may_exceed = |text: &[u8]| {
        text.len() / 2 >= options.values_max && tape::opens_and_commas(text) >= options.values_max
    };
    if old.len().max(new.len()) > i32::MAX as usize || may_exceed(old) || may_exceed(new) {
        return Err(Unsure::Other);
    }
    let mut lockstep = Lockstep {
        options,
        keys,
        old,
        new,
        at: 0,
        new_at: 0,
        token: 0,
        after_value: false,
        frames: Vec::new(),
        opens: Vec::new(),
        commas: Vec::new(),
        members: Vec::new(),
        writer: Writer::new(),
        parse_bytes: parse_bytes_max.min(old.len() + new.len()),
        work: Work::for_bytes(options, old.len() + new.len()),
    };
    lockstep.run()?;
    Ok((lockstep.writer, lockstep.work.done))
}

/// Counts whitespace; ignores all other parts.
struct Spaces(usize);

impl Visitor for Spaces {
    type Error = stentor_json::Error;

    fn space(&mut self, bytes: usize) {
        self.0 += bytes;
    }
}

impl<'a> Lockstep<'a> {
    fn run(&mut self) -> Result<(), Unsure> {
        loop {
            self.pass_equal()?;
            if self.at == self.old.len() && self.new_at == self.new.len() {
                let has_ended = self.frames.is_empty() && self.opens.is_empty() && self.after_value;
                return if has_ended { Ok(()) } else { Err(Unsure::Other) };
            }
            self.begin_frames();
            self.difference()?;
            if self.writer.len() > 2 * self.new.len() + 1024 {
                return Err(Unsure::Other);
            }
        }
    }

    /// Skips equal text up to the next difference, or the end.
    fn pass_equal(&mut self) -> Result<(), Unsure> {
        let old = self.old;
        let equal = common_prefix(&old[self.at..], &self.new[self.new_at..]);
        let is_rest = self.at + equal == old.len() && self.new_at + equal == self.new.len();
        let mut attempts = Attempts::new(is_rest);
        if self.skip_rest(self.at, &mut attempts)? {
            return Ok(());
        }
        let (blocks, tail) = old[self.at..self.at + equal].as_chunks();
        let mut padded = [b' '; BLOCK_BYTES];
        padded[..tail.len()].copy_from_slice(tail);
        let mut strings = Strings::default();
        let (mut start, mut last_mark) = (self.at, None);
        for block in blocks.iter().chain((!tail.is_empty()).then_some(&padded)) {
            let outside = !strings.inside(block);
            let mut commas = mask(block, [b',']) & outside;
            let mut brackets = mask(block, *b"{}[]") & outside;
            if commas | brackets != 0 {
                last_mark = Some(start + (commas | brackets).ilog2() as usize);
            }
            while brackets != 0 {
                let before = (brackets & brackets.wrapping_neg()) - 1;
                self.push_commas(start, commas & before);
                commas &= !before;
                let place = start + brackets.trailing_zeros() as usize;
                brackets &= brackets - 1;
                if matches!(old[place], b'{' | b'[') {
                    self.open(place)?;
                } else if self.close(place + 1)? && self.skip_rest(place + 1, &mut attempts)? {
                    return Ok(());
                }
            }
            self.push_commas(start, commas);
            start += BLOCK_BYTES;
        }
        if let Some(place) = last_mark {
            self.token = place + 1;
            self.after_value = matches!(old[place], b'}' | b']');
        }
        (self.at, self.new_at) = (self.at + equal, self.new_at + equal);
        Ok(())
    }

    /// Records the commas of a block that begins at `start`.
    #[inline(always)]
    fn push_commas(&mut self, start: usize, mut commas: u64) {
        while commas != 0 {
            self.commas.push((start + commas.trailing_zeros() as usize) as u32);
            commas &= commas - 1;
        }
    }

    /// Maps a position of the equal text to the new document.
    fn in_new(&self, place: usize) -> usize {
        place + self.new_at - self.at
    }

    /// Begins the array or object at `place`.
    #[inline]
    fn open(&mut self, place: usize) -> Result<(), Unsure> {
        if self.frames.len() + self.opens.len() == DEPTH_MAX {
            return Err(Unsure::Other);
        }
        self.opens.push(Open { start: place as u32, commas: self.commas.len() as u32 });
        Ok(())
    }

    /// Ends the innermost array or object at `end`. Returns `true` if it had differences.
    #[inline]
    fn close(&mut self, end: usize) -> Result<bool, Unsure> {
        let Some(open) = self.opens.pop() else { return self.close_frame(end).map(|()| true) };
        self.commas.truncate(open.commas as usize);
        Ok(false)
    }

    /// Records that the arrays and objects around `at` have a difference inside.
    fn begin_frames(&mut self) {
        let (old, at, new_at) = (self.old, self.at, self.new_at);
        let (members, written) = (self.members.len(), self.writer.len());
        self.frames.extend(self.opens.drain(..).map(|Open { start, commas }| Frame {
            start: start as usize,
            new_start: start as usize + new_at - at,
            is_object: old[start as usize] == b'{',
            commas: commas as usize,
            members,
            written,
            changed: 0,
            last_changed: 0,
            has_neighbours: false,
            is_identified: true,
        }));
    }

    /// Handles a difference at `at`, in the text after `token`.
    fn difference(&mut self) -> Result<(), Unsure> {
        let (old_byte, new_byte) = (self.old.get(self.at), self.new.get(self.new_at));
        // Found here, whitespace costs no scan of the array or object around it.
        if new_byte.is_some_and(|byte| is_space(*byte)) && !self.is_in_string()? {
            return Err(Unsure::Space);
        }
        if self.after_value {
            return match (self.frames.last(), old_byte, new_byte) {
                (Some(frame), Some(b']'), Some(b',')) if frame.is_followed() => self.appended(),
                (Some(frame), Some(b','), Some(b']')) if frame.is_followed() => self.truncated(),
                _ => self.container(),
            };
        }
        let is_close = |byte: Option<&u8>| matches!(byte, Some(b']' | b'}'));
        if self.token == self.at && (is_close(old_byte) || is_close(new_byte)) {
            return self.container();
        }
        let mut start = self.token;
        if self.frames.last().is_some_and(|frame| frame.is_object) {
            let colon = self.old_end(start)?;
            if self.at <= colon {
                return self.container();
            }
            start = colon + 1;
        }
        let new_start = self.in_new(start);
        let (end, new_end) = (self.old_end(start)?, self.new_end(new_start)?);
        if !same_scalar(&self.old[start..end], &self.new[new_start..new_end]) {
            let mark = self.push_path(true)?;
            let written = self.writer.replace(&self.new[new_start..new_end], usize::MAX);
            written.map_err(|_| Unsure::Other)?;
            self.writer.pop(mark);
            self.mark_changed(false);
        }
        self.go_on(end, new_end)
    }

    /// Returns `true` if the difference at `at` is inside a string.
    fn is_in_string(&self) -> Result<bool, Unsure> {
        let mut place = self.token;
        while place < self.at {
            place = if self.old[place] == b'"' { self.old_end(place)? } else { place + 1 };
        }
        Ok(place > self.at)
    }

    /// Continues after a value. An end that was already compared is an error, which occurs only if the old
    /// text wasn't checked.
    fn go_on(&mut self, end: usize, new_end: usize) -> Result<(), Unsure> {
        if end < self.at || new_end < self.new_at {
            return Err(Unsure::Other);
        }
        (self.at, self.new_at) = (end, new_end);
        (self.token, self.after_value) = (end, true);
        Ok(())
    }

    /// Returns the end of the value at `start` of the old text.
    fn old_end(&self, start: usize) -> Result<usize, Unsure> {
        stentor_json::scan(self.old, start, DEPTH_MAX, &mut Spaces(0)).map_err(|_| Unsure::Other)
    }

    /// Returns the end of the value at `start` of the new text, and checks the value.
    fn new_end(&self, start: usize) -> Result<usize, Unsure> {
        let mut spaces = Spaces(0);
        let end = stentor_json::scan(self.new, start, DEPTH_MAX - self.frames.len(), &mut spaces);
        if spaces.0 > 0 {
            return Err(Unsure::Space);
        }
        let end = end.map_err(|_| Unsure::Other)?;
        std::str::from_utf8(&self.new[start..end]).map_err(|_| Unsure::Other)?;
        Ok(end)
    }

    /// Handles elements that were appended to an array, which ends in the old text.
    fn appended(&mut self) -> Result<(), Unsure> {
        let mut index = self.elements() + 1;
        let mark = self.push_path(false)?;
        while self.new.get(self.new_at) == Some(&b',') {
            let (start, end) = (self.new_at + 1, self.new_end(self.new_at + 1)?);
            let written = self.writer.add(Token::Index(index), &self.new[start..end], usize::MAX);
            written.map_err(|_| Unsure::Other)?;
            (self.new_at, index) = (end, index + 1);
        }
        self.writer.pop(mark);
        Ok(())
    }

    /// Handles the removal of an array's last elements. The array ends in the new text.
    fn truncated(&mut self) -> Result<(), Unsure> {
        let first = self.elements() + 1;
        let mut index = first;
        while self.old.get(self.at) == Some(&b',') {
            (self.at, index) = (self.old_end(self.at + 1)?, index + 1);
        }
        self.token = self.at;
        let mark = self.push_path(false)?;
        for index in (first..index).rev() {
            self.writer.remove(Token::Index(index), usize::MAX).map_err(|_| Unsure::Other)?;
        }
        self.writer.pop(mark);
        Ok(())
    }

    /// Returns the number of commas so far in the innermost array or object: the index of its current part.
    fn elements(&self) -> usize {
        self.commas.len() - self.frames.last().map_or(0, |frame| frame.commas)
    }

    /// Parses and compares the innermost array or object.
    fn container(&mut self) -> Result<(), Unsure> {
        let frame = self.frames.pop().ok_or(Unsure::Other)?;
        let (end, new_end) = (self.old_end(frame.start)?, self.new_end(frame.new_start)?);
        self.parse(frame, end, new_end)?;
        self.go_on(end, new_end)
    }

    /// Parses and compares the value of `frame`.
    fn parse(&mut self, frame: Frame, end: usize, new_end: usize) -> Result<(), Unsure> {
        if self.frames.is_empty() {
            return Err(Unsure::Other);
        }
        self.commas.truncate(frame.commas);
        self.members.truncate(frame.members);
        self.writer.truncate(frame.written);
        let (old, new) = (&self.old[frame.start..end], &self.new[frame.new_start..new_end]);
        let bytes = old.len() + new.len();
        self.parse_bytes = self.parse_bytes.checked_sub(bytes).ok_or(Unsure::Other)?;
        let parse = |text| Parsed::parse(text, self.keys, self.options.values_max).map_err(|_| Unsure::Other);
        let (old, new) = (parse(old)?, parse(new)?);
        if !new.is_minified() {
            return Err(Unsure::Space);
        }
        let mark = self.push_path(true)?;
        let writer = std::mem::replace(&mut self.writer, Writer::new());
        let work = self.work;
        let mut walk = Walk { old: &old, new: &new, options: self.options, writer, work };
        let written = if walk.same(0, 0) { Ok(()) } else { walk.value(0, 0, usize::MAX) };
        let is_identified = walk.is_identified(0, 0);
        (self.writer, self.work) = (walk.writer, walk.work);
        written.map_err(|_| Unsure::Other)?;
        self.writer.pop(mark);
        if self.writer.len() > frame.written {
            self.mark_changed(is_identified);
        }
        Ok(())
    }

    /// Records that the current part of the innermost array or object changed.
    fn mark_changed(&mut self, is_identified: bool) {
        let index = self.elements();
        let Some(frame) = self.frames.last_mut() else { return };
        if frame.is_object {
            let place = if index == 0 { frame.start as u32 } else { self.commas[self.commas.len() - 1] };
            self.members.push(place);
        }
        frame.mark_changed(index, is_identified);
    }

    /// Pushes the path of the innermost array or object, or of its current part.
    fn push_path(&mut self, of_part: bool) -> Result<PathMark, Unsure> {
        let first = self.writer.mark();
        let ends = self.frames.iter().skip(1).map(|frame| frame.commas).chain([self.commas.len()]);
        let parts = self.frames.len() - usize::from(!of_part && !self.frames.is_empty());
        for (frame, end) in self.frames.iter().zip(ends).take(parts) {
            let index = end - frame.commas;
            if !frame.is_object {
                self.writer.push(Token::Index(index));
                continue;
            }
            let before = if index == 0 { frame.start } else { self.commas[end - 1] as usize };
            let name = name(self.old, before)?.0;
            if !self.writer.may_name(name) {
                return Err(Unsure::Other);
            }
            self.writer.push(Token::Name(name));
        }
        Ok(first)
    }
}

impl Frame {
    /// Records that the part at `index` changed.
    fn mark_changed(&mut self, index: usize, is_identified: bool) {
        self.has_neighbours |= self.changed > 0 && self.last_changed + 1 == index;
        self.is_identified &= is_identified;
        self.last_changed = index;
        self.changed += 1;
    }

    /// Returns `true` if an array's elements so far are matched in place, even if only one text has further
    /// elements.
    fn is_followed(&self) -> bool {
        !self.is_object && (self.changed == 0 || self.is_identified)
    }
}

/// Returns the name of the member after the comma or bracket at `before`, between its quotes, and the
/// position of its colon.
fn name(text: &[u8], before: usize) -> Result<(&[u8], usize), Unsure> {
    let start = before + 1;
    let end = stentor_json::scan(text, start, 0, &mut Spaces(0)).map_err(|_| Unsure::Other)?;
    match text.get(start..end) {
        Some([b'"', name @ .., b'"']) => Ok((name, end)),
        _ => Err(Unsure::Other),
    }
}

/// Returns `true` if two values are equal, provided that neither has parts.
fn same_scalar(old: &[u8], new: &[u8]) -> bool {
    match (old, new) {
        _ if old == new => true,
        ([b'"', old @ .., b'"'], [b'"', new @ .., b'"']) => text::equal(old, new),
        ([b'-' | b'0'..=b'9', ..], [b'-' | b'0'..=b'9', ..]) => Number::of(old) == Number::of(new),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
