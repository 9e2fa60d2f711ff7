//! Encryption at rest, configured by `--encryption-provider-config`. File format, value formats and prefixes
//! are those of kube-apiserver v1.36, so that either can read what the other has written. Works with any
//! backend, as a [`Transform`].
//!
//! The first provider of a resource encrypts. Reads try, in order, every provider whose prefix the value has.
//! A value written by another provider or key than the first is stale: the next update rewrites it, even if
//! the object is unchanged.
//!
//! Entry points: [`Encryption::load`], [`Encryption::transform`], [`Encryption::reload`]. The file is parsed
//! in `config`; `aes`, `secretbox` and `kms` are the providers.

mod aes;
mod config;
mod error;
mod kms;
mod kms_client;
mod kms_plugin;
mod secretbox;
#[cfg(test)]
mod tests;

pub(crate) use error::{Complaint, ConfigError};

use super::kms_error::KmsError;
use super::transform::{ENCRYPTED, Opened, Plain, Transform, TransformError};
use crate::apimachinery::codec::hex;
use crate::telemetry::encryption::{Direction, EncryptionMetrics};
use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use config::Rule;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use kms_plugin::{Intervals, Plugin};

/// An encryption scheme with one or more keys.
trait Provider: Send + Sync + 'static {
    /// Prefix of its values; empty for the identity provider.
    fn prefix(&self) -> &str;
    /// Decrypts the part after the prefix. True if it was not written with the key that [`seal`](Self::seal)
    /// would use.
    fn open(&self, key: &str, value: &[u8]) -> Result<(Bytes, bool), TransformError>;
    /// Encrypts an object; the result follows the prefix.
    fn seal(&self, key: &str, object: &[u8]) -> Result<Vec<u8>, TransformError>;
}

/// The providers of a set of resources; the first encrypts.
type Chain = Vec<Arc<dyn Provider>>;

/// A parsed configuration file.
struct Loaded {
    rules: Vec<Rule>,
    plugins: Vec<Arc<Plugin>>,
    /// SHA-256 digest of the file.
    digest: Vec<u8>,
}

/// The encryption configuration of a gateway. The file may be reloaded while it runs.
pub struct Encryption {
    path: PathBuf,
    current: Arc<ArcSwap<Loaded>>,
    metrics: Arc<EncryptionMetrics>,
    intervals: Intervals,
}

impl Encryption {
    /// Loads the file. Blocks until every KMS plugin has answered once or timed out. An unavailable plugin is
    /// not an error at this point; see [`health`](Self::health).
    ///
    /// # Errors
    /// One line that names the file and, if known, the line number.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_with_metrics(path, EncryptionMetrics::unregistered())
    }

    /// As [`load`](Self::load), with metrics.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with_metrics(path: &Path, metrics: Arc<EncryptionMetrics>) -> Result<Self, ConfigError> {
        Self::load_at(path, metrics, Intervals::default())
    }

    fn load_at(path: &Path, metrics: Arc<EncryptionMetrics>, intervals: Intervals) -> Result<Self, ConfigError> {
        let loaded = config::load(path, &metrics, intervals)?;
        metrics.configured(&server_id_hash(), &loaded.name());
        // A warning only: the plugin may start after the gateway, and readiness reports it.
        for plugin in &loaded.plugins {
            if let Err(error) = plugin.health() {
                tracing::warn!(plugin = plugin.name(), %error, "a KMS plugin is not healthy");
            }
        }
        Ok(Self {
            path: path.to_path_buf(),
            current: Arc::new(ArcSwap::from_pointee(loaded)),
            metrics,
            intervals,
        })
    }

    /// Returns the transform of a resource. It follows later reloads.
    pub fn transform(&self, group: &str, resource: &str) -> Arc<dyn Transform> {
        Arc::new(ReloadingTransform {
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: match group {
                "" => resource.to_owned(),
                group => format!("{resource}.{group}"),
            },
            current: self.current.clone(),
            metrics: self.metrics.clone(),
        })
    }

    /// Decrypts a value whose resource is unknown, with any provider that can.
    ///
    /// # Errors
    /// No provider could read it.
    pub fn open_any(&self, key: &str, stored: &Bytes) -> Result<Bytes, TransformError> {
        if !stored.starts_with(ENCRYPTED) {
            return Ok(stored.clone());
        }
        let loaded = self.current.load();
        let mut found = loaded
            .rules
            .iter()
            // Without metrics: attempts with the wrong provider are expected here.
            .map(|r| open(&r.providers, key, stored.clone(), None));
        let opened = found.find_map(Result::ok);
        opened.map(|o| o.bytes).ok_or(TransformError::UnknownProvider)
    }

    /// Reloads the file if it has changed. The new configuration replaces the old one only if it is valid and
    /// its plugins are healthy. Blocks. Returns true if it was replaced.
    ///
    /// # Errors
    /// Why the new configuration was rejected; the old one stays in use.
    pub fn reload(&self) -> Result<bool, ConfigError> {
        // The digest and not the modification time: mounted Secrets are replaced by symlinks.
        if config::digest(&self.path)? == self.current.load().digest {
            return Ok(false);
        }
        let replaced = self.replace();
        self.metrics.reloaded(&server_id_hash(), replaced.is_ok());
        replaced.map(|()| true)
    }

    fn replace(&self) -> Result<(), ConfigError> {
        let loaded = config::load(&self.path, &self.metrics, self.intervals)?;
        // Checked before the swap: with an unhealthy plugin every write would fail.
        for plugin in &loaded.plugins {
            plugin.health()?;
        }
        self.metrics.configured(&server_id_hash(), &loaded.name());
        // Transforms hold the swap and not the configuration, so they follow at once.
        self.current.store(Arc::new(loaded));
        Ok(())
    }

    /// True if any KMS plugin is configured.
    pub fn has_plugins(&self) -> bool {
        !self.current.load().plugins.is_empty()
    }

    /// Reports whether all plugins are healthy, as of their last status check. Does not block.
    ///
    /// # Errors
    /// The error of the first unhealthy plugin.
    pub fn health(&self) -> Result<(), KmsError> {
        self.current.load().plugins.iter().try_for_each(|p| p.health())
    }
}

/// The transform of one resource under the current configuration.
struct ReloadingTransform {
    group: String,
    resource: String,
    /// Group and resource, formatted as in metrics.
    name: String,
    current: Arc<ArcSwap<Loaded>>,
    metrics: Arc<EncryptionMetrics>,
}

/// The `apiserver_id_hash` label: digest of the server id that upstream derives from the host name.
fn server_id_hash() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let digest = digest(&SHA256, host.trim().as_bytes());
    let mut id = "apiserver-".to_owned();
    // 128 bits of the digest, as upstream's lease names.
    // Base32 in lower case, without padding.
    let bits: Vec<bool> = digest.as_ref()[..16]
        .iter()
        .flat_map(|b| (0..8).rev().map(move |i| b >> i & 1 == 1))
        .collect();
    for five in bits.chunks(5) {
        let n = (0..5).fold(0, |n, i| n << 1 | usize::from(five.get(i) == Some(&true)));
        id.push(char::from(b"abcdefghijklmnopqrstuvwxyz234567"[n]));
    }
    metric_digest(id.as_bytes())
}

/// Formats a digest as in metrics.
fn metric_digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(self::digest(&SHA256, bytes).as_ref()))
}

impl Loaded {
    /// Digest of the file, formatted as in metrics.
    fn name(&self) -> String {
        format!("sha256:{}", hex(&self.digest))
    }

    /// Returns the providers of a resource: those named for it, else for its group, else for everything.
    fn chain(&self, group: &str, resource: &str) -> Option<&Chain> {
        let by = |pattern: &dyn Fn(&(String, String)) -> bool| {
            let rule = self.rules.iter().find(|r| r.resources.iter().any(pattern));
            rule.map(|r| &r.providers)
        };
        // In order of specificity, whatever their order in the file; validation refuses masked rules.
        by(&|(g, r)| g == group && r == resource)
            .or_else(|| by(&|(g, r)| g == group && r == "*"))
            .or_else(|| by(&|(g, r)| g == "*" && r == "*"))
    }
}

impl Transform for ReloadingTransform {
    fn open(&self, key: &str, stored: Bytes) -> Result<Opened, TransformError> {
        let loaded = self.current.load();
        match loaded.chain(&self.group, &self.resource) {
            Some(chain) => open(chain, key, stored, Some(self)),
            None => Plain.open(key, stored),
        }
    }

    fn seal(&self, key: &str, object: Bytes) -> Result<Bytes, TransformError> {
        let loaded = self.current.load();
        let first = loaded
            .chain(&self.group, &self.resource)
            .and_then(|chain| chain.first());
        match first {
            Some(provider) => {
                let since = Instant::now();
                let prefix = provider.prefix();
                let sealed = match prefix {
                    // The identity provider stores the object itself: no copy.
                    "" => Ok(object),
                    prefix => provider.seal(key, &object).map(|sealed| {
                        let mut out = prefix.as_bytes().to_vec();
                        out.extend(sealed);
                        out.into()
                    }),
                };
                self.count(Direction::ToStorage, prefix, since, sealed.as_ref().err());
                sealed
            }
            None => Ok(object),
        }
    }
}

impl ReloadingTransform {
    fn count(&self, direction: Direction, prefix: &str, since: Instant, error: Option<&TransformError>) {
        let error = error.map(TransformError::grpc_code);
        self.metrics
            .transformed(direction, prefix, &self.name, since.elapsed(), error);
    }
}

fn open(chain: &Chain, key: &str, stored: Bytes, of: Option<&ReloadingTransform>) -> Result<Opened, TransformError> {
    let count = |prefix: &str, since: Instant, error: Option<&TransformError>| {
        if let Some(of) = of {
            of.count(Direction::FromStorage, prefix, since, error);
        }
    };
    let begun = Instant::now();
    let mut failed = None;
    for (i, provider) in chain.iter().enumerate() {
        let prefix = provider.prefix();
        // Identity reads plain values only: an encrypted value that no other provider can read must not be
        // served as an object.
        if prefix.is_empty() {
            if !stored.starts_with(ENCRYPTED) {
                count("identity", begun, None);
                return Ok(Opened {
                    bytes: stored,
                    stale: i > 0,
                });
            }
            continue;
        }
        let Some(value) = stored.strip_prefix(prefix.as_bytes()) else {
            continue;
        };
        let since = Instant::now();
        let opened = provider.open(key, value);
        count(prefix, since, opened.as_ref().err());
        match opened {
            Ok((bytes, old)) => {
                return Ok(Opened {
                    bytes,
                    stale: old || i > 0,
                });
            }
            // The first failure is kept: it comes from the provider that should have read the value.
            Err(why) => _ = failed.get_or_insert(why),
        }
    }
    Err(failed.unwrap_or_else(|| {
        let error = TransformError::UnknownPrefix;
        count("unknown", begun, Some(&error));
        error
    }))
}

/// The system's random number generator failed.
struct NoRandomNumbers;

impl From<NoRandomNumbers> for TransformError {
    fn from(_: NoRandomNumbers) -> Self {
        Self::NoRandomNumbers
    }
}

impl From<NoRandomNumbers> for KmsError {
    fn from(_: NoRandomNumbers) -> Self {
        Self::NoRandomNumbers
    }
}

/// Returns random bytes from the system.
fn random<const N: usize>() -> Result<[u8; N], NoRandomNumbers> {
    let mut out = [0; N];
    aws_lc_rs::rand::fill(&mut out).map_err(|_| NoRandomNumbers)?;
    Ok(out)
}

/// Named keys. The first encrypts; every value carries the name of its key.
struct Keys<K>(Vec<(String, K)>);

impl<K> Keys<K> {
    /// Tries every key with the name that the value carries.
    pub(crate) fn open(
        &self,
        value: &[u8],
        whose: &'static str,
        read: impl Fn(&K, &[u8]) -> Result<Bytes, TransformError>,
    ) -> Result<(Bytes, bool), TransformError> {
        let mut failed = None;
        for (i, (name, key)) in self.0.iter().enumerate() {
            // The name is followed by a colon, so that `key1` does not match `key10`.
            let rest = value.strip_prefix(name.as_bytes()).and_then(|v| v.strip_prefix(b":"));
            let Some(rest) = rest else { continue };
            match read(key, rest) {
                Ok(bytes) => return Ok((bytes, i > 0)),
                // Two keys may have the same name; the error of the first one is reported.
                Err(why) => _ = failed.get_or_insert(why),
            }
        }
        Err(failed.unwrap_or(TransformError::UnknownKey(whose)))
    }

    /// Encrypts with the first key.
    pub(crate) fn seal(
        &self,
        write: impl Fn(&K) -> Result<Vec<u8>, TransformError>,
    ) -> Result<Vec<u8>, TransformError> {
        let (name, key) = self.0.first().ok_or(TransformError::Key("there is no key"))?;
        let mut out = format!("{name}:").into_bytes();
        out.extend(write(key)?);
        Ok(out)
    }
}
