//! Unified diffs with three lines of context, in the format of upstream's `diff` package. Entry point:
//! [`unified`]. Time and output are bounded, because the inputs come from clients. Headers with file names are left
//! out, as upstream.
//!
//! Lines are aligned as by Go's `difflib`: the longest block of equal lines first, then what is before and after it. This
//! is not always the shortest edit script, but it decides which of many equal lines count as changed.

use crate::interrupt::checkpoint;
use std::collections::HashMap;
use std::ops::Range;

// Also decides which changes share a hunk, so it must equal upstream's.
const CONTEXT: usize = 3;

/// Upper bound on the compared pairs of lines; the search takes quadratic time.
const MAX_PAIRS: usize = 1 << 20;
/// Number of new lines from which on frequent ones are not searched for.
const MANY: usize = 200;
/// Output length in bytes after which further hunks are omitted.
const MAX_TEXT: usize = 64 * 1024;

/// One line of an edit script: kept, dropped from the old text, or added by the new one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Keep,
    Drop,
    Add,
}

/// Equal lines: the index of the first in the old text and in the new one, and their number.
#[derive(Clone, Copy)]
struct Block {
    old: usize,
    new: usize,
    len: usize,
}

struct Matcher<'t> {
    old: &'t [String],
    new: &'t [String],
    /// Where each line is in the new text, ascending.
    places: HashMap<&'t str, Vec<usize>>,
    /// Pairs of lines that may still be compared.
    pairs: usize,
}

impl<'t> Matcher<'t> {
    fn new(old: &'t [String], new: &'t [String]) -> Self {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (j, line) in new.iter().enumerate() {
            places.entry(line).or_default().push(j);
        }
        // `difflib` does the same: brackets and absent fields say little about what belongs together.
        if new.len() >= MANY {
            places.retain(|_, at| at.len() <= new.len() / 100 + 1);
        }
        Self {
            old,
            new,
            places,
            pairs: MAX_PAIRS,
        }
    }

    /// The blocks of equal lines, in their order.
    fn blocks(mut self) -> Vec<Block> {
        let mut blocks = Vec::new();
        // A stack of its own: texts of thousands of lines nest as deep.
        let mut ranges = vec![(0..self.old.len(), 0..self.new.len())];
        while let Some((old, new)) = ranges.pop() {
            // Beyond the bound, the lines that are left count as changed.
            let Some(block) = self.longest(&old, &new) else {
                continue;
            };
            ranges.push((old.start..block.old, new.start..block.new));
            ranges.push((block.old + block.len..old.end, block.new + block.len..new.end));
            blocks.push(block);
        }
        blocks.sort_unstable_by_key(|b| b.old);
        blocks
    }

    /// The longest block in these ranges, of several the first; `None` if they have no line in common.
    fn longest(&mut self, old: &Range<usize>, new: &Range<usize>) -> Option<Block> {
        let mut best = Block {
            old: old.start,
            new: new.start,
            len: 0,
        };
        // The blocks that end with the line before: the new line each ends with, and its length.
        let mut before: Vec<(usize, usize)> = Vec::new();
        for i in old.clone() {
            checkpoint();
            let places = self.places.get(self.old[i].as_str()).map_or(&[][..], Vec::as_slice);
            let from = places.partition_point(|j| *j < new.start);
            let to = places.partition_point(|j| *j < new.end);
            self.pairs = self.pairs.checked_sub(1 + to - from)?;
            let mut here = Vec::with_capacity(to - from);
            for &j in &places[from..to] {
                let longer = before.binary_search_by_key(&j, |(end, _)| end + 1);
                let len = longer.map_or(1, |at| before[at].1 + 1);
                here.push((j, len));
                if len > best.len {
                    best = Block {
                        old: i + 1 - len,
                        new: j + 1 - len,
                        len,
                    };
                }
            }
            before = here;
        }
        Some(self.extended(best, old, new)).filter(|block| block.len > 0)
    }

    /// Adds the equal lines around a block, among them those that are not searched for.
    fn extended(&self, mut block: Block, old: &Range<usize>, new: &Range<usize>) -> Block {
        while block.old > old.start && block.new > new.start && self.old[block.old - 1] == self.new[block.new - 1] {
            block = Block {
                old: block.old - 1,
                new: block.new - 1,
                len: block.len + 1,
            };
        }
        let rest = self.old[block.old + block.len..old.end].iter();
        let rest = rest.zip(&self.new[block.new + block.len..new.end]);
        block.len += rest.take_while(|(a, b)| a == b).count();
        block
    }
}

/// The edit script that keeps the blocks of equal lines.
fn edit(old: &[String], new: &[String]) -> Vec<Step> {
    let mut steps = Vec::with_capacity(old.len().max(new.len()));
    let mut extend = |step, n| steps.extend(std::iter::repeat_n(step, n));
    let (mut i, mut j) = (0, 0);
    let end = Block {
        old: old.len(),
        new: new.len(),
        len: 0,
    };
    for block in Matcher::new(old, new).blocks().into_iter().chain([end]) {
        extend(Step::Drop, block.old - i);
        extend(Step::Add, block.new - j);
        extend(Step::Keep, block.len);
        (i, j) = (block.old + block.len, block.new + block.len);
    }
    steps
}

/// Formats the diff. Every line ends with a newline.
pub(super) fn unified(old: &[String], new: &[String]) -> String {
    let steps = edit(old, new);
    let changed: Vec<usize> = (0..steps.len()).filter(|i| steps[*i] != Step::Keep).collect();
    let mut hunks: Vec<(usize, usize)> = Vec::new();
    for i in changed {
        let (from, to) = (i.saturating_sub(CONTEXT), (i + CONTEXT + 1).min(steps.len()));
        match hunks.last_mut() {
            // Contexts that touch are merged into one hunk.
            Some(last) if from <= last.1 => last.1 = to,
            _ => hunks.push((from, to)),
        }
    }
    let count = |range: &[Step], not: Step| range.iter().filter(|s| **s != not).count();
    let mut out = String::new();
    // `i` and `j` count old and new lines, `at` edit steps, before the next hunk.
    let (mut i, mut j, mut at) = (0, 0, 0);
    for (from, to) in hunks {
        // Between hunks only: a cut hunk would contradict the counts in its header.
        if out.len() > MAX_TEXT {
            break;
        }
        i += count(&steps[at..from], Step::Add);
        j += count(&steps[at..from], Step::Drop);
        at = to;
        // Old lines are those not added, new lines those not dropped.
        let (n, m) = (count(&steps[from..to], Step::Add), count(&steps[from..to], Step::Drop));
        out.push_str(&format!("@@ -{},{n} +{},{m} @@\n", i + 1, j + 1));
        for step in &steps[from..to] {
            let (mark, line) = match step {
                Step::Keep => (' ', &old[i]),
                Step::Drop => ('-', &old[i]),
                Step::Add => ('+', &new[j]),
            };
            out.push(mark);
            out.push_str(line);
            out.push('\n');
            i += usize::from(*step != Step::Add);
            j += usize::from(*step != Step::Drop);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distant_changes_form_separate_hunks() {
        let old: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let mut new = old.clone();
        new[1] = "x".into();
        new.push("end".into());
        assert_eq!(
            unified(&old, &new),
            "@@ -1,5 +1,5 @@\n 0\n-1\n+x\n 2\n 3\n 4\n@@ -18,3 +18,4 @@\n 17\n 18\n 19\n+end\n"
        );
        assert_eq!(unified(&old, &old), "");
    }

    #[test]
    fn the_longest_block_of_equal_lines_is_kept() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        // The shortest script would keep the first `a`.
        assert_eq!(
            unified(&lines("a b"), &lines("a c a b")),
            "@@ -1,2 +1,4 @@\n+a\n+c\n a\n b\n"
        );
        // Among equal items, the one outside of the longest block is dropped.
        assert_eq!(
            unified(&lines("s [ { x 1 } { x 2 } ]"), &lines("s [ { x 2 } ]")),
            "@@ -1,9 +1,5 @@\n s\n [\n-{\n-x\n-1\n-}\n {\n x\n 2\n"
        );
    }

    #[test]
    fn frequent_lines_of_a_long_text_align_nothing() {
        let old = ["p", "p", "p", "u", "z"].map(str::to_owned);
        let mut new = vec!["p".to_owned(); MANY + 1];
        new[0] = "u".into();
        let diff = unified(&old, &new);
        assert!(
            diff.starts_with("@@ -1,5 +1,201 @@\n-p\n-p\n-p\n u\n-z\n+p\n"),
            "{diff}"
        );
        let diff = unified(&old, &new[..20]);
        assert!(
            diff.starts_with("@@ -1,5 +1,20 @@\n+u\n p\n p\n p\n-u\n-z\n+p\n"),
            "{diff}"
        );
    }

    #[test]
    fn large_difference_is_not_minimized() {
        let old: Vec<String> = (0..20_000).map(|n| format!("a{n}")).collect();
        let new: Vec<String> = (0..20_000).map(|n| format!("b{n}")).collect();
        let diff = unified(&old, &new);
        assert!(diff.starts_with("@@ -1,20000 +1,20000 @@\n-a0\n-a1\n"));
    }
}
