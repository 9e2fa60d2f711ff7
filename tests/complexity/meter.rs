//! What a request costs: CPU time of the process and the peak of its heap.
//!
//! CPU time is that of all threads (`CLOCK_PROCESS_CPUTIME_ID`), so work that moves to another thread is counted, and time
//! during which other processes have the cores is not. The machines this runs on have no hardware counters to count
//! instructions with.

use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// What was spent on one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// CPU time of the process.
    pub cpu: Duration,
    /// Bytes on the heap at the worst moment beyond those before.
    pub peak: usize,
}

impl Cost {
    /// The lower of both, each by itself.
    pub fn min(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.min(other.cpu),
            peak: self.peak.min(other.peak),
        }
    }

    /// The lowest CPU time, since noise only adds to it, and the middle one of the peaks: what is freed elsewhere meanwhile
    /// makes those look lower.
    pub fn typical(costs: &mut [Self]) -> Self {
        let cpu = costs.iter().map(|c| c.cpu).min().unwrap_or_default();
        costs.sort_by_key(|c| c.peak);
        let peak = costs.get(costs.len() / 2).map_or(0, |c| c.peak);
        Self { cpu, peak }
    }
}

/// CPU time of the process so far.
pub fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Runs `work` and says what it cost.
pub fn measure<R>(work: impl FnOnce() -> R) -> (Cost, R) {
    HEAP.reset_peak_usage();
    let (before, start) = (HEAP.current_usage(), cpu());
    let result = work();
    let cost = Cost {
        cpu: cpu().saturating_sub(start),
        peak: HEAP.peak_usage().saturating_sub(before),
    };
    (cost, result)
}
