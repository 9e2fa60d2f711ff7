//! Operations on two sets: [`FieldSet::union`], [`FieldSet::difference`], [`FieldSet::intersection`] and those in
//! place. Each walks two sorted levels side by side, or searches the larger one for the elements of the smaller one,
//! and stops at subtrees that both share.

use super::{Entry, FieldSet, push};
use std::cmp::Ordering;

impl FieldSet {
    /// The union of two sets.
    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        if other.is_empty() || self.is_same(other) {
            return self.clone();
        }
        self.zip(other, |a, b| match (a, b) {
            (Some(a), Some(b)) => (a.member || b.member, a.children.union(&b.children)),
            (Some(x), None) | (None, Some(x)) => (x.member, x.children.clone()),
            (None, None) => (false, Self::new()),
        })
    }

    /// The intersection of two sets. Each level costs as much as its smaller side, up to a logarithmic
    /// factor.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        if self.is_same(other) {
            return self.clone();
        }
        // Binary search in the larger side: a manager owning a handful of fields is often intersected with a change
        // of thousands, and the reverse.
        let mine_are_few = self.entries().len() <= other.entries().len();
        let (few, many) = if mine_are_few { (self, other) } else { (other, self) };
        let mut out = Vec::new();
        for a in few.entries() {
            let Some(b) = many.get(&a.element) else { continue };
            // Elements that compare equal can differ in form (`80` and `80.0`); the result keeps the form of `self`,
            // whichever side is walked.
            let e = Entry {
                element: if mine_are_few {
                    a.element.clone()
                } else {
                    b.element.clone()
                },
                member: a.member && b.member,
                children: a.children.intersection(&b.children),
            };
            if e.member || !e.children.is_empty() {
                push(&mut out, e);
            }
        }
        Self::of_level(out)
    }

    /// The members of this set that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.subtract(other);
        out
    }

    /// The members of this set that are neither in `other` nor below a member of `other`.
    pub(crate) fn recursive_difference(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.exclude(other);
        out
    }

    /// Removes the members of `other` in place. Returns true if that removed something.
    pub(crate) fn subtract(&mut self, other: &Self) -> bool {
        self.remove_where(other, &|mine, theirs| {
            let was = mine.member;
            mine.member &= !theirs.member;
            was != mine.member
        })
    }

    /// Removes the members of `other` and everything below them in place. Returns true if one of them was
    /// found here.
    pub(crate) fn exclude(&mut self, other: &Self) -> bool {
        self.remove_where(other, &|mine, theirs| {
            if theirs.member {
                mine.member = false;
                mine.children = Self::new();
            }
            theirs.member
        })
    }

    fn remove_where(&mut self, other: &Self, f: &impl Fn(&mut Entry, &Entry) -> bool) -> bool {
        if self.is_empty() || other.is_empty() {
            return false;
        }
        let mut changed = false;
        let mut emptied = false;
        // The last children that neighbours share, those removed from them, and what became of them.
        // Without this memo, subtracting from a list of items with shared children would copy and walk the same
        // subtree once per item.
        let mut last: Option<(Self, Self, Self, bool)> = None;
        let mut meet = |mine: &mut Entry, theirs: &Entry| {
            changed |= f(mine, theirs);
            match &last {
                Some((children, removed, rest, less))
                    if children.is_same(&mine.children) && removed.is_same(&theirs.children) =>
                {
                    mine.children = rest.clone();
                    changed |= less;
                }
                _ => {
                    // Only children that are shared can recur for a neighbour; cloning others would force the copy
                    // that sharing avoids.
                    let before = mine.children.is_shared().then(|| mine.children.clone());
                    let less = mine.children.remove_where(&theirs.children, f);
                    changed |= less;
                    if let Some(before) = before {
                        last = Some((before, theirs.children.clone(), mine.children.clone(), less));
                    }
                }
            }
            emptied |= !mine.member && mine.children.is_empty();
        };
        // Walk the smaller side and search in the larger one.
        if self.entries().len() < other.entries().len() {
            for mine in self.level_mut() {
                if let Some(theirs) = other.get(&mine.element) {
                    meet(mine, theirs);
                }
            }
        } else {
            for theirs in other.entries() {
                if let Ok(i) = self.find(&theirs.element) {
                    meet(&mut self.level_mut()[i], theirs);
                }
            }
        }
        if emptied {
            // Clears empty entries in one pass; removing each while walking would shift the level every time.
            self.retain(&mut |_| {});
        }
        changed
    }

    /// The members that have no members below them.
    pub(crate) fn leaves(&self) -> Self {
        let mut out = Vec::with_capacity(self.entries().len());
        // An entry without children is a member by the invariant of `level`, so `member` need not be consulted.
        for e in self.entries() {
            let leaf = Entry {
                element: e.element.clone(),
                member: e.children.is_empty(),
                children: e.children.leaves(),
            };
            push(&mut out, leaf);
        }
        Self::of_level(out)
    }

    fn zip(&self, other: &Self, f: impl Fn(Option<&Entry>, Option<&Entry>) -> (bool, Self)) -> Self {
        let mut out = Vec::new();
        let (mut a, mut b) = (self.entries().iter().peekable(), other.entries().iter().peekable());
        loop {
            let order = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) => x.element.cmp(&y.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self::of_level(out),
            };
            let x = if order.is_le() { a.next() } else { None };
            let y = if order.is_ge() { b.next() } else { None };
            let (member, children) = f(x, y);
            // At least one side is present, because `order` came from a peeked entry.
            if (member || !children.is_empty())
                && let Some(e) = x.or(y)
            {
                let element = e.element.clone();
                push(
                    &mut out,
                    Entry {
                        element,
                        member,
                        children,
                    },
                );
            }
        }
    }
}
