//! Encryption at rest, by `--encryption-provider-config`: the file, formats and prefixes of kube-apiserver v1.36, so that
//! either can read what the other has written. A [`Transform`] on whichever backend.
//!
//! The first provider of a resource writes; reads try every provider whose prefix stands before the value, in order.
//! What another key than the first has written is stale, and is written anew by the next update, even by one that changes
//! nothing. Entry points: [`Encryption::load`], [`Encryption::transform`], [`Encryption::reload`].

mod aes;
mod config;
mod grpc;
mod kms;
mod kms_plugin;
mod secretbox;
#[cfg(test)]
mod tests;

use super::transform::{ENCRYPTED, Opened, Plain, Transform};
use crate::apimachinery::codec::hex;
use crate::telemetry::encryption::{EncryptionMetrics, Way};
use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use config::Rule;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use kms_plugin::{Pace, Plugin};

/// One way of encrypting, with one or more keys.
trait Provider: Send + Sync + 'static {
    /// What stands before its values; empty: nothing, they are not encrypted.
    fn prefix(&self) -> &str;
    /// Reads what stands behind the prefix; true: not with the key it would write with.
    fn open(&self, key: &str, value: &[u8]) -> Result<(Bytes, bool), String>;
    /// Makes what stands behind the prefix.
    fn seal(&self, key: &str, object: &[u8]) -> Result<Vec<u8>, String>;
}

/// The providers of some resources; the first writes.
type Chain = Vec<Arc<dyn Provider>>;

/// What a file has said.
struct Loaded {
    rules: Vec<Rule>,
    plugins: Vec<Arc<Plugin>>,
    /// Digest of the file.
    digest: Vec<u8>,
}

/// The encryption of a gateway. Its file may change while it runs.
pub struct Encryption {
    path: PathBuf,
    current: Arc<ArcSwap<Loaded>>,
    metrics: Arc<EncryptionMetrics>,
    pace: Pace,
}

impl Encryption {
    /// Reads the file. Blocks, for as long as KMS plugins take to answer at most; a plugin that does not answer is no
    /// error yet.
    ///
    /// # Errors
    /// One line that names the file, and the line in it where there is one.
    pub fn load(path: &Path) -> Result<Self, String> {
        Self::load_counted(path, EncryptionMetrics::unread())
    }

    /// The same; what is done is counted.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_counted(path: &Path, metrics: Arc<EncryptionMetrics>) -> Result<Self, String> {
        Self::load_at(path, metrics, Pace::default())
    }

    fn load_at(path: &Path, metrics: Arc<EncryptionMetrics>, pace: Pace) -> Result<Self, String> {
        let loaded = config::load(path, &metrics, pace)?;
        metrics.configured(&server(), &loaded.name());
        for plugin in &loaded.plugins {
            if let Err(why) = plugin.health() {
                tracing::warn!(plugin = plugin.name(), why, "a KMS plugin is not healthy");
            }
        }
        Ok(Self {
            path: path.to_path_buf(),
            current: Arc::new(ArcSwap::from_pointee(loaded)),
            metrics,
            pace,
        })
    }

    /// How objects of a resource are stored; follows the file.
    pub fn transform(&self, group: &str, resource: &str) -> Arc<dyn Transform> {
        Arc::new(Followed {
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

    /// Opens a value of a resource that is not known, with whatever can.
    ///
    /// # Errors
    /// Nothing can.
    pub fn open_any(&self, key: &str, stored: &Bytes) -> Result<Bytes, String> {
        if !stored.starts_with(ENCRYPTED) {
            return Ok(stored.clone());
        }
        let loaded = self.current.load();
        let mut found = loaded
            .rules
            .iter()
            .map(|r| open(&r.providers, key, stored.clone(), None));
        let opened = found.find_map(Result::ok);
        opened
            .map(|o| o.bytes)
            .ok_or_else(|| "no provider could read it".to_owned())
    }

    /// Takes the file as it is now, if it has changed, is without fault and its plugins are healthy. Blocks. True: it
    /// was taken.
    ///
    /// # Errors
    /// Why it was not; the encryption stays as it was.
    pub fn reload(&self) -> Result<bool, String> {
        if config::digest(&self.path)? == self.current.load().digest {
            return Ok(false);
        }
        let taken = self.take();
        self.metrics.reloaded(&server(), taken.is_ok());
        taken.map(|()| true)
    }

    fn take(&self) -> Result<(), String> {
        let loaded = config::load(&self.path, &self.metrics, self.pace)?;
        for plugin in &loaded.plugins {
            plugin.health()?;
        }
        self.metrics.configured(&server(), &loaded.name());
        self.current.store(Arc::new(loaded));
        Ok(())
    }

    /// True where a plugin has the keys.
    pub fn has_plugins(&self) -> bool {
        !self.current.load().plugins.is_empty()
    }

    /// Whether all plugins work. Does not wait for them.
    ///
    /// # Errors
    /// The first that does not, and why.
    pub fn health(&self) -> Result<(), String> {
        self.current.load().plugins.iter().try_for_each(|p| p.health())
    }
}

/// The transform of one resource, by the file as it is.
struct Followed {
    group: String,
    resource: String,
    /// Both, as metrics have it.
    name: String,
    current: Arc<ArcSwap<Loaded>>,
    metrics: Arc<EncryptionMetrics>,
}

/// What stands for this server in metrics: the digest of the name upstream derives from the host's.
fn server() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let digest = digest(&SHA256, host.trim().as_bytes());
    let mut id = "apiserver-".to_owned();
    // Base32 in small letters, without padding.
    let bits: Vec<bool> = digest.as_ref()[..16]
        .iter()
        .flat_map(|b| (0..8).rev().map(move |i| b >> i & 1 == 1))
        .collect();
    for five in bits.chunks(5) {
        let n = (0..5).fold(0, |n, i| n << 1 | usize::from(five.get(i) == Some(&true)));
        id.push(char::from(b"abcdefghijklmnopqrstuvwxyz234567"[n]));
    }
    named(id.as_bytes())
}

/// A digest as metrics have it.
fn named(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(self::digest(&SHA256, bytes).as_ref()))
}

impl Loaded {
    /// The file's digest, as metrics have it.
    fn name(&self) -> String {
        format!("sha256:{}", hex(&self.digest))
    }

    /// The providers of a resource: its own, else its group's, else everybody's.
    fn chain(&self, group: &str, resource: &str) -> Option<&Chain> {
        let by = |pattern: &dyn Fn(&(String, String)) -> bool| {
            let rule = self.rules.iter().find(|r| r.resources.iter().any(pattern));
            rule.map(|r| &r.providers)
        };
        by(&|(g, r)| g == group && r == resource)
            .or_else(|| by(&|(g, r)| g == group && r == "*"))
            .or_else(|| by(&|(g, r)| g == "*" && r == "*"))
    }
}

impl Transform for Followed {
    fn open(&self, key: &str, stored: Bytes) -> Result<Opened, String> {
        let loaded = self.current.load();
        match loaded.chain(&self.group, &self.resource) {
            Some(chain) => open(chain, key, stored, Some(self)),
            None => Plain.open(key, stored),
        }
    }

    fn seal(&self, key: &str, object: Bytes) -> Result<Bytes, String> {
        let loaded = self.current.load();
        let first = loaded
            .chain(&self.group, &self.resource)
            .and_then(|chain| chain.first());
        match first {
            Some(provider) => {
                let since = Instant::now();
                let prefix = provider.prefix();
                let sealed = match prefix {
                    "" => Ok(object),
                    prefix => provider.seal(key, &object).map(|sealed| {
                        let mut out = prefix.as_bytes().to_vec();
                        out.extend(sealed);
                        out.into()
                    }),
                };
                self.count(Way::ToStorage, prefix, since, sealed.as_ref().err());
                sealed
            }
            None => Ok(object),
        }
    }
}

impl Followed {
    fn count(&self, way: Way, prefix: &str, since: Instant, error: Option<&String>) {
        let error = error.map(String::as_str);
        self.metrics
            .transformed(way, prefix, &self.name, since.elapsed(), error);
    }
}

fn open(chain: &Chain, key: &str, stored: Bytes, of: Option<&Followed>) -> Result<Opened, String> {
    let count = |prefix: &str, since: Instant, error: Option<&String>| {
        if let Some(of) = of {
            of.count(Way::FromStorage, prefix, since, error);
        }
    };
    let begun = Instant::now();
    let mut failed = None;
    for (i, provider) in chain.iter().enumerate() {
        let prefix = provider.prefix();
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
            Err(why) => _ = failed.get_or_insert(why),
        }
    }
    Err(failed.unwrap_or_else(|| {
        let why = "no matching prefix found".to_owned();
        count("unknown", begun, Some(&why));
        why
    }))
}

/// Random bytes.
fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut out = [0; N];
    aws_lc_rs::rand::fill(&mut out).map_err(|_| "the system has no random numbers".to_owned())?;
    Ok(out)
}

/// Keys by name: the first writes, each value says whose it is.
struct Keys<K>(Vec<(String, K)>);

impl<K> Keys<K> {
    /// Tries every key the value names.
    pub fn open(
        &self,
        value: &[u8],
        whose: &str,
        read: impl Fn(&K, &[u8]) -> Result<Bytes, String>,
    ) -> Result<(Bytes, bool), String> {
        let mut failed = None;
        for (i, (name, key)) in self.0.iter().enumerate() {
            let rest = value.strip_prefix(name.as_bytes()).and_then(|v| v.strip_prefix(b":"));
            let Some(rest) = rest else { continue };
            match read(key, rest) {
                Ok(bytes) => return Ok((bytes, i > 0)),
                Err(why) => _ = failed.get_or_insert(why),
            }
        }
        Err(failed.unwrap_or_else(|| format!("no matching key was found for the provided {whose} transformer")))
    }

    /// With the first key.
    pub fn seal(&self, write: impl Fn(&K) -> Result<Vec<u8>, String>) -> Result<Vec<u8>, String> {
        let (name, key) = self.0.first().ok_or("there is no key")?;
        let mut out = format!("{name}:").into_bytes();
        out.extend(write(key)?);
        Ok(out)
    }
}
