//! Measures the cost of a request: CPU time of the process and peak heap.
//!
//! CPU time covers all threads (`CLOCK_PROCESS_CPUTIME_ID`), so it includes work moved to another thread and
//! excludes time during which other processes have the cores. Instruction counters would be more precise, but
//! the test machines do not have them.

use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The cost of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// CPU time of the process.
    pub cpu: Duration,
    /// Peak heap above the level at the start, in bytes.
    pub peak: usize,
}

impl Cost {
    /// The component-wise minimum.
    pub(crate) fn min(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.min(other.cpu),
            peak: self.peak.min(other.peak),
        }
    }

    /// The lowest CPU time, because noise only adds to it, and the median peak, because memory freed
    /// elsewhere can lower a measured peak.
    pub(crate) fn typical(costs: &mut [Self]) -> Self {
        let cpu = costs.iter().map(|c| c.cpu).min().unwrap_or_default();
        costs.sort_by_key(|c| c.peak);
        let peak = costs.get(costs.len() / 2).map_or(0, |c| c.peak);
        Self { cpu, peak }
    }
}

/// Waits, for at most ten seconds, until the process uses less than a tenth of a core: until controllers have
/// reacted to earlier requests.
pub(crate) fn settle() {
    const LOOK: Duration = Duration::from_millis(50);
    for _ in 0..200 {
        let before = cpu();
        std::thread::park_timeout(LOOK);
        if cpu() - before < LOOK / 10 {
            return;
        }
    }
}

/// CPU time of the process since its start.
pub(crate) fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Runs `work` and measures it.
pub(crate) fn measure<R>(work: impl FnOnce() -> R) -> (Cost, R) {
    HEAP.reset_peak_usage();
    let (before, start) = (HEAP.current_usage(), cpu());
    let result = work();
    let cost = Cost {
        cpu: cpu().saturating_sub(start),
        peak: HEAP.peak_usage().saturating_sub(before),
    };
    (cost, result)
}
