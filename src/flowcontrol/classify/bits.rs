//! Sets of the numbered policies of a FlowSchema, and tables of such sets by a word of a rule. Entry point: [`Table`].
//!
//! Sets are compared 64 policies at a time, so that a request is matched against tens of thousands of policies in
//! microseconds. A range of any length takes three runs at most, so that a rule of many subjects and many policies takes
//! memory for their sum, not for their product.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

/// Policies per word of a set.
const WORD: u32 = u64::BITS;

/// Equal words of a set.
#[derive(PartialEq, Eq, Hash)]
struct Run {
    words: Range<u32>,
    bits: u64,
}

/// A set of policies: ascending runs of the words that are not empty.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Policies(Box<[Run]>);

/// Reads a set in ascending order.
#[derive(Default)]
pub(super) struct Cursor<'a>(&'a [Run]);

/// Sets of policies by a word, in the order of the words. A schema may have tens of thousands of subjects, each with
/// the same policies: a word takes its bytes and eight more, and equal sets are stored once.
pub(super) struct Table {
    /// The words, one after the other.
    text: Box<str>,
    /// For each word, where it ends in `text` and the number of its set.
    words: Box<[(u32, u32)]>,
    sets: Box<[Policies]>,
}

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
        let (mut text, mut words) = (String::new(), Vec::new());
        let mut numbers: HashMap<Policies, u32> = HashMap::new();
        for (word, policies) in sets_by_word(&mut entries) {
            text.push_str(word);
            let next = small(numbers.len());
            words.push((small(text.len()), *numbers.entry(policies).or_insert(next)));
        }
        let mut sets: Vec<(Policies, u32)> = numbers.into_iter().collect();
        sets.sort_unstable_by_key(|(_, number)| *number);
        Self {
            text: text.into(),
            words: words.into(),
            sets: sets.into_iter().map(|(policies, _)| policies).collect(),
        }
    }

    pub(super) fn get(&self, word: &str) -> Option<&Policies> {
        self.find(|known| known.cmp(word))
    }

    /// The set whose word compares as equal. `order` has the order of the words.
    pub(super) fn find(&self, order: impl Fn(&str) -> Ordering) -> Option<&Policies> {
        let (mut low, mut high) = (0, self.words.len());
        while low < high {
            let middle = low.midpoint(high);
            match order(self.word(middle)) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return self.sets.get(self.words[middle].1 as usize),
            }
        }
        None
    }

    fn word(&self, number: usize) -> &str {
        let start = number.checked_sub(1).map_or(0, |before| self.words[before].0);
        &self.text[start as usize..self.words[number].0 as usize]
    }
}

/// The set of each word, in the order of the words. Two ranges of a word are the same or disjoint.
pub(super) fn sets_by_word<'a>(entries: &mut Vec<(&'a str, Range<u32>)>) -> impl Iterator<Item = (&'a str, Policies)> {
    entries.sort_unstable_by(|(a, x), (b, y)| a.cmp(b).then(x.start.cmp(&y.start)));
    entries.dedup();
    let of_one_word = entries.chunk_by(|(a, _), (b, _)| a == b);
    of_one_word.map(|chunk| {
        let ranges = chunk.iter().map(|(_, range)| range.clone());
        (chunk[0].0, Policies::of(ranges))
    })
}

/// A length or position within an object.
fn small(length: usize) -> u32 {
    u32::try_from(length).expect("an object has a few megabytes")
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

    #[test]
    fn equal_sets_of_a_table_are_stored_once() {
        let names: Vec<String> = (0..1_000).map(|i| format!("group-{i}")).collect();
        let mut entries: Vec<_> = names.iter().map(|name| (name.as_str(), 0..3)).collect();
        entries.push(("group-7", 5..6));
        let table = Table::of(entries);
        assert_eq!(table.sets.len(), 2);
        for name in &names {
            let mut union = [0];
            table.get(name).unwrap().add_to(&mut union);
            assert_eq!(union[0], if name == "group-7" { 0b10_0111 } else { 0b111 }, "{name}");
        }
        for absent in ["", "group-", "group-1000", "h"] {
            assert!(table.get(absent).is_none(), "{absent}");
        }
    }
}
