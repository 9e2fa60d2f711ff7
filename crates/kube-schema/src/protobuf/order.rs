//! Index of each definition's fields by protobuf number: the table is sorted by JSON name, messages are
//! written by number. Evaluated at compile time, so there is only one table to generate and no start-up cost.

use crate::{Field, TypeDef, table::TYPES};

// Array lengths of a `static` must be constants, hence the separate pass in `rows`.
const KINDS: usize = TYPES.len();
const ROWS: usize = rows();

struct Order {
    /// Start of each type's range in `fields`, and the end of the last one.
    starts: [u16; KINDS + 1],
    /// Indexes into [`TypeDef::fields`].
    fields: [u8; ROWS],
}

#[allow(long_running_const_eval, reason = "some hundred thousand steps, once")]
static ORDER: Order = sorted();

const fn rows() -> usize {
    let (mut n, mut i) = (0, 0);
    while i < KINDS {
        n += TYPES[i].fields.len();
        i += 1;
    }
    n
}

/// Sort key of a field: the numbers of its enclosing messages, outermost in the highest byte, then its own.
const fn path(f: &Field) -> u32 {
    match f.embedded_in {
        // Shifted, so that fields of embedded messages sort together and among the outer ones by their
        // message's number.
        [0, _] => (f.tag as u32) << 16,
        [a, 0] => (a as u32) << 16 | (f.tag as u32) << 8,
        [a, b] => (a as u32) << 16 | (b as u32) << 8 | f.tag as u32,
    }
}

const fn sorted() -> Order {
    let mut out = Order {
        starts: [0; KINDS + 1],
        fields: [0; ROWS],
    };
    let (mut t, mut start) = (0, 0);
    while t < KINDS {
        let fields = TYPES[t].fields;
        // Evaluated at compile time: a table that outgrows the types does not build.
        assert!(fields.len() <= 255 && start <= 0xffff, "places fit their types");
        out.starts[t] = start as u16;
        let mut i = 0;
        while i < fields.len() {
            let key = path(&fields[i]);
            // Insertion sort: const evaluation has no `sort`.
            let mut at = start + i;
            while at > start && path(&fields[out.fields[at - 1] as usize]) > key {
                out.fields[at] = out.fields[at - 1];
                at -= 1;
            }
            out.fields[at] = i as u8;
            i += 1;
        }
        start += fields.len();
        t += 1;
    }
    out.starts[KINDS] = start as u16;
    out
}

/// Indexes of a definition's fields, sorted by their path of numbers; fields without a number come first.
pub(super) fn fields_by_number(def: &'static TypeDef) -> &'static [u8] {
    // Definitions exist only in the table, so the address yields the index.
    let offset = std::ptr::from_ref(def) as usize - TYPES.as_ptr() as usize;
    // Exact: the definition is an element of the table.
    let t = offset / size_of::<TypeDef>();
    &ORDER.fields[usize::from(ORDER.starts[t])..usize::from(ORDER.starts[t + 1])]
}

/// The number that leads to a field at this level of embedding, and whether it is the field's own.
pub(super) fn number(f: &Field, level: usize) -> (u8, bool) {
    match f.embedded_in.get(level) {
        Some(&n) if n != 0 => (n, false),
        _ => (f.tag, true),
    }
}
