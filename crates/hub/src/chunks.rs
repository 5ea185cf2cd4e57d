//! A vector that grows by chunks. Growing moves no element and leaves no freed copy behind; at 15,000
//! sessions that copy would be as large as the sessions themselves.

use std::ops::{Index, IndexMut};

/// Number of elements per chunk: a power of two, so that finding an element is a shift and a mask.
const CHUNK: usize = 512;

/// A vector whose elements never move.
pub struct Chunks<T> {
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T> Chunks<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an element at the end.
    pub fn push(&mut self, element: T) {
        if self.len.is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(element);
            self.len += 1;
        }
    }

    /// Returns the element at `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    /// Returns the element at `index`, if there is one.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    /// Iterates over all elements in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// Iterates over all elements in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flatten()
    }
}

impl<T> Index<usize> for Chunks<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        &self.chunks[index / CHUNK][index % CHUNK]
    }
}

impl<T> IndexMut<usize> for Chunks<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.chunks[index / CHUNK][index % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_moves_no_element() {
        let mut chunks = Chunks::default();
        assert!(chunks.is_empty());
        chunks.push(0);
        let first: *const usize = &chunks[0];
        for n in 1..3 * CHUNK + 7 {
            chunks.push(n);
        }
        assert!(std::ptr::eq(first, &chunks[0]));
        assert_eq!(chunks.len(), 3 * CHUNK + 7);
        assert!(chunks.iter().copied().eq(0..chunks.len()));
        chunks[CHUNK] = 0;
        *chunks.get_mut(CHUNK + 1).unwrap() = 0;
        assert_eq!(chunks.iter_mut().filter(|n| **n == 0).count(), 3);
        assert_eq!(chunks.get(chunks.len()), None);
    }
}
