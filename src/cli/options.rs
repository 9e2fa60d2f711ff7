//! The flags that are honoured, by group, as typed values. Reading them looks at no file.

mod admission;
mod aggregator;
mod audit;
mod authentication;
mod authorization;
mod compute;
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
pub use features::FeatureGates;
pub use generic::GenericOptions;
pub use kubelet::KubeletOptions;
pub use logging::LoggingOptions;
pub use network::{Cidr, NetworkOptions};
pub use runtime::{RuntimeConfig, WIDE};
pub use serving::{ServingOptions, SniFiles};
pub use storage::{EtcdOptions, StorageOptions};

use super::flags::{self, Fate};
use super::value::{UsageError, Values};
use crate::tasks::compute::Config;
use std::path::PathBuf;

/// Everything that was asked for, before it is checked against the world.
#[derive(Clone, Debug)]
pub struct Options {
    /// The port.
    pub serving: ServingOptions,
    /// Who callers are.
    pub authentication: AuthenticationOptions,
    /// What they may do.
    pub authorization: AuthorizationOptions,
    /// What is recorded, and where.
    pub audit: AuditOptions,
    /// Which admission plugins are on.
    pub admission: AdmissionOptions,
    /// Which features are on.
    pub features: FeatureGates,
    /// Which built-in APIs are served.
    pub runtime: RuntimeConfig,
    /// Limits and lifecycle.
    pub generic: GenericOptions,
    /// The compute pool.
    pub compute: Config,
    /// Backends.
    pub aggregator: AggregatorOptions,
    /// Objects.
    pub storage: StorageOptions,
    /// Service addresses.
    pub network: NetworkOptions,
    /// Nodes.
    pub kubelet: KubeletOptions,
    /// Logs.
    pub logging: LoggingOptions,
    /// Everything as it was given, for `/flagz`.
    pub values: Values,
    /// One line for each flag that is accepted without effect.
    pub warnings: Vec<String>,
}

impl Options {
    /// Reads what was given.
    ///
    /// # Errors
    /// The first value that cannot be, or flag that is refused.
    pub fn read(values: Values) -> Result<Self, UsageError> {
        let mut warnings = Vec::new();
        for name in values.given() {
            let Some(flag) = flags::find(name) else { continue };
            match flag.fate {
                Fate::Honoured => {}
                _ if values.is_default(flag) => {}
                Fate::Ignored(why) => warnings.push(format!("--{name} has no effect: {why}")),
                Fate::Refused(why) => return Err(UsageError::new(format!("--{name} is refused: {why}"))),
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

/// A file flag, or nothing where it is empty.
fn file(values: &Values, name: &str) -> Option<PathBuf> {
    values.some_text(name).map(PathBuf::from)
}

/// Two file flags that come together or not at all.
fn pair(values: &Values, cert: &str, key: &str) -> Result<Option<(PathBuf, PathBuf)>, UsageError> {
    match (file(values, cert), file(values, key)) {
        (Some(cert), Some(key)) => Ok(Some((cert, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(UsageError::new(format!("--{cert} needs --{key}"))),
        (None, Some(_)) => Err(UsageError::new(format!("--{key} needs --{cert}"))),
    }
}

/// A number of zero or more.
fn count<T: TryFrom<i64>>(values: &Values, name: &str) -> Result<T, UsageError> {
    let n = values.int(name)?;
    if n < 0 {
        return Err(UsageError::new(format!("--{name} can not be negative value")));
    }
    T::try_from(n).map_err(|_| UsageError::invalid(name, &n.to_string(), "too large"))
}
