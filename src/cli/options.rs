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

pub use admission::AdmissionOptions;
pub use aggregator::AggregatorOptions;
pub use audit::{AuditLogOptions, AuditOptions, AuditWebhookOptions};
pub use authentication::{
    AuthenticationOptions, OidcOptions, RequestHeaderOptions, ServiceAccountOptions, TokenWebhookOptions,
};
pub use authorization::AuthorizationOptions;
pub use controllers::ControllerOptions;
pub use features::FeatureGates;
pub use generic::GenericOptions;
pub use kubelet::KubeletOptions;
pub use logging::LoggingOptions;
pub use network::{Cidr, NetworkOptions};
pub use runtime::{RuntimeConfig, WIDE_KEYS};
pub use serving::{ServingOptions, SniFiles};
pub use storage::{EtcdOptions, StorageOptions};

use super::flags::{self, Support};
use super::value::{UsageError, Values};
use crate::tasks::compute::Config;
use std::path::PathBuf;

/// The parsed flags, before they are validated against files and the machine ([`Options::complete`]).
#[derive(Clone, Debug)]
pub struct Options {
    /// Serving: address, certificates and TLS.
    pub serving: ServingOptions,
    /// Authentication.
    pub authentication: AuthenticationOptions,
    /// Authorization.
    pub authorization: AuthorizationOptions,
    /// Auditing.
    pub audit: AuditOptions,
    /// Admission.
    pub admission: AdmissionOptions,
    /// Feature gates.
    pub features: FeatureGates,
    /// `--runtime-config`.
    pub runtime: RuntimeConfig,
    /// Request limits and shutdown times.
    pub generic: GenericOptions,
    /// The compute pool.
    pub compute: Config,
    /// The control loops.
    pub controllers: ControllerOptions,
    /// The aggregator and its backends.
    pub aggregator: AggregatorOptions,
    /// Storage.
    pub storage: StorageOptions,
    /// Service addresses and node ports.
    pub network: NetworkOptions,
    /// Connections to kubelets.
    pub kubelet: KubeletOptions,
    /// Logging.
    pub logging: LoggingOptions,
    /// The flags as they were given, for `/flagz`.
    pub values: Values,
    /// A message for each flag that is accepted without effect.
    pub warnings: Vec<String>,
}

impl Options {
    /// Parses the given values.
    ///
    /// # Errors
    /// The first invalid value or refused flag.
    pub fn read(values: Values) -> Result<Self, UsageError> {
        let mut warnings = Vec::new();
        for name in values.given() {
            let Some(flag) = flags::find(name) else { continue };
            match flag.support {
                Support::Supported => {}
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
        return Err(UsageError::new(format!("--{name} can not be negative value")));
    }
    T::try_from(n).map_err(|_| UsageError::invalid(name, &n.to_string(), "too large"))
}
