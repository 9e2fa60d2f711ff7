//! The flags of the compute pool.

use super::{UsageError, Values, count};
use crate::tasks::compute::Config;

/// Minimum of `--compute-memory` and `--request-body-memory`: one body of the maximum size, decoded.
const MIN_MEMORY: usize = 16 << 20;

/// Parses the flags of the compute pool.
pub(super) fn read(values: &Values) -> Result<Config, UsageError> {
    let memory = |flag: &str| match count(values, flag)? {
        n if n < MIN_MEMORY => Err(UsageError::new(format!("--{flag} must be at least {MIN_MEMORY} bytes"))),
        n => Ok(n),
    };
    let default = Config::default();
    let body_bytes = memory("request-body-memory")?;
    Ok(Config {
        threads: match count(values, "compute-threads")? {
            0 => default.threads,
            n => n,
        },
        memory_bytes: memory("compute-memory")?,
        body_bytes,
        // So that it takes at least four callers to exhaust the memory for bodies.
        body_bytes_per_flow: body_bytes / 4,
        ..default
    })
}
