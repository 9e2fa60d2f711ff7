//! Metrics of encryption at rest: transformations, calls to KMS plugins, and the configuration in use.

use super::{Telemetry, counter, counters, gauges, histograms, int_gauges};
use prometheus::{GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Registry};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::sync::Mutex;

/// Maximum number of key ids with series per family, as upstream.
const KEYS: usize = 10;

/// Direction of a transformation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Decryption of a stored value.
    FromStorage,
    /// Encryption of a value to be stored.
    ToStorage,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::FromStorage => "from_storage",
            Self::ToStorage => "to_storage",
        }
    }
}

/// Handles of the families.
pub struct EncryptionMetrics {
    took: HistogramVec,
    operations: IntCounterVec,
    misses: IntCounter,
    key_took: Histogram,
    key_failures: IntCounter,
    calls: HistogramVec,
    keys_used: IntCounterVec,
    keys_used_at: GaugeVec,
    keys_current_at: GaugeVec,
    invalid_keys: IntCounterVec,
    known_keys: IntGaugeVec,
    reloads: IntCounterVec,
    reloaded_at: GaugeVec,
    configuration: IntGaugeVec,
    /// Label sets with series, least recently used first: of used keys, and of current keys.
    labels: Mutex<[VecDeque<[String; 3]>; 2]>,
}

fn doubling(from: f64, count: i32) -> Vec<f64> {
    (0..count).map(|i| from * 2f64.powi(i)).collect()
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |d| d.as_secs_f64())
}

/// The `status` label: `OK` without an error, otherwise the gRPC status code of the error, if it has one.
fn status(error: Option<Option<&str>>) -> &str {
    error.map_or("OK", |code| code.unwrap_or("unknown-non-grpc"))
}

impl EncryptionMetrics {
    /// Registers the families. Call once per gateway.
    pub fn register(telemetry: &Telemetry) -> Arc<Self> {
        Arc::new(Self::new(telemetry.registry()))
    }

    /// Creates metrics that are not exported.
    pub fn unregistered() -> Arc<Self> {
        Arc::new(Self::new(&Registry::new()))
    }

    fn new(r: &Registry) -> Self {
        let key = ["key_id_hash", "provider_name", "transformation_type"];
        Self {
            took: histograms(
                r,
                "apiserver_storage_transformation_duration_seconds",
                "Seconds it took to encrypt or decrypt a value.",
                &["resource", "transformation_type", "transformer_prefix"],
                // From 5 µs to 84 s: a local cipher takes microseconds, a KMS plugin up to seconds.
                &doubling(5e-6, 25),
            ),
            operations: counters(
                r,
                "apiserver_storage_transformation_operations_total",
                "Values encrypted or decrypted, by outcome.",
                &["resource", "status", "transformation_type", "transformer_prefix"],
            ),
            misses: counter(
                r,
                "apiserver_storage_envelope_transformation_cache_misses_total",
                "Data encryption keys that a KMS plugin had to decrypt.",
            ),
            key_took: histograms(
                r,
                "apiserver_storage_data_key_generation_duration_seconds",
                "Seconds it took to generate a data encryption key.",
                &[],
                &doubling(5e-6, 14),
            )
            .with_label_values::<&str>(&[]),
            key_failures: counter(
                r,
                "apiserver_storage_data_key_generation_failures_total",
                "Data encryption keys that could not be generated.",
            ),
            calls: histograms(
                r,
                "apiserver_envelope_encryption_kms_operations_latency_seconds",
                "Seconds a call to a KMS plugin took.",
                &["grpc_status_code", "method_name", "provider_name"],
                &doubling(1e-4, 20),
            ),
            keys_used: counters(
                r,
                "apiserver_envelope_encryption_key_id_hash_total",
                "Values encrypted or decrypted with a plugin's key.",
                &key,
            ),
            keys_used_at: gauges(
                r,
                "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds",
                "When a plugin's key was last used.",
                &key,
            ),
            keys_current_at: gauges(
                r,
                "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds",
                "When a plugin last reported that a key is current.",
                // Without `transformation_type`: a status concerns both directions.
                &key[..2],
            ),
            invalid_keys: counters(
                r,
                "apiserver_envelope_encryption_invalid_key_id_from_status_total",
                "Statuses of plugins without a usable key id.",
                &["error", "provider_name"],
            ),
            known_keys: int_gauges(
                r,
                "apiserver_envelope_encryption_dek_source_cache_size",
                "Data encryption keys that are cached in decrypted form.",
                &["provider_name"],
            ),
            reloads: counters(
                r,
                "apiserver_encryption_config_controller_automatic_reloads_total",
                "Reloads of the encryption configuration, by result.",
                &["apiserver_id_hash", "status"],
            ),
            reloaded_at: gauges(
                r,
                "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds",
                "When the encryption configuration was last reloaded, by result.",
                &["apiserver_id_hash", "status"],
            ),
            configuration: int_gauges(
                r,
                "apiserver_encryption_config_controller_last_config_info",
                "The encryption configuration in use, by its digest.",
                &["apiserver_id_hash", "hash"],
            ),
            labels: Mutex::default(),
        }
    }

    /// Records the encryption or decryption of a value.
    pub fn transformed(
        &self,
        direction: Direction,
        prefix: &str,
        resource: &str,
        took: Duration,
        error: Option<Option<&str>>,
    ) {
        let labels = [resource, status(error), direction.name(), prefix];
        self.operations.with_label_values(&labels).inc();
        // As upstream, failures are not timed.
        if error.is_none() {
            let series = self.took.with_label_values(&[resource, direction.name(), prefix]);
            series.observe(took.as_secs_f64());
        }
    }

    /// Records the generation of a data encryption key.
    pub fn key_made(&self, took: Duration, success: bool) {
        match success {
            true => self.key_took.observe(took.as_secs_f64()),
            false => self.key_failures.inc(),
        }
    }

    /// Records that a plugin had to decrypt a key that was not cached.
    pub fn cache_missed(&self) {
        self.misses.inc();
    }

    /// Records a call to a plugin.
    pub fn called(&self, provider: &str, method: &str, took: Duration, error: Option<Option<&str>>) {
        let series = self.calls.with_label_values(&[status(error), method, provider]);
        series.observe(took.as_secs_f64());
    }

    /// Sets the number of decrypted keys cached for a plugin.
    pub fn set_cached_keys(&self, provider: &str, keys: usize) {
        self.known_keys.with_label_values(&[provider]).set(keys as i64);
    }

    /// Records a use of a plugin's key; `hash` is the hash of its id.
    pub fn key_used(&self, direction: Direction, provider: &str, hash: &str) {
        let labels = [hash, provider, direction.name()];
        // Evicted first, so that a scrape never sees more series than the limit.
        if let Some(old) = self.oldest_of(0, labels) {
            // Removing a series that does not exist is harmless.
            let _ = self.keys_used.remove_label_values(&old);
            let _ = self.keys_used_at.remove_label_values(&old);
        }
        self.keys_used.with_label_values(&labels).inc();
        self.keys_used_at.with_label_values(&labels).set(now());
    }

    /// Records the key that a plugin reported as current.
    pub fn key_reported(&self, provider: &str, hash: &str) {
        // The third label is that of used keys only.
        if let Some(old) = self.oldest_of(1, [hash, provider, ""]) {
            let _ = self.keys_current_at.remove_label_values(&[&old[0], &old[1]]);
        }
        self.keys_current_at.with_label_values(&[hash, provider]).set(now());
    }

    /// Marks labels as recently used, and returns the labels to evict if there are too many.
    fn oldest_of(&self, which: usize, labels: [&str; 3]) -> Option<[String; 3]> {
        let mut all = self.labels.lock();
        let known = &mut all[which];
        // A scan, since there are at most ten.
        match known.iter().position(|l| *l == labels) {
            // The common case: the same key as last time.
            Some(at) if at + 1 == known.len() => {}
            Some(at) => {
                let again = known.remove(at);
                known.extend(again);
            }
            None => known.push_back(labels.map(str::to_owned)),
        }
        // Key ids come from plugins, which may rotate them as often as they like.
        (known.len() > KEYS).then(|| known.pop_front()).flatten()
    }

    /// Records a status response without a usable key id. `error`: `empty` or `too_long`.
    pub fn invalid(&self, provider: &str, error: &str) {
        self.invalid_keys.with_label_values(&[error, provider]).inc();
    }

    /// Records a reload of the configuration; `succeeded` if it succeeded.
    pub fn reloaded(&self, server: &str, succeeded: bool) {
        let labels = [server, if succeeded { "success" } else { "failure" }];
        self.reloads.with_label_values(&labels).inc();
        self.reloaded_at.with_label_values(&labels).set(now());
    }

    /// Records the digest of the configuration in use.
    pub fn configured(&self, server: &str, digest: &str) {
        // Only the digest in use has a series.
        self.configuration.reset();
        self.configuration.with_label_values(&[server, digest]).set(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_keys_lose_their_series() {
        let telemetry = Telemetry::new();
        let m = EncryptionMetrics::register(&telemetry);
        for i in 0..12 {
            m.key_used(Direction::ToStorage, "p", &format!("sha256:{i:02}"));
            m.key_used(Direction::ToStorage, "p", "sha256:00");
            m.key_reported("p", &format!("sha256:{i:02}"));
        }
        let text = String::from_utf8(telemetry.text()).expect("text");
        let series = |name: &str| text.lines().filter(|l| l.starts_with(&format!("{name}{{"))).count();
        assert_eq!(series("apiserver_envelope_encryption_key_id_hash_total"), 10);
        assert_eq!(
            series("apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds"),
            10
        );
        assert!(
            text.contains(
                "key_id_hash_total{key_id_hash=\"sha256:00\",provider_name=\"p\",transformation_type=\"to_storage\"} 13"
            ),
            "{text}"
        );
    }

    #[test]
    fn status_is_the_grpc_code_if_there_is_one() {
        assert_eq!(status(None), "OK");
        assert_eq!(status(Some(Some("Unavailable"))), "Unavailable");
        assert_eq!(status(Some(None)), "unknown-non-grpc");
    }
}
