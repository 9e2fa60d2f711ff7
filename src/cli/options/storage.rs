//! The storage flags: the embedded store or etcd, encryption, caches and watches. Nothing is connected or
//! opened here; that is left to `app::store`.

use super::{UsageError, Values, count, file, pair};
use crate::apimachinery::gvk::GroupResource;
use crate::storage::budget::WatchBounds;
use crate::storage::etcd::MediaType;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct StorageOptions {
    /// `--data-dir`.
    pub data_dir: PathBuf,
    /// `--etcd-compaction-interval`; zero disables compaction.
    pub compaction_interval: Duration,
    /// `--event-ttl`.
    pub event_ttl: Duration,
    /// `--etcd-count-metric-poll-period`; zero disables object counts in metrics.
    pub count_every: Duration,
    /// `--etcd-servers` and related flags; absent for the embedded store.
    pub etcd: Option<EtcdOptions>,
    /// `--encryption-provider-config`.
    pub encryption: Option<PathBuf>,
    /// `--encryption-provider-config-automatic-reload`.
    pub encryption_reload: bool,
    /// `--watch-cache-max-bytes`; 0 for half of the available memory. Use
    /// [`cache_bytes()`](Self::cache_bytes).
    pub cache_bytes: usize,
    /// `--max-watches`, `--max-watches-per-user`, `--watch-max-pinned-bytes`, `--watch-stall-timeout`.
    pub watches: WatchBounds,
    /// `--share-trust`.
    pub share_trust: bool,
    /// `--watch-cache-max-encoding-bytes`.
    pub encodings_bytes: usize,
}

/// `--etcd-*`.
#[derive(Clone, Debug)]
pub(crate) struct EtcdOptions {
    /// `--etcd-servers`; never empty.
    pub servers: Vec<String>,
    /// `--etcd-servers-overrides`: resources stored on other servers.
    pub overrides: Vec<(GroupResource, Vec<String>)>,
    /// `--etcd-prefix`.
    pub prefix: String,
    /// `--etcd-cafile`.
    pub ca: Option<PathBuf>,
    /// `--etcd-certfile`, `--etcd-keyfile`.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// `--etcd-user-file`.
    pub user_file: Option<PathBuf>,
    /// `--etcd-compaction-interval`; zero disables compaction.
    pub compaction_interval: Duration,
    /// `--lease-reuse-duration-seconds`.
    pub lease_reuse: Duration,
    /// `--etcd-healthcheck-timeout`.
    pub health_timeout: Duration,
    /// `--etcd-readycheck-timeout`.
    pub ready_timeout: Duration,
    /// `--etcd-db-metric-poll-interval`; zero disables the metric.
    pub measure_every: Duration,
    /// `--storage-media-type`.
    pub media: MediaType,
}

impl StorageOptions {
    pub(in crate::cli) fn read(values: &Values) -> Result<Self, UsageError> {
        let encryption = file(values, "encryption-provider-config");
        let encryption_reload = values.bool("encryption-provider-config-automatic-reload")?;
        if encryption_reload && encryption.is_none() {
            return Err(UsageError::new(
                "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config",
            ));
        }
        Ok(Self {
            encryption,
            encryption_reload,
            data_dir: data_dir(values)?,
            compaction_interval: values.duration("etcd-compaction-interval")?,
            event_ttl: values.duration("event-ttl")?,
            count_every: values.duration("etcd-count-metric-poll-period")?,
            etcd: EtcdOptions::read(values)?,
            share_trust: values.bool("share-trust")?,
            cache_bytes: bytes(values, "watch-cache-max-bytes")?,
            watches: WatchBounds {
                max_total: count(values, "max-watches")?,
                per_user: count(values, "max-watches-per-user")?,
                max_pinned_bytes: bytes(values, "watch-max-pinned-bytes")?,
                stall_timeout: values.duration("watch-stall-timeout")?,
            },
            encodings_bytes: bytes(values, "watch-cache-max-encoding-bytes")?,
        })
    }

    /// Memory budget of all watch caches, in bytes.
    pub(crate) fn cache_bytes(&self) -> usize {
        match self.cache_bytes {
            // Unknown on systems without /proc: then there is no limit.
            0 => available_memory().map_or(usize::MAX, |all| all / 2),
            said => said,
        }
    }
}

/// The data directory. It defaults to one below the working directory only if no other flag sets a location.
fn data_dir(values: &Values) -> Result<PathBuf, UsageError> {
    if !values.is_given("data-dir") {
        // With --cert-dir, the user has chosen a place for what the server generates.
        if let Some(certificates) = file(values, "cert-dir") {
            return Ok(certificates.join("torana"));
        }
        if !values.list("etcd-servers").is_empty() {
            // A gateway on etcd is usually a Pod, whose working directory is not writable.
            return Ok("/var/lib/torana".into());
        }
    }
    let given = values.some_text("data-dir").map(PathBuf::from);
    given.ok_or_else(|| UsageError::new("--data-dir can not be empty"))
}

fn bytes(values: &Values, flag: &'static str) -> Result<usize, UsageError> {
    let said = values.int(flag)?;
    usize::try_from(said).map_err(|_| UsageError::invalid(flag, &said.to_string(), "must not be negative"))
}

/// Memory available to this process in bytes: that of the machine, or of its control group if less.
fn available_memory() -> Option<usize> {
    // In a container, the root that is mounted is the container's own group (version 2).
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse::<usize>().ok());
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    });
    // A control group may have a limit above the machine's memory; `max` does not parse and is skipped.
    group.into_iter().chain(machine).min()
}

impl EtcdOptions {
    fn read(values: &Values) -> Result<Option<Self>, UsageError> {
        let servers = values.list("etcd-servers");
        let overrides = overrides(&values.list("etcd-servers-overrides"))?;
        let media = match values.text("storage-media-type") {
            "application/vnd.kubernetes.protobuf" => MediaType::Protobuf,
            "application/json" => MediaType::Json,
            "application/yaml" => MediaType::Yaml,
            other => {
                return Err(UsageError::new(format!(
                    "--storage-media-type {other:?} invalid, allowed values: application/json, \
                     application/vnd.kubernetes.protobuf, application/yaml"
                )));
            }
        };
        // It only confirms the choice, which --etcd-servers makes.
        match values.text("storage-backend") {
            "" => {}
            "etcd3" if servers.is_empty() => return Err(UsageError::new("--etcd-servers must be specified")),
            "etcd3" => {}
            _ => {
                return Err(UsageError::new(
                    "--storage-backend invalid, allowed values: etcd3. If not specified, it will default to 'etcd3' \
                     where --etcd-servers is given, and to the embedded store where it is not",
                ));
            }
        }
        if servers.is_empty() {
            if !overrides.is_empty() {
                return Err(UsageError::new("--etcd-servers must be specified"));
            }
            return Ok(None);
        }
        for server in servers.iter().chain(overrides.iter().flat_map(|(_, s)| s)) {
            if !server.starts_with("http://") && !server.starts_with("https://") {
                return Err(UsageError::invalid(
                    "etcd-servers",
                    server,
                    "is no http:// or https:// URL",
                ));
            }
        }
        let reuse = values.int("lease-reuse-duration-seconds")?;
        Ok(Some(Self {
            servers,
            overrides,
            prefix: values.text("etcd-prefix").to_owned(),
            ca: file(values, "etcd-cafile"),
            identity: pair(values, "etcd-certfile", "etcd-keyfile")?,
            user_file: file(values, "etcd-user-file"),
            compaction_interval: values.duration("etcd-compaction-interval")?,
            lease_reuse: Duration::from_secs(u64::try_from(reuse).unwrap_or(0)),
            health_timeout: values.duration("etcd-healthcheck-timeout")?,
            ready_timeout: values.duration("etcd-readycheck-timeout")?,
            measure_every: values.duration("etcd-db-metric-poll-interval")?,
            media,
        }))
    }
}

fn overrides(given: &[String]) -> Result<Vec<(GroupResource, Vec<String>)>, UsageError> {
    let one = |text: &String| {
        let (resource, servers) = text.split_once('#')?;
        // The slash is required also for the core group: `/events`.
        let (group, resource) = resource.split_once('/')?;
        let servers: Vec<String> = servers.split(';').map(str::to_owned).collect();
        let fine = !resource.is_empty() && !resource.contains('/') && servers.iter().all(|s| s.contains("://"));
        fine.then(|| (GroupResource::new(group, resource), servers))
    };
    let all: Option<Vec<_>> = given.iter().map(one).collect();
    all.ok_or_else(|| {
        UsageError::new(
            "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, \
             semicolon separated",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_consist_of_a_resource_and_its_servers() {
        let read = |text: &str| overrides(&[text.to_owned()]);
        let found = read("/events#http://a:1;http://b:2").expect("it reads");
        assert_eq!(found[0].0, GroupResource::new("", "events"));
        assert_eq!(found[0].1, ["http://a:1", "http://b:2"]);
        for odd in ["events#http://a", "/events", "/events#a:1", "/#http://a"] {
            assert!(read(odd).is_err(), "{odd}");
        }
    }
}
