//! Unified diffs with three lines of context, in the format of upstream's `diff` package. Entry point:
//! [`unified`]. Time and output are bounded, because the inputs come from clients. Headers with file names are left
//! out, as upstream.

// Also decides which changes share a hunk, so it must equal upstream's.
const CONTEXT: usize = 3;

/// Upper bound on the compared pairs of lines; the search takes quadratic time and memory.
const MAX_CELLS: usize = 1 << 20;
/// Output length in bytes after which further hunks are omitted.
const MAX_TEXT: usize = 64 * 1024;

/// One line of an edit script: kept, dropped from the old text, or added by the new one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Keep,
    Drop,
    Add,
}

/// The shortest edit script, from the longest common subsequence between the common prefix and suffix.
fn edit(old: &[String], new: &[String]) -> Vec<Step> {
    // Most updates change a few lines, so little is left for the quadratic search.
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    // From what the prefix left over: otherwise repeated lines would be counted in both.
    let tail = old[head..]
        .iter()
        .rev()
        .zip(new[head..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (a, b) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    // `saturating_mul`, as the lengths are the client's; the table below is allocated from them.
    if a.len().saturating_mul(b.len()) > MAX_CELLS {
        // Too large to search: drop all differing old lines, then add all new ones.
        let steps = [
            (Step::Keep, head),
            (Step::Drop, a.len()),
            (Step::Add, b.len()),
            (Step::Keep, tail),
        ];
        let steps = steps.into_iter().flat_map(|(step, n)| std::iter::repeat_n(step, n));
        return steps.collect();
    }
    let width = b.len() + 1;
    // `common[i][j]` is the length of the longest common subsequence of `a[i..]` and `b[j..]`; filled from
    // the end, so that the script can be read off from the start. `u32` halves the memory of the table.
    let mut common = vec![0u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        crate::interrupt::checkpoint();
        for j in (0..b.len()).rev() {
            common[i * width + j] = if a[i] == b[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let mut steps = vec![Step::Keep; head];
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            steps.push(Step::Keep);
            (i, j) = (i + 1, j + 1);
        } else if i < a.len() && (j == b.len() || common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            // `>=`: on a tie, drops come before additions.
            steps.push(Step::Drop);
            i += 1;
        } else {
            steps.push(Step::Add);
            j += 1;
        }
    }
    steps.extend(std::iter::repeat_n(Step::Keep, tail));
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
    fn large_difference_is_not_minimized() {
        let old: Vec<String> = (0..20_000).map(|n| format!("a{n}")).collect();
        let new: Vec<String> = (0..20_000).map(|n| format!("b{n}")).collect();
        let diff = unified(&old, &new);
        assert!(diff.starts_with("@@ -1,20000 +1,20000 @@\n-a0\n-a1\n"));
    }
}
