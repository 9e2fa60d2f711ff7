//! Whether a cost grows faster than what is sent.

use crate::meter::Cost;
use std::time::Duration;

/// A doubling of the input that multiplies the cost by more than this is a finding.
const MOST: f64 = 3.0;
/// Costs below are noise.
const CPU_FLOOR: Duration = Duration::from_millis(25);
const PEAK_FLOOR: usize = 1 << 20;
/// The longest body the gateway reads: beyond, there is nothing to grow.
pub const LONGEST: usize = 3 << 20;
/// What one request may take, whatever it is: an unoptimised build, a body of at most [`LONGEST`].
const CPU_MOST: Duration = Duration::from_secs(30);

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
        let Self { what, n, before, after, ratio } = self;
        write!(
            f,
            "{what} ×{ratio:.1} from {} to {n}: {:.1} → {:.1} ms, {} → {} KiB of heap, {} → {} bytes sent, answer {}",
            n / 2,
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
pub fn judge(run: &dyn Fn(usize) -> Option<Sample>, [small, large]: [usize; 2], patient: bool) -> Option<Finding> {
    let base = run(1)?;
    let (a, b) = (run(small)?, run(large)?);
    let by = (large / small) as f64;
    let rest = |s: &Sample| s.cost.cpu.saturating_sub(base.cost.cpu).as_secs_f64().max(1e-6);
    let heap = |s: &Sample| s.cost.peak.saturating_sub(base.cost.peak).max(1) as f64;
    let suspect = (rest(&b) / rest(&a) > by * 1.7 && b.cost.cpu > Duration::from_millis(8))
        || (heap(&b) / heap(&a) > by * 1.7 && b.cost.peak > PEAK_FLOOR / 4);
    if !suspect && !patient {
        return None;
    }
    confirm(run, large)
}

/// Doubles until the growth is plain, or there is nothing more to send.
pub fn confirm(run: &dyn Fn(usize) -> Option<Sample>, from: usize) -> Option<Finding> {
    let mut n = from;
    let mut before = steady(run, n)?;
    let mut calm = 0;
    while before.sent < LONGEST / 2 {
        n *= 2;
        let after = steady(run, n)?;
        // What was refused for its size costs less: nothing to learn from that.
        let grown = after.sent as f64 / before.sent.max(1) as f64;
        let cpu = after.cost.cpu.as_secs_f64() / before.cost.cpu.as_secs_f64().max(1e-6);
        let peak = after.cost.peak as f64 / before.cost.peak.max(1) as f64;
        let finding = |what, ratio| Some(Finding { what, n, before, after, ratio });
        if after.cost.cpu > CPU_MOST {
            return finding("CPU time beyond its budget,", cpu);
        }
        if grown < 2.5 && cpu > MOST && after.cost.cpu > CPU_FLOOR {
            return finding("CPU time", cpu);
        }
        if grown < 2.5 && peak > MOST && after.cost.peak > PEAK_FLOOR {
            return finding("memory", peak);
        }
        calm = if cpu < 2.25 && peak < 2.25 { calm + 1 } else { 0 };
        if calm == 2 {
            return None;
        }
        before = after;
    }
    None
}

/// The least of up to three runs; one where it takes long.
fn steady(run: &dyn Fn(usize) -> Option<Sample>, n: usize) -> Option<Sample> {
    let mut best = run(n)?;
    for _ in 0..2 {
        if best.cost.cpu > Duration::from_secs(2) {
            break;
        }
        best.cost = best.cost.min(run(n)?.cost);
    }
    Some(best)
}
