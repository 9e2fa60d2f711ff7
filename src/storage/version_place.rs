//! The position of the resourceVersion in the encoding of an object: stored bytes lack it, because only the
//! commit assigns it.

/// The members whose place in Go's `ObjectMeta` is before the resourceVersion.
const BEFORE: [&[u8]; 5] = [b"name", b"generateName", b"namespace", b"selfLink", b"uid"];

/// Finds the offset at which the resourceVersion belongs from the members of an encoded `metadata`, in their
/// order: for built-in kinds behind the members that precede it in Go's struct; in sorted metadata, as custom
/// resources have it, at its sorted place.
///
/// The bytes alone decide, so that a loaded object is the same as the one that was written.
#[derive(Default)]
pub(super) struct VersionPlace<'a> {
    last: Option<&'a [u8]>,
    is_unsorted: bool,
    /// Offset of the first member that sorts behind the resourceVersion.
    sorted: Option<usize>,
    /// Offset of the first member behind the last of [`BEFORE`].
    declared: Option<usize>,
    end: usize,
}

impl<'a> VersionPlace<'a> {
    /// The next member begins at this offset.
    pub(super) fn pass(&mut self, key: &'a [u8], at: usize) {
        // An inversion shows that the metadata is in the order of Go's struct (`name` before `generateName`).
        if self.last.is_some_and(|last| last > key) {
            self.is_unsorted = true;
        }
        if key > b"resourceVersion".as_slice() && self.sorted.is_none() {
            self.sorted = Some(at);
        }
        if BEFORE.contains(&key) {
            // A member of `BEFORE` after this one: the place is further on.
            self.declared = None;
        } else if self.declared.is_none() {
            self.declared = Some(at);
        }
        self.last = Some(key);
    }

    /// The closing brace is at this offset.
    pub(super) fn end(&mut self, at: usize) {
        self.end = at;
    }

    /// The offset of the member that the resourceVersion precedes, or of the closing brace.
    pub(super) fn found(&self) -> usize {
        let place = if self.is_unsorted { self.declared } else { self.sorted };
        place.unwrap_or(self.end)
    }
}
