//! Sets of rule numbers, and their intersection.
//!
//! A set is a sorted list of non-empty 64-bit words, so its size depends on its elements only, and rules are
//! intersected 64 at a time. Every walk is charged to a step budget ([`StepBudget`]), which bounds the time
//! of a decision.

/// One word of a set: its position, and the bits of its elements.
pub(super) type Word = (u32, u64);

/// The rules that contain a token. Most sets fit into one word, which needs no allocation.
pub(super) enum Postings {
    One([Word; 1]),
    Many(Vec<Word>),
}

impl Postings {
    pub(crate) fn of(number: u32) -> Self {
        Self::One([split(number)])
    }

    /// Adds a number. Numbers must not decrease.
    pub(crate) fn push(&mut self, number: u32) {
        let (at, bit) = split(number);
        match self {
            Self::One([word]) if word.0 == at => word.1 |= bit,
            Self::One([word]) => *self = Self::Many(vec![*word, (at, bit)]),
            Self::Many(words) => match words.last_mut() {
                Some(last) if last.0 == at => last.1 |= bit,
                _ => words.push((at, bit)),
            },
        }
    }

    pub(crate) fn words(&self) -> &[Word] {
        match self {
            Self::One(word) => word,
            Self::Many(words) => words,
        }
    }
}

fn split(number: u32) -> Word {
    (number / 64, 1 << (number % 64))
}

/// The step budget is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BudgetExhausted;

/// A step budget. A step takes a few nanoseconds.
#[derive(Debug)]
pub(crate) struct StepBudget(u64);

impl StepBudget {
    /// The budget on an I/O worker thread: well below 200 µs.
    pub(crate) const fn for_io_worker() -> Self {
        Self(10_000)
    }

    /// Unlimited, for threads that serve no connections.
    pub(crate) const fn unbounded() -> Self {
        Self(u64::MAX)
    }

    /// A budget of `steps`.
    pub(crate) const fn new(steps: u64) -> Self {
        Self(steps)
    }

    /// Takes steps from the budget.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if there are not enough left.
    pub(crate) fn charge(&mut self, steps: usize) -> Result<(), BudgetExhausted> {
        self.0 = self.0.checked_sub(steps as u64).ok_or(BudgetExhausted)?;
        Ok(())
    }
}

/// The union of up to three sets, iterated word by word in ascending order.
#[derive(Clone, Copy, Default)]
pub(super) struct Union<'a>([&'a [Word]; 3]);

impl<'a> Union<'a> {
    pub(crate) fn of(sets: [Option<&'a [Word]>; 3]) -> Self {
        Self(sets.map(Option::unwrap_or_default))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|s| s.is_empty())
    }

    /// Identity of this union among the unions of one dimension, which all have the first set (the wildcard)
    /// in common.
    pub(crate) fn own(&self) -> (&'a [Word], *const Word) {
        (self.0[1], self.0[2].as_ptr())
    }

    /// The first word at or after a position. Positions must not decrease between calls.
    fn seek(&mut self, at: u32) -> Option<Word> {
        let mut first: Option<Word> = None;
        for set in &mut self.0 {
            // Consumed, not only skipped: a walk over a set is linear in total, however often it seeks.
            *set = &set[gallop(set, at)..];
            match (set.first(), &mut first) {
                (Some(&word), None) => first = Some(word),
                (Some(&word), Some(low)) if word.0 < low.0 => *low = word,
                (Some(&word), Some(low)) if word.0 == low.0 => low.1 |= word.1,
                _ => {}
            }
        }
        first
    }

    /// All words of the union.
    pub(crate) fn collect(mut self, steps: &mut StepBudget) -> Result<Vec<Word>, BudgetExhausted> {
        let mut out = Vec::new();
        let mut at = 0;
        while let Some(word) = self.seek(at) {
            steps.charge(1)?;
            out.push(word);
            at = word.0 + 1;
        }
        Ok(out)
    }
}

/// Number of words before a position. Galloping search: the distance is usually short, so doubling beats
/// bisection.
fn gallop(set: &[Word], at: u32) -> usize {
    let mut end = 1;
    while end <= set.len() && set[end - 1].0 < at {
        end *= 2;
    }
    // Everything before `end / 2` was found to be too low by the last step that doubled.
    let (low, high) = (end / 2, end.min(set.len()));
    low + set[low..high].partition_point(|word| word.0 < at)
}

/// Visits the words of the intersection of all unions until `each` returns true.
pub(super) fn common<const N: usize>(
    mut unions: [Union<'_>; N],
    steps: &mut StepBudget,
    mut each: impl FnMut(Word) -> bool,
) -> Result<(), BudgetExhausted> {
    let mut at = 0;
    'words: loop {
        // Per round, not per match: disjoint sets cost a walk although they match nothing.
        steps.charge(N)?;
        let mut bits = u64::MAX;
        for union in &mut unions {
            let Some((found, here)) = union.seek(at) else {
                return Ok(());
            };
            if found > at {
                at = found;
                // Another set has a gap here: all sets seek again from the higher position.
                continue 'words;
            }
            bits &= here;
        }
        if bits != 0 && each((at, bits)) {
            return Ok(());
        }
        at += 1;
    }
}

/// The lowest number in the intersection.
pub(super) fn first<const N: usize>(
    unions: [Union<'_>; N],
    steps: &mut StepBudget,
) -> Result<Option<u32>, BudgetExhausted> {
    let mut found = None;
    common(unions, steps, |(at, bits)| {
        found = Some(at * 64 + bits.trailing_zeros());
        true
    })?;
    Ok(found)
}

/// All words of the intersection.
pub(super) fn intersection<const N: usize>(
    unions: [Union<'_>; N],
    steps: &mut StepBudget,
) -> Result<Vec<Word>, BudgetExhausted> {
    let mut out = Vec::new();
    common(unions, steps, |word| {
        out.push(word);
        false
    })?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn postings(numbers: &BTreeSet<u32>) -> Option<Postings> {
        let mut numbers = numbers.iter();
        let mut out = Postings::of(*numbers.next()?);
        numbers.for_each(|n| out.push(*n));
        Some(out)
    }

    fn set() -> impl Strategy<Value = BTreeSet<u32>> {
        prop::collection::btree_set(prop_oneof![0..80u32, 0..3000u32], 0..60)
    }

    proptest! {
        #[test]
        fn intersections_equal_those_of_plain_sets(sets in prop::collection::vec(set(), 9)) {
            let all: Vec<Option<Postings>> = sets.iter().map(postings).collect();
            let union = |i: usize| Union::of([0, 1, 2].map(|j| all[3 * i + j].as_ref().map(Postings::words)));
            let unions = [union(0), union(1), union(2)];
            let plain = |i: usize| -> BTreeSet<u32> { sets[3 * i..3 * i + 3].iter().flatten().copied().collect() };
            let expected: Vec<u32> =
                plain(0).into_iter().filter(|n| plain(1).contains(n) && plain(2).contains(n)).collect();
            let words = intersection(unions, &mut StepBudget::unbounded()).unwrap();
            let got: Vec<u32> = words
                .iter()
                .flat_map(|(at, bits)| (0..64).filter(move |b| bits >> b & 1 == 1).map(move |b| at * 64 + b))
                .collect();
            prop_assert_eq!(&got, &expected);
            prop_assert_eq!(first(unions, &mut StepBudget::unbounded()).unwrap(), expected.first().copied());
        }
    }

    #[test]
    fn a_walk_ends_with_its_budget() {
        let numbers: BTreeSet<u32> = (0..1000).map(|n| n * 64).collect();
        let others: BTreeSet<u32> = (0..1000).map(|n| n * 64 + 1).collect();
        let (a, b) = (postings(&numbers).unwrap(), postings(&others).unwrap());
        let unions = [&a, &b].map(|p| Union::of([Some(p.words()), None, None]));
        assert_eq!(first(unions, &mut StepBudget::new(1000)), Err(BudgetExhausted));
        assert_eq!(first(unions, &mut StepBudget::new(3000)), Ok(None));
    }
}
