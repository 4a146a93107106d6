//! Singly linked lists of small numbers that share one array of links: a number is in one list at a
//! time. Nothing is allocated after the start.

/// The link behind each number.
pub(super) struct Links(Box<[u32]>);

/// Numbers in the order they came.
#[derive(Copy, Clone, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl Links {
    /// For the numbers below `count`.
    pub(super) fn new(count: usize) -> Links {
        Links(vec![NONE; count].into())
    }
}

impl List {
    pub(super) const EMPTY: List = List { first: NONE, last: NONE };

    pub(super) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    pub(super) fn first(&self) -> Option<u32> {
        (!self.is_empty()).then_some(self.first)
    }

    /// Appends a number that is in no list.
    pub(super) fn push(&mut self, links: &mut Links, number: u32) {
        links.0[number as usize] = NONE;
        if self.is_empty() {
            self.first = number;
        } else {
            links.0[self.last as usize] = number;
        }
        self.last = number;
    }

    /// Puts a number that is in no list in front of all others.
    pub(super) fn push_first(&mut self, links: &mut Links, number: u32) {
        links.0[number as usize] = self.first;
        if self.is_empty() {
            self.last = number;
        }
        self.first = number;
    }

    pub(super) fn pop(&mut self, links: &Links) -> Option<u32> {
        let first = self.first()?;
        self.first = links.0[first as usize];
        Some(first)
    }
}

/// Behind the last number.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn lists_that_share_links_keep_their_order(
            steps in prop::collection::vec((0usize..2, 0u8..3), 0..200),
        ) {
            let mut links = Links::new(8);
            let mut lists = [List::EMPTY; 2];
            let mut model = [VecDeque::new(), VecDeque::new()];
            let mut free: Vec<u32> = (0..8).collect();
            for (of, step) in steps {
                let (list, expected) = (&mut lists[of], &mut model[of]);
                match (step, free.last().copied()) {
                    (0, Some(number)) => {
                        list.push(&mut links, number);
                        expected.push_back(number);
                        free.pop();
                    }
                    (1, Some(number)) => {
                        list.push_first(&mut links, number);
                        expected.push_front(number);
                        free.pop();
                    }
                    _ => {
                        let popped = list.pop(&links);
                        prop_assert_eq!(popped, expected.pop_front());
                        free.extend(popped);
                    }
                }
                for (list, expected) in lists.iter().zip(&model) {
                    prop_assert_eq!(list.first(), expected.front().copied());
                }
            }
        }
    }
}
