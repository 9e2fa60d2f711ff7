//! The generic flags: request limits and lifecycle.

use super::{UsageError, Values, count};
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct GenericOptions {
    /// `--max-requests-inflight`; 0 for no limit.
    pub max_requests_in_flight: usize,
    /// `--max-mutating-requests-inflight`; 0 for no limit.
    pub max_mutating_requests_in_flight: usize,
    /// `--enable-priority-and-fairness`.
    pub priority_and_fairness: bool,
    /// `--request-timeout`.
    pub request_timeout: Duration,
    /// `--min-request-timeout`: a watch without a timeout lasts between once and twice this time.
    pub min_request_timeout: Duration,
    /// `--livez-grace-period`.
    pub livez_grace_period: Duration,
    /// `--shutdown-delay-duration`.
    pub shutdown_delay: Duration,
    /// `--storage-initialization-timeout`.
    pub storage_initialization_timeout: Duration,
}

impl GenericOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        // Only checked: the flag has no effect.
        if !(0.0..=0.02).contains(&values.float("goaway-chance")?) {
            return Err(UsageError::new(
                "--goaway-chance can not be less than 0 or greater than 0.02",
            ));
        }
        let request_timeout = values.duration("request-timeout")?;
        if request_timeout.is_zero() {
            return Err(UsageError::new(
                "--request-timeout can not be zero: no request could be answered",
            ));
        }
        Ok(Self {
            max_requests_in_flight: count(values, "max-requests-inflight")?,
            max_mutating_requests_in_flight: count(values, "max-mutating-requests-inflight")?,
            priority_and_fairness: values.bool("enable-priority-and-fairness")?,
            request_timeout,
            min_request_timeout: Duration::from_secs(count(values, "min-request-timeout")?),
            livez_grace_period: values.duration("livez-grace-period")?,
            shutdown_delay: values.duration("shutdown-delay-duration")?,
            storage_initialization_timeout: values.duration("storage-initialization-timeout")?,
        })
    }
}
