//! Where do tables of many millions of small rows live? In pages: growing one never copies what is there.
//!
//! A `Vec` of 10 million rows that doubles copies 160 MB in the middle of a turn and leaves half of itself unused.

/// Elements a page; a power of two, so that finding one is a shift and a mask.
const PAGE: usize = 4_096;

/// A table that grows at its end, a page at a time.
pub(super) struct Paged<T> {
    pages: Vec<Box<[T; PAGE]>>,
    empty: T,
}

impl<T: Copy> Paged<T> {
    /// A table whose elements are `empty` until they are written.
    pub(super) fn new(empty: T) -> Self {
        Self { pages: Vec::new(), empty }
    }

    pub(super) fn get(&self, index: u32) -> Option<&T> {
        let index = index as usize;
        self.pages.get(index / PAGE).map(|page| &page[index % PAGE])
    }

    /// The element at `index`, growing the table up to it.
    pub(super) fn entry(&mut self, index: u32) -> &mut T {
        let index = index as usize;
        while self.pages.len() <= index / PAGE {
            let page = vec![self.empty; PAGE].into_boxed_slice();
            self.pages.push(page.try_into().unwrap_or_else(|_| unreachable!("a page has PAGE elements")));
        }
        &mut self.pages[index / PAGE][index % PAGE]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.pages.len() * size_of::<[T; PAGE]>() + self.pages.capacity() * size_of::<Box<[T; PAGE]>>()
    }
}

impl<T> std::ops::Index<u32> for Paged<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        &self.pages[index as usize / PAGE][index as usize % PAGE]
    }
}

impl<T> std::ops::IndexMut<u32> for Paged<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.pages[index as usize / PAGE][index as usize % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_grows_to_the_entry_asked_for_and_keeps_what_it_had() {
        let mut table = Paged::new(7_u8);
        *table.entry(3) = 1;
        *table.entry(2 * PAGE as u32) = 2;
        assert_eq!((table[3], table[2 * PAGE as u32], table[4]), (1, 2, 7));
        assert_eq!(table.get(3 * PAGE as u32 - 1), Some(&7));
        assert_eq!(table.get(3 * PAGE as u32), None);
    }
}
