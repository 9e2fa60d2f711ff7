//! [`FieldSet`]: a set of paths into an object, stored as a tree whose levels are sorted.
//!
//! This file builds sets and walks them, `algebra` combines two of them, and `encoding` reads and writes the
//! `fieldsV1` form. Ownership rules are in `managed` and `merge`.

mod algebra;
mod encoding;

pub use super::path::{MalformedFields, PathElement};
use crate::interrupt::pausing;
use crate::value::Str;
use std::sync::Arc;

/// A set of paths. A path and paths below it can be members at the same time.
///
/// Clones share their levels until one of them changes. So do neighbours with equal children: the thousands
/// of items of a list mostly have the same fields.
///
/// ```
/// use torana_apimachinery::apply::{FieldSet, PathElement};
/// use torana_apimachinery::json;
///
/// let owned = FieldSet::of_fields(&[&["spec", "replicas"], &["spec", "paused"]]);
/// assert!(owned.has(&["spec", "paused"].map(|name| PathElement::Field(name.into()))));
/// assert_eq!(owned.encode(), json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}));
/// assert_eq!(FieldSet::decode(&owned.encode()), Ok(owned));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Sorted by element. Invariants: every entry is a member or has children, and an empty level is `None`.
    level: Option<Arc<Vec<Entry>>>,
}

/// A path element at one level of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The last element of the path that ends here.
    pub element: PathElement,
    /// True if the path that ends here is in the set.
    pub member: bool,
    /// The members below this element.
    pub children: FieldSet,
}

impl FieldSet {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self { level: None }
    }

    fn of_level(level: Vec<Entry>) -> Self {
        let level = (!level.is_empty()).then(|| Arc::new(level));
        Self { level }
    }

    /// The first level, for modification. The caller must leave it non-empty if it was, to keep the invariant of
    /// `level`.
    fn level_mut(&mut self) -> &mut Vec<Entry> {
        Arc::make_mut(self.level.get_or_insert_default())
    }

    fn into_level(self) -> Vec<Entry> {
        self.level.map(Arc::unwrap_or_clone).unwrap_or_default()
    }

    /// True if both are the same memory, and so equal.
    fn is_same(&self, other: &Self) -> bool {
        // Pointer equality is only a shortcut: callers fall back to walking, so a miss costs time and never
        // correctness.
        match (&self.level, &other.level) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }

    /// True if other sets share the first level.
    fn is_shared(&self) -> bool {
        self.level.as_ref().is_some_and(|level| Arc::strong_count(level) > 1)
    }

    /// Builds a set from paths through objects, such as `["metadata", "name"]`.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut out = Self::new();
        for path in paths {
            out.insert(&path.iter().map(|p| PathElement::Field(Str::new(p))).collect::<Vec<_>>());
        }
        out
    }

    /// True if the set has no members.
    pub fn is_empty(&self) -> bool {
        self.level.is_none()
    }

    /// The first level of the tree, sorted.
    pub fn entries(&self) -> &[Entry] {
        self.level.as_deref().map_or(&[], Vec::as_slice)
    }

    fn find(&self, e: &PathElement) -> Result<usize, usize> {
        self.entries().binary_search_by(|x| x.element.cmp(e))
    }

    /// The entry of an element at the first level.
    pub fn get(&self, e: &PathElement) -> Option<&Entry> {
        self.find(e).ok().map(|i| &self.entries()[i])
    }

    /// Adds a path; the empty path is ignored.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        // Searched before `level_mut`, which would copy a shared level; the position stays valid in the copy.
        let found = self.find(first);
        let (Ok(i) | Err(i)) = found;
        let level = self.level_mut();
        if found.is_err() {
            let entry = Entry {
                element: first.clone(),
                member: false,
                children: Self::new(),
            };
            level.insert(i, entry);
        }
        if rest.is_empty() {
            level[i].member = true;
        } else {
            level[i].children.insert(rest);
        }
    }

    /// True if the path is a member.
    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|e| e.member),
            [first, rest @ ..] => self.get(first).is_some_and(|e| e.children.has(rest)),
        }
    }

    /// Builds a set from entries in any order, merging equal elements. Sorts once: sets come from clients,
    /// and inserting the entries one by one would be quadratic.
    pub(super) fn of_entries(mut entries: Vec<Entry>) -> Self {
        // Keeps the invariant of `level`: clients can send entries that are neither members nor have children.
        entries.retain(|e| e.member || !e.children.is_empty());
        // Encoded sets usually arrive sorted, and then need no sort. The comparison is strict, so duplicates take the
        // slow path.
        if entries.is_sorted_by(|a, b| a.element < b.element) {
            return Self::of_level(entries);
        }
        // In place: a list of a few megabytes has hundreds of thousands of entries.
        entries.sort_unstable_by(pausing(|a: &Entry, b: &Entry| a.element.cmp(&b.element)));
        entries.dedup_by(|same, first| {
            let equal = same.element == first.element;
            if equal {
                first.member |= same.member;
                let children = std::mem::take(&mut same.children);
                // Concatenated unsorted here and sorted once per level below; merging child by child would be
                // quadratic in the number of duplicates.
                if !children.is_empty() && !first.children.is_same(&children) {
                    first.children.level_mut().extend(children.into_level());
                }
            }
            equal
        });
        for entry in &mut entries {
            if !entry.children.entries().is_sorted_by(|a, b| a.element < b.element) {
                entry.children = Self::of_entries(std::mem::take(&mut entry.children).into_level());
            }
        }
        Self::of_level(entries)
    }

    /// The union of many sets.
    pub(super) fn union_of(sets: impl Iterator<Item = Self>) -> Self {
        Self::of_entries(sets.flat_map(Self::into_level).collect())
    }

    /// Adds the result of walking one element. Constant time (amortised) if elements arrive in order.
    pub(super) fn put(&mut self, element: PathElement, member: bool, children: Self) {
        if !member && children.is_empty() {
            return;
        }
        let entry = Entry {
            element,
            member,
            children,
        };
        // Walks visit sorted maps, so appending is the common case.
        if self.entries().last().is_none_or(|l| l.element < entry.element) {
            return push(self.level_mut(), entry);
        }
        match self.find(&entry.element) {
            Ok(i) => {
                let e = &mut self.level_mut()[i];
                e.member |= member;
                e.children.absorb(entry.children);
            }
            Err(i) => self.level_mut().insert(i, entry),
        }
    }

    /// Lets `f` modify every entry of the first level and drops the entries left empty.
    pub(super) fn retain(&mut self, f: &mut impl FnMut(&mut Entry)) {
        if self.is_empty() {
            return;
        }
        let level = self.level_mut();
        level.retain_mut(|e| {
            f(e);
            e.member || !e.children.is_empty()
        });
        if level.is_empty() {
            self.level = None;
        }
    }

    /// Adds the members of `other` in place.
    pub(crate) fn absorb(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        /// Above this, merging by sorting is cheaper than inserting one by one.
        const FEW: usize = 4;
        if self.is_same(&other) {
            return;
        }
        if other.entries().len() > FEW {
            let mut all = std::mem::take(self).into_level();
            all.extend(other.into_level());
            *self = Self::of_entries(all);
            return;
        }
        for e in other.into_level() {
            self.put(e.element, e.member, e.children);
        }
    }

    /// The number of paths in the set.
    pub fn members(&self) -> usize {
        let of = |e: &Entry| usize::from(e.member) + e.children.members();
        self.entries().iter().map(of).sum()
    }

    /// Calls `f` with each path in the notation of conflict messages: `.spec.containers[name="a"].image`. At
    /// each level the paths that end there come first.
    pub fn for_each(&self, f: &mut impl FnMut(&str)) {
        self.visit_while(&mut |path| {
            f(path);
            true
        });
    }

    /// Like [`for_each`](Self::for_each), but stops when `f` returns false. Every path repeats its prefix, so
    /// the paths can be far longer in total than the set; callers use this to bound their output.
    pub(crate) fn visit_while(&self, f: &mut impl FnMut(&str) -> bool) {
        self.visit(&mut String::new(), f);
    }

    fn visit(&self, path: &mut String, f: &mut impl FnMut(&str) -> bool) -> bool {
        let len = path.len();
        // Members first, then subtrees: `Set.Iterate` of structured-merge-diff keeps the two apart, and conflict
        // messages show its order.
        for e in self.entries().iter().filter(|e| e.member) {
            path.push_str(&e.element.to_string());
            let more = f(path);
            path.truncate(len);
            if !more {
                return false;
            }
        }
        for e in self.entries().iter().filter(|e| !e.children.is_empty()) {
            path.push_str(&e.element.to_string());
            let more = e.children.visit(path, f);
            path.truncate(len);
            if !more {
                return false;
            }
        }
        true
    }
}

/// Appends an entry. Equal children are shared with the entry before it.
pub(super) fn push(level: &mut Vec<Entry>, mut entry: Entry) {
    if let Some(last) = level.last().filter(|last| last.children == entry.children) {
        entry.children = last.children.clone();
    }
    // Doubles like `Vec`, but starts with one: most of the many small sets have one or two entries.
    if level.len() == level.capacity() {
        level.reserve_exact(level.len().max(1));
    }
    level.push(entry);
}

#[cfg(test)]
mod tests;
