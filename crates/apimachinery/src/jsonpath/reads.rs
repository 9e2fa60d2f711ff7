//! The parts of an object that a path reads, so that a stored object need not be decoded whole to evaluate
//! it.

use super::{Block, JsonPath, Step};
use crate::codec::json::projection::Mask;
use crate::value::Str;

impl JsonPath {
    /// Adds the parts of an object that the path reads to a mask. Evaluated on these parts alone, the path
    /// yields the same values.
    pub fn add_reads(&self, mask: &mut Mask) {
        for block in &self.blocks {
            if let Block::Action(steps) = block {
                add(steps, &mut Vec::new(), mask);
            }
        }
    }
}

/// Fields below which a path reads whole values: masks are walked by recursion, from the root for each
/// filter.
const MAX_DEPTH: usize = 16;

/// Adds what `steps` read below the fields `at`. Lists are transparent to masks.
fn add(steps: &[Step], at: &mut Vec<Str>, mask: &mut Mask) {
    let depth = at.len();
    for (i, step) in steps.iter().enumerate() {
        match step {
            // Deeper fields are read whole: a mask that reads more is still correct.
            Step::Field(name) if is_encoded_plainly(name) && at.len() < MAX_DEPTH => at.push(name.clone()),
            // Slices keep the field, because masks apply to every item of a list.
            Step::Slice(_) => {}
            Step::Filter(filter) => {
                // Both sides are evaluated on the items, so they read below the list.
                add(&filter.left, at, mask);
                if let Some((_, right)) = &filter.comparison {
                    add(right, at, mask);
                }
            }
            // One side of a comparison; nothing is read.
            Step::Text(_) | Step::Constant(_) if i == 0 => return,
            // These read whole values. A union could, too, be taken apart, but the number of its combinations
            // with other unions is exponential.
            _ => break,
        }
    }
    // At the end of the path, or where it stops being predictable, the value is read whole.
    mask.include(at);
    // Restores the caller's position: filters call this recursively with the same vector.
    at.truncate(depth);
}

/// True if the encoding of a key is the key itself; masks compare encoded keys.
fn is_encoded_plainly(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
}
