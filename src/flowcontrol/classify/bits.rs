//! Sets of the numbered policies of a FlowSchema, and tables of such sets by a word of a rule. Entry point: [`Table`].
//!
//! Sets are compared 64 policies at a time, so that a request is matched against tens of thousands of policies in
//! microseconds. A range of any length takes three runs at most, so that a rule of many subjects and many policies takes
//! memory for their sum, not for their product.

use std::cmp::Ordering;
use std::ops::Range;

/// Policies per word of a set.
const WORD: u32 = u64::BITS;

/// Equal words of a set.
struct Run {
    words: Range<u32>,
    bits: u64,
}

/// A set of policies: ascending runs of the words that are not empty.
pub(super) struct Policies(Box<[Run]>);

/// Reads a set in ascending order.
#[derive(Default)]
pub(super) struct Cursor<'a>(&'a [Run]);

/// Sets of policies by a word, in the order of the words.
pub(super) struct Table(Box<[(Box<str>, Policies)]>);

/// The number of words of a set of the policies below `end`.
pub(super) fn words(end: u32) -> usize {
    end.div_ceil(WORD) as usize
}

impl Policies {
    /// The union of ranges that are ascending and disjoint.
    pub(super) fn of(ranges: impl IntoIterator<Item = Range<u32>>) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let word = at / WORD;
                if at % WORD == 0 && range.end - at >= WORD {
                    let words = word..range.end / WORD;
                    at = words.end * WORD;
                    runs.push(Run { words, bits: u64::MAX });
                    continue;
                }
                let until = range.end.min((word + 1) * WORD);
                let bits = (u64::MAX << (at % WORD)) & (u64::MAX >> ((word + 1) * WORD - until));
                match runs.last_mut() {
                    Some(last) if last.words.start == word => last.bits |= bits,
                    _ => runs.push(Run {
                        words: word..word + 1,
                        bits,
                    }),
                }
                at = until;
            }
        }
        Self(runs.into())
    }

    pub(super) fn cursor(&self) -> Cursor<'_> {
        Cursor(&self.0)
    }

    /// Adds the set to `union`, which has a word for each 64 policies.
    pub(super) fn add_to(&self, union: &mut [u64]) {
        for run in &self.0 {
            for word in &mut union[run.words.start as usize..run.words.end as usize] {
                *word |= run.bits;
            }
        }
    }
}

impl Cursor<'_> {
    /// A word of the set. Numbers of words must not descend.
    pub(super) fn word(&mut self, number: u32) -> u64 {
        while let [run, rest @ ..] = self.0
            && run.words.end <= number
        {
            self.0 = rest;
        }
        let run = self.0.first().filter(|run| run.words.start <= number);
        run.map_or(0, |run| run.bits)
    }
}

impl Table {
    /// Collects the ranges of each word. Two ranges of a word are the same or disjoint.
    pub(super) fn of(mut entries: Vec<(&str, Range<u32>)>) -> Self {
        entries.sort_unstable_by(|(a, x), (b, y)| a.cmp(b).then(x.start.cmp(&y.start)));
        entries.dedup();
        let of_one_word = entries.chunk_by(|(a, _), (b, _)| a == b);
        let sets = of_one_word.map(|chunk| {
            let ranges = chunk.iter().map(|(_, range)| range.clone());
            (Box::<str>::from(chunk[0].0), Policies::of(ranges))
        });
        Self(sets.collect())
    }

    pub(super) fn get(&self, word: &str) -> Option<&Policies> {
        self.find(|known| known.cmp(word))
    }

    /// The set whose word compares as equal. `order` has the order of the words.
    pub(super) fn find(&self, order: impl Fn(&str) -> Ordering) -> Option<&Policies> {
        let found = self.0.binary_search_by(|(known, _)| order(known)).ok()?;
        Some(&self.0[found].1)
    }

    /// The words and their sets, in the order of the words.
    pub(super) fn into_entries(self) -> impl Iterator<Item = (Box<str>, Policies)> {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_has_the_members_of_its_ranges(lengths in proptest::collection::vec((0u32..200, 1u32..200), 0..8)) {
            let mut end = 0;
            let mut ranges = Vec::new();
            for (gap, length) in lengths {
                ranges.push(end + gap..end + gap + length);
                end += gap + length;
            }
            let set = Policies::of(ranges.iter().cloned());
            let mut union = vec![0; words(end)];
            set.add_to(&mut union);
            let mut cursor = set.cursor();
            for (number, word) in (0u32..).zip(&union) {
                prop_assert_eq!(cursor.word(number), *word);
                for bit in 0..WORD {
                    let policy = number * WORD + bit;
                    let member = ranges.iter().any(|range| range.contains(&policy));
                    prop_assert_eq!((*word >> bit) & 1 == 1, member, "{}", policy);
                }
            }
        }
    }

    #[test]
    fn neither_a_long_range_nor_many_short_ones_take_many_runs() {
        assert_eq!(Policies::of(std::iter::once(1..100_000)).0.len(), 3);
        let every_other = (0..6_400).step_by(2).map(|policy| policy..policy + 1);
        assert_eq!(Policies::of(every_other).0.len(), 100);
    }
}
