//! The two forms of the campaign: bounded, with a debug build in `make test`; full, with a release build in
//! `make hostile`.

use std::path::PathBuf;
use std::time::Duration;

/// Sizes and limits of a run.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub full: bool,
    /// Longest time without an answer to the prober, beyond that of an idle gateway.
    pub gap: Duration,
    /// Longest time from the end of a request to the end of its response.
    pub answer: Duration,
    /// Largest growth of resident memory during a case, beyond the bodies in flight.
    pub memory: u64,
    /// A gateway whose memory grows beyond this is killed, to protect the machine.
    pub guard: u64,
    /// Growth of resident memory that may remain after all cases of an attacker.
    pub remains: u64,
    /// The campaign stops after this many failures.
    pub failures: usize,
}

const MIB: u64 = 1 << 20;

impl Scale {
    /// The full form if `TORANA_BIN` names a binary (a release build), otherwise the bounded one. With
    /// `TORANA_HOSTILE_FORM=bounded`, that binary is treated as a debug build.
    pub(crate) fn of_environment() -> Self {
        let bounded = std::env::var("TORANA_HOSTILE_FORM").is_ok_and(|scale| scale == "bounded");
        if binary().is_some() && !bounded {
            return Self {
                full: true,
                gap: Duration::from_millis(100),
                answer: Duration::from_secs(5),
                memory: 64 * MIB,
                guard: 1500 * MIB,
                remains: 64 * MIB,
                failures: usize::MAX,
            };
        }
        // An unoptimised build is ten to thirty times slower, on cores that it shares with other tests.
        Self {
            full: false,
            gap: Duration::from_secs(3),
            answer: Duration::from_secs(20),
            memory: 128 * MIB,
            guard: 1000 * MIB,
            remains: 192 * MIB,
            failures: 10,
        }
    }

    /// A count or size: `full` in the full form, a sixteenth of it in the bounded one.
    pub(crate) fn size(&self, full: usize) -> usize {
        self.reduced(full, 16)
    }

    /// A count or size: `full` in the full form, a fraction of it in the bounded one.
    pub(crate) fn reduced(&self, full: usize, by: usize) -> usize {
        if self.full { full } else { (full / by).max(1) }
    }
}

/// The gateway binary to attack, if it is not the one that cargo built for this test.
pub(crate) fn binary() -> Option<PathBuf> {
    std::env::var_os("TORANA_BIN").map(PathBuf::from)
}
