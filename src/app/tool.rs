//! The `torana store` commands: check, statistics, compaction, backup, restore, and copies between the
//! embedded engine and etcd. The work on the files is in `storage::embedded::tool`.

use super::Error;
use super::store::access;
use crate::cli::options::EtcdOptions;
use crate::cli::store::{StoreAction, StoreCommand};
use crate::controlplane::stored_versions::update;
use crate::storage::embedded::tool::{self, Object, StoreStats};
use crate::storage::encryption::Encryption;
use crate::storage::etcd::tool::{Exchange, MAX_FILL, Pair, group_of, to_embedded};
use crate::storage::transform::ENCRYPTED;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io::{IsTerminal, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// First path element of the embedded engine's keys, independent of `--etcd-prefix`.
const ROOT: &str = "/registry";
/// Key prefixes of data that is not an API object. It is not copied, because its owners recreate it.
const NO_OBJECTS: [&str; 5] = [
    "/ranges/",
    "/masterleases/",
    "/peerserverleases/",
    "/health",
    "/torana/",
];
/// Storage directories that are not named after their resource.
const IRREGULAR: [(&str, &str); 5] = [
    ("services/specs", "services"),
    ("services/endpoints", "endpoints"),
    ("minions", "nodes"),
    ("controllers", "replicationcontrollers"),
    ("ingress", "ingresses"),
];

/// Timeout of the first request to etcd.
const CONTACT: Duration = Duration::from_secs(5);

/// A progress bar, shown only if standard error is a terminal.
struct ProgressBar {
    what: &'static str,
    shown: Instant,
    terminal: bool,
}

impl ProgressBar {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            shown: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn show(&mut self, done: u64, of: u64) {
        // A terminal cannot show more than a few frames, and writing each would slow the copy down.
        if !self.terminal || (done < of && self.shown.elapsed() < Duration::from_millis(100)) {
            return;
        }
        self.shown = Instant::now();
        let filled = (done * 40).checked_div(of).unwrap_or(40).min(40) as usize;
        let end = if done >= of { "\n" } else { "" };
        let bar = "#".repeat(filled) + &".".repeat(40 - filled);
        // Losing the terminal is not an error of the operation.
        let _ = write!(std::io::stderr(), "\r{} [{bar}] {done}/{of}{end}", self.what);
    }
}

/// Runs the command and returns the text to print. Needs a tokio runtime, and blocks.
///
/// # Errors
/// The error, in one line.
pub fn run(command: StoreCommand) -> LocalBoxFuture<'static, Result<String, Error>> {
    run_command(command).boxed_local()
}

async fn run_command(command: StoreCommand) -> Result<String, Error> {
    let dir = command.storage.data_dir.clone();
    let mut bar = ProgressBar::new(match command.action {
        StoreAction::Check => "checking",
        StoreAction::Backup(_) | StoreAction::Restore(..) => "copying",
        StoreAction::Compact => "compacting",
        _ => "reading",
    });
    let mut show = |done, of| bar.show(done, of);
    match (command.action, &command.storage.etcd) {
        (StoreAction::Check, None) => Ok(format!(
            "{}is whole\n",
            format_stats(&tool::check(&dir, &mut show).map_err(open_error)?)
        )),
        (StoreAction::Stats, None) => Ok(format_stats(&tool::stats(&dir).map_err(open_error)?)),
        (StoreAction::Compact, None) => Ok(format_stats(&tool::compact(&dir, &mut show).map_err(open_error)?)),
        (StoreAction::Backup(to), _) => {
            let found = tool::backup(&dir, &to, &mut show).map_err(open_error)?;
            Ok(format!("{} holds {} objects\n", to.display(), found.objects))
        }
        (StoreAction::Restore(from, ahead), _) => {
            let aside = tool::restore(&from, &dir, ahead, &mut show).map_err(open_error)?;
            let aside = aside.map_or(String::new(), |p| {
                format!("the store that was there is now {}\n", p.display())
            });
            Ok(format_stats(&tool::stats(&dir).map_err(open_error)?) + &aside)
        }
        (StoreAction::Export(keep), Some(etcd)) => export(&dir, etcd, keep).await,
        (StoreAction::Import, Some(etcd)) => import(&dir, etcd, command.storage.encryption.as_deref()).await,
        (StoreAction::Compact, Some(etcd)) => {
            let revision = exchange(etcd).await?.compact().await.map_err(Error::other)?;
            Ok(format!("etcd is compacted to revision {revision}\n"))
        }
        (StoreAction::Check | StoreAction::Stats, Some(etcd)) => inspect(etcd, &mut show).await,
        (StoreAction::Export(_) | StoreAction::Import, None) => Err(Error::other("--etcd-servers must be specified")),
    }
}

/// A storage error, with the flag that names the store if that is wrong.
fn open_error(e: tool::OpenError) -> Error {
    match e {
        tool::OpenError::Missing { .. } | tool::OpenError::HalfRestored { .. } | tool::OpenError::Locked { .. } => {
            Error::flag("data-dir")(e)
        }
        e => Error::other(e),
    }
}

fn format_stats(found: &StoreStats) -> String {
    let mut out = String::new();
    // Cannot underflow, even if a damaged file reports more objects than writes.
    let history = found.writes - found.objects.min(found.writes);
    for (name, value) in [
        ("revision", found.revision),
        ("compacted", found.compacted),
        ("objects", found.objects),
        ("history", history),
        ("file bytes", found.file_bytes),
        ("free bytes", found.free_bytes),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<12}{value}");
    }
    resources(&mut out, &found.resources);
    out
}

fn resources(out: &mut String, resources: &BTreeMap<String, (u64, u64)>) {
    for (name, (objects, bytes)) in resources {
        let _ = writeln!(out, "  {name:<50} {objects:>8} objects {bytes:>12} bytes");
    }
}

async fn exchange(etcd: &EtcdOptions) -> Result<Exchange, Error> {
    let access = access(etcd, &etcd.servers)?;
    let exchange = Exchange::connect(&access, CONTACT).await;
    exchange.map_err(Error::flag("etcd-servers"))
}

/// The etcd prefix, normalised to one leading slash and no trailing one.
fn prefix(etcd: &EtcdOptions) -> String {
    format!("/{}", etcd.prefix.trim_matches('/'))
}

fn is_object(pair: &Pair, prefix: &str) -> bool {
    let below = pair.key.strip_prefix(prefix).unwrap_or_default();
    !NO_OBJECTS.iter().any(|odd| below.starts_with(odd))
}

async fn inspect(etcd: &EtcdOptions, show: tool::Progress<'_>) -> Result<String, Error> {
    let prefix = prefix(etcd);
    let read = exchange(etcd).await?.read(&format!("{prefix}/"), show).await;
    let (revision, pairs) = read.map_err(Error::other)?;
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut odd = Vec::new();
    for pair in pairs.iter().filter(|p| is_object(p, &prefix)) {
        let sum = sums.entry(tool::resource_of(&pair.key)).or_default();
        *sum = (sum.0 + 1, sum.1 + pair.value.len() as u64);
        // Encrypted values cannot be judged without their keys.
        if !pair.value.starts_with(ENCRYPTED)
            && let Err(why) = group_of(&pair.value)
        {
            odd.push(format!("{}: {why}", pair.key));
        }
    }
    if let Some(first) = odd.first() {
        return Err(Error::other(format!(
            "{} values are not objects; the first: {first}",
            odd.len()
        )));
    }
    let mut out = format!(
        "{:<12}{revision}\n{:<12}{}\n",
        "revision",
        "objects",
        sums.values().map(|s| s.0).sum::<u64>()
    );
    resources(&mut out, &sums);
    Ok(out)
}

async fn export(dir: &Path, etcd: &EtcdOptions, keep: bool) -> Result<String, Error> {
    let (revision, mut objects) = tool::objects(dir).map_err(open_error)?;
    let (exchange, prefix) = (exchange(etcd).await?, prefix(etcd));
    if keep {
        let there = exchange.revision().await.map_err(Error::other)?;
        // A new cluster is at revision 1; any write would leave too few revisions for the older objects.
        if there > 1 {
            return Err(Error::other(format!(
                "--keep-revisions: etcd is at revision {there}; revisions can be kept only where nothing was written yet"
            )));
        }
        if revision > MAX_FILL {
            return Err(Error::other(format!(
                "--keep-revisions: the store is at revision {revision}; revisions are kept up to {MAX_FILL}"
            )));
        }
    }
    for object in &mut objects {
        if prefix != ROOT {
            // The key of the object is authenticated with the ciphertext (additional data), so a moved value
            // would not decrypt.
            if object.value.starts_with(ENCRYPTED) {
                return Err(Error::other(format!(
                    "{} is encrypted under its key and cannot be moved to another --etcd-prefix",
                    object.key
                )));
            }
            if let Some(below) = object.key.strip_prefix(ROOT) {
                object.key = format!("{prefix}{below}");
            }
        }
    }
    let mut bar = ProgressBar::new("writing");
    let mut show = |done, of| bar.show(done, of);
    let written = exchange.write(&objects, etcd.media, keep, &mut show).await;
    written.map_err(Error::other)?;
    Ok(format!("{} objects are in etcd\n", objects.len()))
}

async fn import(dir: &Path, etcd: &EtcdOptions, encryption: Option<&Path>) -> Result<String, Error> {
    let prefix = prefix(etcd);
    let encryption = encryption.map(Encryption::load).transpose();
    let encryption = encryption.map_err(Error::other)?;
    let mut bar = ProgressBar::new("reading");
    let mut show = |done, of| bar.show(done, of);
    let read = exchange(etcd).await?.read(&format!("{prefix}/"), &mut show).await;
    let (revision, pairs) = read.map_err(Error::other)?;
    let mut objects = Vec::with_capacity(pairs.len());
    for pair in pairs.into_iter().filter(|p| is_object(p, &prefix)) {
        let about = |why: &dyn Display| Error::other(format!("{}: {why}", pair.key));
        let below = pair.key.strip_prefix(&prefix).unwrap_or(&pair.key);
        let key = format!("{ROOT}{below}");
        let value = match &encryption {
            None if pair.value.starts_with(ENCRYPTED) => {
                return Err(about(&"it is encrypted: --encryption-provider-config must be given"));
            }
            None => to_embedded(&pair.value, update).map_err(|e| about(&e))?,
            Some(encryption) => {
                let plain = encryption.open_any(&pair.key, &pair.value);
                let plain = plain.map_err(|e| about(&e))?;
                let group = group_of(&plain).map_err(|e| about(&e))?;
                let transform = encryption.transform(&group, &resource_name(&pair.key));
                let object = to_embedded(&plain, update).map_err(|e| about(&e))?;
                // Sealed anew: the key of the object, which is authenticated, may have changed with the
                // prefix.
                let sealed = transform.seal(&key, object);
                sealed.map_err(|e| about(&e))?
            }
        };
        objects.push(Object {
            key,
            revision: pair.revision,
            value,
            expires: pair.expires,
        });
    }
    if objects.is_empty() {
        // Rather than an empty store: the prefix is probably mistyped.
        return Err(Error::other(format!(
            "--etcd-prefix: etcd holds no objects below {prefix}/"
        )));
    }
    let mut bar = ProgressBar::new("writing");
    let mut show = |done, of| bar.show(done, of);
    tool::fill(dir, revision, &objects, &mut show).map_err(open_error)?;
    Ok(format_stats(&tool::stats(dir).map_err(open_error)?))
}

/// The resource of a key: the last element of its directory, except for irregular directories.
fn resource_name(key: &str) -> String {
    let directory = tool::resource_of(key);
    let irregular = IRREGULAR.iter().find(|(d, _)| *d == directory);
    match irregular {
        Some((_, name)) => (*name).to_owned(),
        None => directory.rsplit('/').next().unwrap_or_default().to_owned(),
    }
}
