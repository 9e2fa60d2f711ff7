//! Whether a cost grows faster than what is sent.

use crate::meter::Cost;
use std::time::Duration;

/// A doubling of the input that multiplies the cost by more than this is a finding.
const MOST: f64 = 3.0;
/// More than this times a linear cost is looked at again. Few comparisons of an unoptimised build cost what decoding and
/// encoding an element does: their square is half as much again at a thousand elements.
const SUSPICIOUS: f64 = 1.45;
/// Costs below are noise.
const CPU_FLOOR: Duration = Duration::from_millis(25);
const PEAK_FLOOR: usize = 1 << 20;
/// A heap of fewer bytes for each that was sent harms nobody, however it grows: bodies are bounded. Decoding and encoding
/// take about twenty, and what controllers allocate or free meanwhile is measured, too.
const PEAK_SMALL: usize = 32;
/// The longest body the gateway reads: beyond, there is nothing to grow.
pub const LONGEST: usize = 3 << 20;
/// What a request may take whatever is in it, and for each byte of it: of CPU time in an unoptimised build, and of memory.
const CPU_MOST: (Duration, Duration) = (Duration::from_millis(500), Duration::from_micros(20));
const PEAK_MOST: (usize, usize) = (16 << 20, 256);

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub cost: Cost,
    pub sent: usize,
    pub code: u16,
}

/// What was found wrong.
#[derive(Debug)]
pub struct Finding {
    pub what: &'static str,
    pub n: usize,
    pub before: Sample,
    pub after: Sample,
    pub ratio: f64,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            what,
            n,
            before,
            after,
            ratio,
        } = self;
        write!(
            f,
            "{what} ×{ratio:.1} to n = {n}: {:.1} → {:.1} ms, {} → {} KiB of heap, {} → {} bytes sent, answer {}",
            millis(before),
            millis(after),
            before.cost.peak >> 10,
            after.cost.peak >> 10,
            before.sent,
            after.sent,
            after.code
        )
    }
}

fn millis(s: &Sample) -> f64 {
    s.cost.cpu.as_secs_f64() * 1e3
}

/// Costs at the lengths `small` and `large` (a multiple of it), and where those look wrong at doublings of `large`. `run`
/// sends one request of a length; `None`: it cannot be made.
pub fn judge(run: &dyn Fn(usize) -> Option<Sample>, [small, large]: [usize; 2]) -> Option<Finding> {
    let base = run(1)?;
    // Where the shorter one is over its budget, the longer one may take minutes.
    let again = |before: Sample, n| {
        run(n).map(|s| Sample {
            cost: before.cost.min(s.cost),
            ..before
        })
    };
    let affordable = |before: &Sample, n| {
        let first = run(n)?;
        let sample = if over_budget(before, &first, n).is_some() {
            again(first, n)?
        } else {
            first
        };
        Some(over_budget(before, &sample, n).map_or(Ok(sample), Err))
    };
    let a = match affordable(&base, small)? {
        Ok(sample) => sample,
        Err(finding) => return Some(finding),
    };
    let b = match affordable(&a, large)? {
        Ok(sample) => sample,
        Err(finding) => return Some(finding),
    };
    if !suspicious(&base, &a, &b, large / small) {
        return None;
    }
    // Mostly that was noise.
    let (a, b) = (again(a, small)?, again(b, large)?);
    if !suspicious(&base, &a, &b, large / small) {
        return None;
    }
    // Growth that is real shows more at greater lengths.
    let c = run(4 * large)?;
    if over_budget(&b, &c, 4 * large).is_none() && !suspicious(&base, &b, &c, 4) {
        return None;
    }
    confirm(run, large)
}

/// What `by` times the elements add to the cost is clearly more than `by` times as much.
fn suspicious(base: &Sample, a: &Sample, b: &Sample, by: usize) -> bool {
    let most = by as f64 * SUSPICIOUS;
    let cpu = |s: &Sample| s.cost.cpu.saturating_sub(base.cost.cpu).as_secs_f64().max(1e-6);
    let peak = |s: &Sample| s.cost.peak.saturating_sub(base.cost.peak).max(1) as f64;
    (cpu(b) / cpu(a) > most && b.cost.cpu > CPU_FLOOR / 4) || (peak(b) / peak(a) > most && b.cost.peak > PEAK_FLOOR / 4)
}

/// Doubles from `from` up to `to`, for what grows faster than a square: a request that does may take minutes at the
/// lengths of [`judge`].
pub fn climb(run: &dyn Fn(usize) -> Option<Sample>, from: usize, to: usize) -> Option<Finding> {
    let mut n = from;
    let mut before = run(n)?;
    while n < to {
        n *= 2;
        let mut after = run(n)?;
        if compare(&before, &after, n).is_some() {
            (before, after) = (steady(run, n / 2)?, steady(run, n)?);
            if let Some(finding) = compare(&before, &after, n) {
                return Some(finding);
            }
        }
        before = after;
    }
    None
}

/// Doubles until the growth is plain, or there is nothing more to send.
fn confirm(run: &dyn Fn(usize) -> Option<Sample>, from: usize) -> Option<Finding> {
    let mut n = from;
    let mut before = steady(run, n)?;
    let mut calm = 0;
    while before.sent < LONGEST / 2 {
        n *= 2;
        let after = steady(run, n)?;
        if let Some(finding) = compare(&before, &after, n) {
            return Some(finding);
        }
        let (cpu, peak) = ratios(&before, &after);
        calm = if cpu < 2.25 && peak < 2.25 { calm + 1 } else { 0 };
        if calm == 2 {
            return None;
        }
        before = after;
    }
    None
}

fn ratios(before: &Sample, after: &Sample) -> (f64, f64) {
    let cpu = after.cost.cpu.as_secs_f64() / before.cost.cpu.as_secs_f64().max(1e-6);
    (cpu, after.cost.peak as f64 / before.cost.peak.max(1) as f64)
}

/// The second of two samples takes more than a request may.
fn over_budget(before: &Sample, after: &Sample, n: usize) -> Option<Finding> {
    let sent = u32::try_from(after.sent).unwrap_or(u32::MAX);
    let (cpu, peak) = ratios(before, after);
    let finding = |what, ratio| {
        Some(Finding {
            what,
            n,
            before: *before,
            after: *after,
            ratio,
        })
    };
    if after.cost.cpu > CPU_MOST.0 + CPU_MOST.1 * sent {
        return finding("more CPU time than a request may take,", cpu);
    }
    if after.cost.peak > PEAK_MOST.0 + PEAK_MOST.1 * after.sent {
        return finding("more memory than a request may take,", peak);
    }
    None
}

/// What is wrong with the second of two samples, the input of which is twice that of the first.
fn compare(before: &Sample, after: &Sample, n: usize) -> Option<Finding> {
    let (cpu, peak) = ratios(before, after);
    let finding = |what, ratio| {
        Some(Finding {
            what,
            n,
            before: *before,
            after: *after,
            ratio,
        })
    };
    if let Some(finding) = over_budget(before, after, n) {
        return Some(finding);
    }
    // The square of a number of digits, say, is sent as more than twice the bytes.
    let linear = after.sent as f64 / before.sent.max(1) as f64 / 2.0;
    let most = MOST * linear.max(1.0);
    if cpu > most && after.cost.cpu > CPU_FLOOR {
        return finding("CPU time", cpu);
    }
    if peak > most && after.cost.peak > PEAK_FLOOR.max(PEAK_SMALL * after.sent) {
        return finding("memory", peak);
    }
    None
}

/// The typical cost of up to three runs; of one where it takes long.
fn steady(run: &dyn Fn(usize) -> Option<Sample>, n: usize) -> Option<Sample> {
    let first = run(n)?;
    let mut costs = vec![first.cost];
    while costs.len() < 3 && first.cost.cpu < Duration::from_secs(2) {
        costs.push(run(n)?.cost);
    }
    let cost = Cost::typical(&mut costs);
    Some(Sample { cost, ..first })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Costs by formulas, in microseconds and bytes.
    fn costs(cpu: impl Fn(u64) -> u64, peak: impl Fn(usize) -> usize) -> impl Fn(usize) -> Option<Sample> {
        move |n| {
            let cpu = Duration::from_micros(1000 + cpu(n as u64));
            let cost = Cost { cpu, peak: peak(n) };
            Some(Sample {
                cost,
                sent: 100 + 30 * n,
                code: 200,
            })
        }
    }

    #[test]
    fn linear_costs_pass() {
        assert!(judge(&costs(|n| 30 * n, |n| 1000 * n), [128, 1024]).is_none());
    }

    #[test]
    fn a_sort_passes() {
        assert!(judge(&costs(|n| 3 * n * n.ilog2() as u64, |n| 100 * n), [128, 1024]).is_none());
    }

    #[test]
    fn a_square_behind_a_thousand_times_its_linear_part_is_found() {
        let finding = judge(&costs(|n| 10 * n + n * n / 100, |n| n), [128, 1024]).expect("a finding");
        assert_eq!(finding.what, "CPU time");
        assert!(finding.ratio > 3.0, "{finding}");
    }

    #[test]
    fn a_square_of_memory_is_found() {
        let finding = judge(&costs(|n| n, |n| n * n), [128, 1024]).expect("a finding");
        assert_eq!(finding.what, "memory");
    }

    #[test]
    fn a_cube_is_found_at_small_lengths() {
        let finding = climb(&costs(|n| n * n * n, |n| n), 4, 512).expect("a finding");
        assert!(finding.n <= 64, "{finding}");
    }

    #[test]
    fn a_request_beyond_its_budget_is_not_made_longer() {
        let costs = costs(|n| n * n * n * 10, |n| n);
        let guarded = |n| (n <= 128).then(|| costs(n)).expect("the next would take hours");
        assert!(judge(&guarded, [128, 1024]).is_some());
    }
}
