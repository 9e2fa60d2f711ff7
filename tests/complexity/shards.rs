//! Splits a run between processes, one for each core.

use std::process::{Command, Stdio};
use std::str::FromStr;

/// The environment variable that makes a process run one shard, as `2/4`.
pub(crate) const VARIABLE: &str = "FUZZ_SHARD";

/// More processes than this would not fit into the memory of a small machine with many cores.
const MAX_SHARDS: usize = 8;

/// One of `count` equal shares of the kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    /// From 0.
    index: usize,
    count: usize,
}

impl Default for Shard {
    /// Everything.
    fn default() -> Self {
        Self { index: 0, count: 1 }
    }
}

impl FromStr for Shard {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (index, count) = text.split_once('/').unwrap_or((text, "1"));
        Ok(Self {
            index: index.parse()?,
            count: count.parse::<std::num::NonZeroUsize>()?.get(),
        })
    }
}

impl Shard {
    /// Whether this is the shard that also does what is not divided.
    pub(crate) fn is_first(self) -> bool {
        self.index == 0
    }

    /// Whether the `n`th kind belongs to this shard.
    pub(crate) fn has(self, n: usize) -> bool {
        n % self.count == self.index
    }
}

/// Runs `test` of this program in one process for each core and prints what they print.
///
/// # Panics
///
/// Panics after the last process has ended if any failed.
pub(crate) fn run(test: &str) {
    let count = std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_SHARDS));
    let program = std::env::current_exe().expect("the path of this program");
    let children: Vec<_> = (0..count)
        .map(|index| {
            Command::new(&program)
                .args([test, "--exact", "--nocapture"])
                .env(VARIABLE, format!("{index}/{count}"))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("this program starts again")
        })
        .collect();
    // All are waited for before any is judged, so that none outlives the test.
    let outputs: Vec<_> = children
        .into_iter()
        .map(|child| std::thread::spawn(move || child.wait_with_output().expect("output of a shard")))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|reader| reader.join().expect("a reader"))
        .collect();
    let mut failed = 0;
    for output in &outputs {
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        failed += usize::from(!output.status.success());
    }
    assert_eq!(failed, 0, "{failed} of {count} shards failed; what they found is above");
}

#[test]
fn every_kind_is_in_exactly_one_shard() {
    let shards = ["0/3", "1/3", "2/3"].map(|text| text.parse::<Shard>().expect("a shard"));
    for n in 0..10 {
        assert_eq!(shards.iter().filter(|shard| shard.has(n)).count(), 1, "kind {n}");
    }
    assert!(Shard::default().has(7) && Shard::default().is_first());
    assert!("1/0".parse::<Shard>().is_err());
}
