//! Resource usage of the gateway process, from the kernel and from its own metrics.

use std::fs;

/// A memory value of a process in bytes, by its field of `/proc/<pid>/status`.
fn status(pid: u32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(field)?.strip_prefix(':'))
        .unwrap_or("0");
    let number = line.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

/// Current resident memory.
pub(crate) fn resident(pid: u32) -> u64 {
    status(pid, "VmRSS")
}

/// Peak resident memory since [`reset_peak`].
pub(crate) fn peak(pid: u32) -> u64 {
    status(pid, "VmHWM")
}

/// Resets the peak to the current size (`proc(5)`: 5 in `clear_refs`).
pub(crate) fn reset_peak(pid: u32) {
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

pub(crate) fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

pub(crate) fn files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// The usual length of a clock tick.
pub(crate) const TICK: std::time::Duration = std::time::Duration::from_millis(10);

/// User and system time in clock ticks.
pub(crate) fn ticks(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |n: usize| after.split_whitespace().nth(n).and_then(|v| v.parse::<u64>().ok());
    field(11).unwrap_or(0) + field(12).unwrap_or(0)
}

/// The sum of a metric's series, from the Prometheus text format.
pub(crate) fn sum(metrics: &str, name: &str) -> f64 {
    let series = metrics.lines().filter(|l| {
        l.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
    });
    series.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
