//! [`FieldSet`]: a set of paths into an object, stored as a tree whose levels are sorted.
//!
//! Also reads and writes the `fieldsV1` encoding. Ownership rules are in `managed` and `merge`.

pub use super::path::{MalformedFields, PathElement};
use crate::interrupt::{checkpoint, pause, pausing};
use crate::value::{Map, Str, Value};
use std::cmp::Ordering;
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

    /// Encodes the set as a `fieldsV1` object.
    pub fn encode(&self) -> Value {
        Value::Object(self.encode_map(false))
    }

    fn encode_map(&self, member: bool) -> Map {
        // Only a member that also has children needs the explicit `.`.
        let marker = member && !self.is_empty();
        let mut pairs = Vec::with_capacity(self.entries().len() + usize::from(marker));
        if marker {
            pairs.push((Str::const_new("."), Value::object()));
        }
        for e in self.entries() {
            // Managed fields can be megabytes; this lets other work run during a long encode.
            pause();
            pairs.push((e.element.encode(), Value::Object(e.children.encode_map(e.member))));
        }
        Map::from_pairs(pairs)
    }

    /// Decodes a `fieldsV1` object.
    ///
    /// # Errors
    /// A key is malformed.
    pub fn decode(v: &Value) -> Result<Self, MalformedFields> {
        Self::decode_level(v).map(|(set, _)| set)
    }

    fn decode_level(v: &Value) -> Result<(Self, bool), MalformedFields> {
        checkpoint();
        let map = v.as_object().ok_or(MalformedFields::NoObject)?;
        let mut entries = Vec::with_capacity(map.len());
        // An empty object stands for a member; `.` marks members that have children.
        let mut member = map.is_empty();
        for (k, v) in map.iter() {
            if k == "." {
                member = true;
                continue;
            }
            // `None` is an element kind we do not know; upstream drops those together with everything below them.
            if let Some(element) = PathElement::decode(k)? {
                let (children, member) = Self::decode_level(v)?;
                push(
                    &mut entries,
                    Entry {
                        element,
                        member,
                        children,
                    },
                );
            }
        }
        Ok((Self::of_entries(entries), member))
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
