//! Unused generated tokens in Secrets (`legacy_serviceaccount_token_cleaner.go`): after a year without use
//! they are marked as invalid, and after another year they are deleted. Secrets that users created are kept.

use super::loopback::{Failure, Loopback, MERGE_PATCH, Path, found};
use super::secrets::{AccountToken, Secret};
use super::sized;
use super::term::Term;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::authz::node::for_each_secret;
use crate::client::Informer;
use crate::json;
use crate::storage::{Entry, ListOptions, MinRevision, Storage};
use crate::tasks::Backoff;
use ::time::OffsetDateTime;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const NAME: &str = "legacy service account token cleaner";
/// Upstream's interval. All times are dates.
const INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Delays after failed passes. The first may come before the date that it reads is recorded.
const RETRY: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));
const TRACKED: &str = "kube-apiserver-legacy-service-account-token-tracking";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// Secrets that are looked at before the task yields.
const BATCH: usize = 256;

struct Cleaner {
    secrets: Informer<Secret>,
    stored: Arc<dyn Storage>,
    accounts: Arc<dyn Storage>,
    pods: Arc<dyn Storage>,
    api: Loopback,
    /// `--legacy-service-account-token-clean-up-period`
    period: Duration,
}

/// The action that the age of a token and of its marks allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    Invalidate,
    Delete,
}

/// The objects that a pass has read already, so that each account and namespace is read once.
#[derive(Default)]
struct Seen {
    /// By namespace, the names of the Secrets that its Pods use.
    mounted: HashMap<Str, HashSet<Str>>,
    /// The Secrets that each ServiceAccount lists, by its key.
    accounts: HashMap<Str, Listed>,
}

/// The Secrets that a ServiceAccount lists.
struct Listed {
    uid: Str,
    secrets: HashSet<Str>,
}

pub(crate) fn start(term: &Term) {
    let storage = |resource| term.storage("", resource);
    // Without a subscriber: a pass reads the snapshot.
    let secrets = term.inform(("", "secrets"), Secret::from_entry, |_| {});
    let (Some(secrets), Some(stored), Some(accounts), Some(pods)) =
        (secrets, storage("secrets"), storage("serviceaccounts"), storage("pods"))
    else {
        return;
    };
    let cleaner = Cleaner {
        secrets,
        stored,
        accounts,
        pods,
        api: term.client("legacy-service-account-token-cleaner"),
        period: term.unused_tokens,
    };
    term.tasks().spawn_until_stopped(NAME, async move {
        cleaner.secrets.synced().wait().await;
        repeat(|| cleaner.pass()).await;
    });
}

/// Makes a pass at each interval, and repeats one that failed with backoff. Never returns.
async fn repeat<F>(mut pass: impl FnMut() -> F)
where
    F: Future<Output = Result<(), Failure>>,
{
    let mut delays = RETRY.delays();
    loop {
        let pause = match pass().await {
            Ok(()) => {
                delays.reset();
                INTERVAL
            }
            Err(error) => {
                tracing::warn!(%error, "unused service account tokens were not checked");
                delays.next_delay()
            }
        };
        tokio::time::sleep(pause).await;
    }
}

impl Cleaner {
    async fn pass(&self) -> Result<(), Failure> {
        let tracked = self
            .api
            .get(Path::core("kube-system", "configmaps").name(TRACKED))
            .await?;
        let since = tracked.str_at(&["data", "since"]);
        let Some(tracked) = date(since) else {
            return Err(Failure::unreadable(format!("{TRACKED} has no date: {since:?}")));
        };
        let now = OffsetDateTime::now_utc();
        let limit = now - self.period;
        // A token without a recorded use may have been used before uses were recorded, which is complete only
        // from the second day on.
        if limit < tracked + ::time::Duration::DAY {
            return Ok(());
        }
        let mut seen = Seen::default();
        for (n, (key, secret)) in self.secrets.snapshot().iter().enumerate() {
            if n % BATCH == BATCH - 1 {
                tokio::task::yield_now().await;
            }
            let Some(token) = secret.account() else { continue };
            // Logged and passed over: one Secret must not keep the others from being cleaned up.
            if let Err(error) = self.look_at(key, token, now, limit, &mut seen).await {
                tracing::warn!(%error, secret = %key, "an unused service account token was not cleaned up");
            }
        }
        Ok(())
    }

    async fn look_at(
        &self,
        key: &str,
        token: &AccountToken,
        now: OffsetDateTime,
        limit: OffsetDateTime,
        seen: &mut Seen,
    ) -> Result<(), Failure> {
        let live = self.stored.get(key, MinRevision::Any).await?;
        let secret = sized::read(live, |entry| entry.decode_parts(&PARTS)).await?;
        let (Some(secret), Some((namespace, name))) = (secret, key.split_once('/')) else {
            return Ok(());
        };
        // The cheap check first: most tokens are in use.
        let verdict = verdict(&secret, limit);
        if verdict == Verdict::Keep || !self.is_generated(namespace, name, token, seen).await? {
            return Ok(());
        }
        if self.mounted(namespace, &mut seen.mounted).await?.contains(name) {
            return Ok(());
        }
        let path = Path::core(namespace, "secrets").name(name);
        let done = match verdict {
            Verdict::Keep => return Ok(()),
            Verdict::Invalidate => {
                let patch = json!({"metadata": {"uid": (secret.uid()), "labels": {INVALID_SINCE: (day(now))}}});
                self.api.patch(path, MERGE_PATCH, &patch).await
            }
            Verdict::Delete => {
                let options = json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions",
                    // A use in the meantime changes the label, and with it the version.
                    "preconditions": {"resourceVersion": (secret.resource_version())}});
                self.api.delete(path, &options).await
            }
        };
        match found(done) {
            Err(e) if e.code == 409 => Ok(()),
            other => other.map(drop),
        }
    }

    /// Whether the ServiceAccount lists the Secret, as it does those that were generated for it.
    async fn is_generated(
        &self,
        namespace: &str,
        name: &str,
        token: &AccountToken,
        seen: &mut Seen,
    ) -> Result<bool, Failure> {
        let key = Str::from(format!("{namespace}/{}", token.account));
        if !seen.accounts.contains_key(&key) {
            let account = self.accounts.get(&key, MinRevision::Any).await?;
            let listed = sized::read(account, Listed::from_entry).await?;
            // A missing account is not cached: its Secrets are about to be deleted anyway.
            seen.accounts.extend(listed.map(|listed| (key.clone(), listed)));
        }
        let listed = seen.accounts.get(&key).filter(|of| token.is_of_uid(&of.uid));
        Ok(listed.is_some_and(|of| of.secrets.contains(name)))
    }

    async fn mounted<'a>(
        &self,
        namespace: &str,
        known: &'a mut HashMap<Str, HashSet<Str>>,
    ) -> Result<&'a HashSet<Str>, Failure> {
        if !known.contains_key(namespace) {
            let mut names = HashSet::new();
            // The latest state: a Pod that was created just now may mount the Secret.
            let (pods, options) = (self.pods.clone(), ListOptions::latest(namespace));
            let pods = sized::list(self.pods.count(), async move { pods.list(options).await }).await??;
            for (bytes, batch) in sized::batches(&pods.entries) {
                names = sized::compute(bytes, move || mounted(names, &batch)).await?;
                tokio::task::yield_now().await;
            }
            known.insert(namespace.into(), names);
        }
        Ok(&known[namespace])
    }
}

/// Adds the names of the Secrets that Pods use.
fn mounted(mut names: HashSet<Str>, pods: &[Arc<Entry>]) -> HashSet<Str> {
    for entry in pods {
        for_each_secret(&entry.decode_parts(&POD), |name| {
            names.insert(name.into());
        });
    }
    names
}

impl Listed {
    fn from_entry(entry: &Entry) -> Self {
        static ACCOUNT: LazyLock<Mask> = LazyLock::new(|| Mask::of(&["metadata.uid", "secrets.name"]));
        let account = entry.decode_parts(&ACCOUNT);
        let secrets = account.get("secrets").items().iter();
        Self {
            uid: account.uid().into(),
            secrets: secrets.map(|s| s.str_at(&["name"]).into()).collect(),
        }
    }
}

static PARTS: LazyLock<Mask> =
    LazyLock::new(|| Mask::of(&["metadata.{uid,resourceVersion,labels,creationTimestamp,deletionTimestamp}"]));

static POD: LazyLock<Mask> =
    LazyLock::new(|| Mask::of(&["spec.{imagePullSecrets,containers,initContainers,ephemeralContainers,volumes}"]));

fn day(at: OffsetDateTime) -> String {
    time::format(at).chars().take("2006-01-02".len()).collect()
}

fn date(text: &str) -> Option<OffsetDateTime> {
    let whole = text.len() == "2006-01-02".len();
    whole.then(|| time::parse(&format!("{text}T00:00:00Z")).ok())?
}

/// The verdict about a token that was not used since `limit`.
fn verdict(secret: &Value, limit: OffsetDateTime) -> Verdict {
    // Dates of this form compare as text.
    let is_old = |text: &str| date(text).is_some() && *text < *day(limit);
    let created = time::parse(secret.meta("creationTimestamp"));
    if secret.is_being_deleted() || created.is_ok_and(|at| at >= limit) {
        return Verdict::Keep;
    }
    // Without a label, it was not used since uses are recorded.
    if secret.label(LAST_USED).is_some_and(|used| !is_old(used)) {
        return Verdict::Keep;
    }
    match secret.label(INVALID_SINCE).filter(|since| date(since).is_some()) {
        // First marked, then deleted after another period: the mark is visible to users and can be undone.
        None => Verdict::Invalidate,
        Some(since) if is_old(since) => Verdict::Delete,
        Some(_) => Verdict::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_failed_pass_is_repeated_with_backoff_and_a_good_one_at_the_interval() {
        let (start, mut at) = (Instant::now(), Vec::new());
        let passes = repeat(|| {
            at.push(start.elapsed().as_secs());
            let fails = at.len() <= 2;
            async move {
                match fails {
                    true => Err(Failure::unreadable("no date")),
                    false => Ok(()),
                }
            }
        });
        let ended = tokio::time::timeout(INTERVAL + Duration::from_secs(60), passes).await;
        assert!(ended.is_err(), "it never returns");
        assert_eq!(at, [0, 1, 3, 3 + INTERVAL.as_secs()]);
    }

    #[test]
    fn tokens_are_marked_before_they_are_deleted_and_used_ones_are_kept() {
        let limit = time::parse("2026-06-15T12:00:00Z").expect("a time");
        let of = |created: &str, labels: Value| {
            verdict(
                &json!({"metadata": {"creationTimestamp": created, "labels": (labels)}}),
                limit,
            )
        };
        let (old, new) = ("2025-01-01T00:00:00Z", "2026-06-16T00:00:00Z");
        assert_eq!(of(new, json!({})), Verdict::Keep);
        assert_eq!(of(old, json!({})), Verdict::Invalidate);
        assert_eq!(of(old, json!({LAST_USED: "2026-06-14"})), Verdict::Invalidate);
        for used in ["2026-06-15", "2027-01-01", "yesterday"] {
            assert_eq!(of(old, json!({LAST_USED: used})), Verdict::Keep, "{used}");
        }
        assert_eq!(of(old, json!({INVALID_SINCE: "no date"})), Verdict::Invalidate);
        assert_eq!(of(old, json!({INVALID_SINCE: "2026-06-15"})), Verdict::Keep);
        assert_eq!(of(old, json!({INVALID_SINCE: "2026-06-14"})), Verdict::Delete);
        let used_again = json!({INVALID_SINCE: "2026-06-14", LAST_USED: "2026-06-20"});
        assert_eq!(of(old, used_again), Verdict::Keep);
    }
}
