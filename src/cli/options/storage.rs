//! Objects.

use super::{UsageError, Values};
use std::path::PathBuf;
use std::time::Duration;

/// Storage flags.
#[derive(Clone, Debug)]
pub struct StorageOptions {
    /// `--data-dir`.
    pub data_dir: PathBuf,
    /// `--etcd-compaction-interval`; zero: never.
    pub compaction_interval: Duration,
    /// `--event-ttl`.
    pub event_ttl: Duration,
}

impl StorageOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        let data_dir = values
            .some_text("data-dir")
            .ok_or_else(|| UsageError::new("--data-dir can not be empty"))?;
        Ok(Self {
            data_dir: data_dir.into(),
            compaction_interval: values.duration("etcd-compaction-interval")?,
            event_ttl: values.duration("event-ttl")?,
        })
    }
}
