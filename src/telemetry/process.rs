//! The `process_*` families, read from `/proc` at each scrape, and `kubernetes_build_info`.

use super::int_gauges;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, Registry};
use std::time::{SystemTime, UNIX_EPOCH};

/// The Kubernetes release that is implemented, followed by this program's version.
pub(crate) const GIT_VERSION: &str = concat!("v1.36.2+torana-", env!("CARGO_PKG_VERSION"));

/// Git commit, from the environment variable `TORANA_GIT_COMMIT` at build time.
pub(crate) const GIT_COMMIT: &str = or(option_env!("TORANA_GIT_COMMIT"), "unknown");
/// `clean` or `dirty`, from the environment variable `TORANA_GIT_TREE_STATE` at build time.
pub(crate) const GIT_TREE_STATE: &str = or(option_env!("TORANA_GIT_TREE_STATE"), "unknown");
/// Build date, from the environment variable `TORANA_BUILD_DATE` at build time.
pub(crate) const BUILD_DATE: &str = or(option_env!("TORANA_BUILD_DATE"), "1970-01-01T00:00:00Z");
/// Value of the `go_version` field; there is no Go.
pub(crate) const GO_VERSION: &str = "none";
/// Value of the `compiler` field.
pub(crate) const COMPILER: &str = "rustc";

const fn or(given: Option<&'static str>, default: &'static str) -> &'static str {
    match given {
        Some(text) => text,
        None => default,
    }
}

/// Clock ticks per second in `/proc/<pid>/stat`: `USER_HZ`, which is 100 on all architectures Linux supports.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn register(r: &Registry) {
    int_gauges(
        r,
        "kubernetes_build_info",
        "Constant 1, labelled with the build.",
        &[
            "major",
            "minor",
            "git_version",
            "git_commit",
            "git_tree_state",
            "build_date",
            "go_version",
            "compiler",
            "platform",
        ],
    )
    .with_label_values(&[
        "1",
        "36",
        GIT_VERSION,
        GIT_COMMIT,
        GIT_TREE_STATE,
        BUILD_DATE,
        GO_VERSION,
        COMPILER,
        platform(),
    ])
    .set(1);
    // Without these the gateway still works, so it starts.
    if let Err(error) = r.register(Box::new(Process::new())) {
        tracing::warn!("process metrics are not available: {error}");
    }
}

/// The platform in Go's notation, for instance `linux/amd64`.
pub(crate) fn platform() -> &'static str {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => "linux/amd64",
        ("linux", "aarch64") => "linux/arm64",
        ("macos", "x86_64") => "darwin/amd64",
        ("macos", "aarch64") => "darwin/arm64",
        (os, _) => os,
    }
}

struct Process {
    cpu: Gauge,
    start: Gauge,
    resident: Gauge,
    virtual_: Gauge,
    open_fds: Gauge,
}

impl Process {
    fn new() -> Self {
        // Also for the total: the values are read, and a counter cannot be set.
        let gauge = |name: &str, help: &str| Gauge::new(name, help).expect("the name is a well-formed literal");
        let me = Self {
            cpu: gauge("process_cpu_seconds_total", "User and system CPU seconds spent."),
            start: gauge(
                "process_start_time_seconds",
                "Start of the process since the epoch in seconds.",
            ),
            resident: gauge("process_resident_memory_bytes", "Resident memory in bytes."),
            virtual_: gauge("process_virtual_memory_bytes", "Virtual memory in bytes."),
            open_fds: gauge("process_open_fds", "Open file descriptors."),
        };
        // Without `/proc`, the present time comes close: metrics are made at the start.
        me.start.set(started().unwrap_or_else(now));
        me
    }

    fn all(&self) -> [&Gauge; 5] {
        [&self.cpu, &self.start, &self.resident, &self.virtual_, &self.open_fds]
    }

    fn read(&self) {
        if let Some(stat) = stat() {
            let at = |i: usize| stat.get(i).copied().unwrap_or(0.0);
            // `utime` and `stime`: fields 14 and 15 of proc(5), counted here from the third.
            self.cpu.set((at(11) + at(12)) / TICKS_PER_SECOND);
            // `vsize`, field 23, is in bytes.
            self.virtual_.set(at(20));
            // Counted in pages, whose size is not 4 KiB on all kernels of 64-bit ARM.
            self.resident.set(at(21) * rustix::param::page_size() as f64);
        }
        // Includes the descriptor of this listing itself.
        if let Ok(fds) = std::fs::read_dir("/proc/self/fd") {
            self.open_fds.set(fds.count() as f64);
        }
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.all().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.read();
        self.all().into_iter().flat_map(Collector::collect).collect()
    }
}

/// Fields of `/proc/self/stat` after the command name. Index 0 is the state, which is not a number and parses
/// as 0.
fn stat() -> Option<Vec<f64>> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The command name may contain spaces and parentheses, so fields are counted from the last one.
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(|f| f.parse().unwrap_or(0.0)).collect())
}

/// Start time of this process, in seconds since the epoch.
pub(crate) fn started() -> Option<f64> {
    // `starttime`: field 22 of proc(5), counted here from the third.
    let ticks = stat()?.get(19).copied()?;
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = text
        .lines()
        .find_map(|l| l.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    Some(boot + ticks / TICKS_PER_SECOND)
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64())
}
