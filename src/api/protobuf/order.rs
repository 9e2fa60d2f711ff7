//! Fields in the order of their numbers. The table is sorted by JSON name; messages are written by number.
//!
//! Computed by the compiler from the table, so that there is one table to generate and nothing to do at the start.

use crate::api::{Field, TypeDef, table::TYPES};

const KINDS: usize = TYPES.len();
const ROWS: usize = rows();

struct Order {
    /// Where a type's part of `fields` begins; one more for the end.
    starts: [u16; KINDS + 1],
    /// Places in [`TypeDef::fields`].
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

/// Numbers on the way to a field, the outermost in the highest place.
const fn path(f: &Field) -> u32 {
    match f.through {
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
        assert!(fields.len() <= 255 && start <= 0xffff, "places fit their types");
        out.starts[t] = start as u16;
        let mut i = 0;
        while i < fields.len() {
            let key = path(&fields[i]);
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

/// The places of a definition's fields, sorted by the numbers on their way; those without a number come first.
pub(super) fn of(def: &'static TypeDef) -> &'static [u8] {
    // Definitions exist in the table only, so that the address tells the place.
    let offset = std::ptr::from_ref(def) as usize - TYPES.as_ptr() as usize;
    let t = offset / size_of::<TypeDef>();
    &ORDER.fields[usize::from(ORDER.starts[t])..usize::from(ORDER.starts[t + 1])]
}

/// The number of a field on this level of embedding, and whether it stands for the field itself.
pub(super) fn number(f: &Field, level: usize) -> (u8, bool) {
    match f.through.get(level) {
        Some(&n) if n != 0 => (n, false),
        _ => (f.tag, true),
    }
}
