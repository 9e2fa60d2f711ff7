//! The supported flags as typed values, by group. [`Options::read`] parses them without reading any file.

mod admission;
mod aggregator;
mod audit;
mod authentication;
mod authorization;
mod compute;
mod controllers;
mod features;
mod generic;
mod kubelet;
mod logging;
mod network;
mod runtime;
mod serving;
mod storage;

pub(crate) use admission::AdmissionOptions;
pub(crate) use aggregator::AggregatorOptions;
pub(crate) use audit::AuditOptions;
pub(crate) use authentication::AuthenticationOptions;
pub(crate) use authorization::AuthorizationOptions;
pub(crate) use controllers::ControllerOptions;
pub(crate) use features::FeatureGates;
pub(crate) use generic::GenericOptions;
pub(crate) use kubelet::KubeletOptions;
pub(crate) use logging::LoggingOptions;
pub(crate) use network::NetworkOptions;
pub(crate) use runtime::{RuntimeConfig, WIDE_KEYS};
pub(crate) use serving::ServingOptions;
#[cfg(test)]
pub(crate) use serving::SniFiles;
pub(crate) use storage::{EtcdOptions, StorageOptions};

use super::flags::{self, Support};
use super::value::{UsageError, Values};
use crate::tasks::compute::Config;
use std::path::PathBuf;

/// The parsed flags, before they are validated against files and the machine ([`Options::complete`]).
#[derive(Clone, Debug)]
pub struct Options {
    /// Serving: address, certificates and TLS.
    pub(crate) serving: ServingOptions,
    pub(crate) authentication: AuthenticationOptions,
    pub(crate) authorization: AuthorizationOptions,
    pub(crate) audit: AuditOptions,
    pub(crate) admission: AdmissionOptions,
    pub(crate) features: FeatureGates,
    /// `--runtime-config`.
    pub(crate) runtime: RuntimeConfig,
    /// Request limits and shutdown times.
    pub(crate) generic: GenericOptions,
    pub(crate) compute: Config,
    pub(crate) controllers: ControllerOptions,
    /// The aggregator and its backends.
    pub(crate) aggregator: AggregatorOptions,
    pub(crate) storage: StorageOptions,
    /// Service addresses and node ports.
    pub(crate) network: NetworkOptions,
    pub(crate) kubelet: KubeletOptions,
    pub(crate) logging: LoggingOptions,
    /// The flags as they were given, for `/flagz`.
    pub(crate) values: Values,
    /// A message for each flag that is accepted without effect.
    pub(crate) warnings: Vec<String>,
}

impl Options {
    /// Parses the given values.
    ///
    /// # Errors
    /// The first invalid value or refused flag.
    pub(crate) fn read(values: Values) -> Result<Self, UsageError> {
        let mut warnings = Vec::new();
        for name in values.given() {
            let Some(flag) = flags::find(name) else { continue };
            match flag.support {
                Support::Supported => {}
                // Manifests of kube-apiserver often spell defaults out; those promise nothing that we do not
                // do.
                _ if values.is_default(flag) => {}
                Support::Ignored(why) => warnings.push(format!("--{name} has no effect: {why}")),
                Support::Rejected(why) => return Err(UsageError::new(format!("--{name} is refused: {why}"))),
            }
        }
        Ok(Self {
            serving: ServingOptions::read(&values)?,
            authentication: AuthenticationOptions::read(&values)?,
            authorization: AuthorizationOptions::read(&values)?,
            audit: AuditOptions::read(&values, &mut warnings)?,
            admission: AdmissionOptions::read(&values)?,
            features: FeatureGates::read(&values, &mut warnings)?,
            runtime: RuntimeConfig::read(&values)?,
            generic: GenericOptions::read(&values)?,
            compute: compute::read(&values)?,
            controllers: ControllerOptions::read(&values)?,
            aggregator: AggregatorOptions::read(&values)?,
            storage: StorageOptions::read(&values)?,
            network: NetworkOptions::read(&values)?,
            kubelet: KubeletOptions::read(&values)?,
            logging: LoggingOptions::read(&values)?,
            warnings,
            values,
        })
    }
}

/// The value of a file flag; `None` if it is empty.
fn file(values: &Values, name: &str) -> Option<PathBuf> {
    values.some_text(name).map(PathBuf::from)
}

/// The values of two file flags that must be given together.
fn pair(values: &Values, cert: &str, key: &str) -> Result<Option<(PathBuf, PathBuf)>, UsageError> {
    match (file(values, cert), file(values, key)) {
        (Some(cert), Some(key)) => Ok(Some((cert, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(UsageError::new(format!("--{cert} needs --{key}"))),
        (None, Some(_)) => Err(UsageError::new(format!("--{key} needs --{cert}"))),
    }
}

/// A non-negative number.
fn count<T: TryFrom<i64>>(values: &Values, name: &str) -> Result<T, UsageError> {
    let n = values.int(name)?;
    if n < 0 {
        // Worded as upstream.
        return Err(UsageError::new(format!("--{name} can not be negative value")));
    }
    T::try_from(n).map_err(|_| UsageError::invalid(name, &n.to_string(), "too large"))
}
