//! Decides whether a cost grows faster than its input.

use crate::meter::{Cost, settle};
use std::time::Duration;

/// A doubling of the input that multiplies the cost by more than this is a finding.
const MAX_RATIO: f64 = 3.0;
/// A cost of more than this times the linear extrapolation is measured again. In an unoptimised build a few
/// comparisons per pair cost as much as decoding and encoding an element, so a quadratic part adds only about
/// half at a thousand elements.
const SUSPICIOUS: f64 = 1.45;
/// CPU time below this is noise.
const CPU_FLOOR: Duration = Duration::from_millis(25);
const PEAK_FLOOR: usize = 1 << 20;
/// Peak heap per byte sent that is acceptable however it grows, because bodies are bounded. Decoding and
/// encoding take about twenty bytes per byte, and allocations of background controllers are measured as well.
const PEAK_SMALL: usize = 32;
/// The longest body that the gateway accepts, in bytes.
pub(crate) const MAX_BODY: usize = 3 << 20;
/// The budget of a request: a constant plus an amount per byte sent; CPU time of an unoptimised build.
const CPU_BUDGET: (Duration, Duration) = (Duration::from_millis(500), Duration::from_micros(20));
const PEAK_BUDGET: (usize, usize) = (16 << 20, 256);

/// The measurement of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub cost: Cost,
    pub sent: usize,
    pub code: u16,
}

/// A violation: a cost that grows too fast, or a request over its budget.
#[derive(Debug)]
pub(crate) struct Finding {
    pub what: &'static str,
    pub n: usize,
    pub before: Sample,
    pub after: Sample,
    pub ratio: f64,
}

impl Finding {
    fn of((before, after): (&Sample, &Sample), n: usize, what: &'static str, ratio: f64) -> Self {
        Self {
            what,
            n,
            before: *before,
            after: *after,
            ratio,
        }
    }
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

/// Measures at the lengths `small` and `large` (a multiple of it) and, if the result is suspicious, at
/// doublings of `large`. `run` sends one request of the given length, and returns `None` if such a request
/// cannot be built.
pub(crate) fn check_growth(run: &dyn Fn(usize) -> Option<Sample>, [small, large]: [usize; 2]) -> Option<Finding> {
    let base = run(1)?;
    // Re-measures before giving up: a request over its budget at the short length may take minutes at the
    // long one.
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
    // Measure again: most suspicions are noise.
    let (a, b) = (again(a, small)?, again(b, large)?);
    if !suspicious(&base, &a, &b, large / small) {
        return None;
    }
    // Real superlinear growth is more pronounced at greater lengths.
    let c = run(4 * large)?;
    if over_budget(&b, &c, 4 * large).is_none() && !suspicious(&base, &b, &c, 4) {
        return None;
    }
    confirm(run, large)
}

/// Whether multiplying the elements by `by` multiplied the added cost by clearly more than `by`.
fn suspicious(base: &Sample, a: &Sample, b: &Sample, by: usize) -> bool {
    let most = by as f64 * SUSPICIOUS;
    let cpu = |s: &Sample| s.cost.cpu.saturating_sub(base.cost.cpu).as_secs_f64().max(1e-6);
    let peak = |s: &Sample| s.cost.peak.saturating_sub(base.cost.peak).max(1) as f64;
    (cpu(b) / cpu(a) > most && b.cost.cpu > CPU_FLOOR / 4) || (peak(b) / peak(a) > most && b.cost.peak > PEAK_FLOOR / 4)
}

/// Doubles the length from `from` to `to`. For input whose cost may grow faster than quadratically, where the
/// lengths used by [`check_growth`] could take minutes.
pub(crate) fn climb(run: &dyn Fn(usize) -> Option<Sample>, from: usize, to: usize) -> Option<Finding> {
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

/// Doubles until the growth is certain, or the body reaches its maximum length.
fn confirm(run: &dyn Fn(usize) -> Option<Sample>, from: usize) -> Option<Finding> {
    let mut n = from;
    let mut before = steady(run, n)?;
    let mut calm = 0;
    while before.sent < MAX_BODY / 2 {
        n *= 2;
        let mut after = steady(run, n)?;
        // Controllers that react to a write (status of definitions, the APIServices of a thousand versions,
        // caches) run while a request is measured. A spike of theirs does not come back once they are done;
        // growth does.
        for _ in 0..2 {
            if compare(&before, &after, n).is_none() {
                break;
            }
            settle();
            (before, after) = (steady(run, n / 2)?, steady(run, n)?);
        }
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

/// Whether the second of two samples exceeds the request budget.
fn over_budget(before: &Sample, after: &Sample, n: usize) -> Option<Finding> {
    let sent = u32::try_from(after.sent).unwrap_or(u32::MAX);
    let (cpu, peak) = ratios(before, after);
    let finding = |what, ratio| Some(Finding::of((before, after), n, what, ratio));
    if after.cost.cpu > CPU_BUDGET.0 + CPU_BUDGET.1 * sent {
        return finding("more CPU time than a request may take,", cpu);
    }
    if after.cost.peak > PEAK_BUDGET.0 + PEAK_BUDGET.1 * after.sent {
        return finding("more memory than a request may take,", peak);
    }
    None
}

/// The finding, if any, for a sample whose input is twice that of the previous one.
fn compare(before: &Sample, after: &Sample, n: usize) -> Option<Finding> {
    let (cpu, peak) = ratios(before, after);
    let finding = |what, ratio| Some(Finding::of((before, after), n, what, ratio));
    if let Some(finding) = over_budget(before, after, n) {
        return Some(finding);
    }
    // The body may grow by more than a factor of two, for example with numbers whose digits also double.
    let linear = after.sent as f64 / before.sent.max(1) as f64 / 2.0;
    let most = MAX_RATIO * linear.max(1.0);
    if cpu > most && after.cost.cpu > CPU_FLOOR {
        return finding("CPU time", cpu);
    }
    if peak > most && after.cost.peak > PEAK_FLOOR.max(PEAK_SMALL * after.sent) {
        return finding("memory", peak);
    }
    None
}

/// The typical cost of up to three runs, or of one run if it takes long.
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

    /// A fake `run` with costs given by formulas, in microseconds and bytes.
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
        assert!(check_growth(&costs(|n| 30 * n, |n| 1000 * n), [128, 1024]).is_none());
    }

    #[test]
    fn n_log_n_costs_pass() {
        assert!(check_growth(&costs(|n| 3 * n * n.ilog2() as u64, |n| 100 * n), [128, 1024]).is_none());
    }

    #[test]
    fn a_square_with_a_thousand_times_larger_linear_part_is_found() {
        let finding = check_growth(&costs(|n| 10 * n + n * n / 100, |n| n), [128, 1024]).expect("a finding");
        assert_eq!(finding.what, "CPU time");
        assert!(finding.ratio > 3.0, "{finding}");
    }

    #[test]
    fn quadratic_memory_is_found() {
        let finding = check_growth(&costs(|n| n, |n| n * n), [128, 1024]).expect("a finding");
        assert_eq!(finding.what, "memory");
    }

    #[test]
    fn cubic_growth_is_found_at_small_lengths() {
        let finding = climb(&costs(|n| n * n * n, |n| n), 4, 512).expect("a finding");
        assert!(finding.n <= 64, "{finding}");
    }

    #[test]
    fn a_request_over_budget_is_not_made_longer() {
        let costs = costs(|n| n * n * n * 10, |n| n);
        let guarded = |n| (n <= 128).then(|| costs(n)).expect("the next would take hours");
        assert!(check_growth(&guarded, [128, 1024]).is_some());
    }
}
