//! [`Plugin`]: the connection to a KMS v2 plugin, with its health, the seed it has encrypted for this
//! process, and a cache of seeds it has decrypted.
//!
//! Each plugin has a thread with its own runtime. Status checks run there in the background; storage uses
//! cached results and blocks on the plugin only to decrypt a seed for the first time, for one timeout at most:
//! decryptions wait neither for each other nor for a status check.

use super::kms_client::{self, Client, DecryptRequest, EncryptRequest, StatusRequest};
use super::random;
use crate::apimachinery::codec::hex;
use crate::cache::TtlCache;
use crate::storage::kms_error::{KmsError, SourceError};
use crate::sync::Mutex;
use crate::telemetry::encryption::EncryptionMetrics;
use arc_swap::ArcSwapOption;
use aws_lc_rs::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc as jobs};

/// Maximum length of key id and of encrypted seed, in bytes.
pub(super) const MAX_LENGTH: usize = 1024;

/// Intervals of the status checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intervals {
    /// Interval between status checks.
    pub healthy: Duration,
    /// Interval while they fail.
    pub failing: Duration,
    /// How long after the last successful status check the seed may be used for encryption.
    pub seed_lifetime: Duration,
}

impl Default for Intervals {
    /// Upstream checks every minute, and when health is queried and the last result is older than 20 s (3 s
    /// if it was an error). Checking at those shorter intervals is equivalent.
    fn default() -> Self {
        Self {
            healthy: Duration::from_secs(20),
            failing: Duration::from_secs(3),
            seed_lifetime: Duration::from_secs(180),
        }
    }
}

/// How long a decrypted seed is cached.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of cached seeds. Each rotation of the key and each restart makes one.
const MAX_REMEMBERED: usize = 16 << 10;
/// Maximum number of decryption requests at once.
// A plugin that hangs must not collect blocked readers without bound.
const DECRYPTIONS: usize = 256;

/// An encrypted seed or key, as returned by the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Source {
    pub ciphertext: Vec<u8>,
    pub key_id: String,
    pub annotations: BTreeMap<String, Vec<u8>>,
}

/// A seed for encrypting objects.
pub(super) struct Seed {
    pub plain: [u8; 32],
    pub source: Source,
    /// When the plugin last reported its key id as current.
    seen: Mutex<Instant>,
}

type DecryptResult = Result<Vec<u8>, KmsError>;

/// A request to decrypt a source, where to send the result, and its share of [`DECRYPTIONS`].
struct Job(Source, mpsc::SyncSender<DecryptResult>, OwnedSemaphorePermit);

struct State {
    name: String,
    metrics: Arc<EncryptionMetrics>,
    intervals: Intervals,
    socket: String,
    timeout: Duration,
    seed: ArcSwapOption<Seed>,
    known: TtlCache<Source, Vec<u8>>,
    health: Mutex<Result<(), KmsError>>,
    version: Mutex<Option<String>>,
}

/// A plugin in use. Its thread ends when this is dropped.
pub(super) struct Plugin {
    name: String,
    jobs: jobs::UnboundedSender<Job>,
    permits: Arc<Semaphore>,
    state: Arc<State>,
}

/// Hash of a key id for logs and metrics; the id itself is confidential.
pub(super) fn hash(key_id: &str) -> String {
    if key_id.is_empty() {
        return String::new();
    }
    format!("sha256:{}", hex(digest(&SHA256, key_id.as_bytes()).as_ref()))
}

impl State {
    /// Caches a decrypted seed or key.
    fn remember(&self, source: &Source, plain: Vec<u8>) {
        self.known.insert(source.clone(), plain, REMEMBERED);
        self.metrics.set_cached_keys(&self.name, self.known.len());
    }

    /// Waits for the response to a call, and records it under this method.
    async fn call<T>(
        &self,
        method: &str,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, KmsError> {
        let since = Instant::now();
        let answer = kms_client::message(self.timeout, call).await;
        let error = answer.as_ref().err().map(KmsError::code);
        let method = format!("/v2.KeyManagementService/{method}");
        self.metrics.called(&self.name, &method, since.elapsed(), error);
        answer
    }
}

impl Plugin {
    /// Starts the plugin's thread and waits for the first status check, successful or not. Blocks.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(super) fn start(
        name: &str,
        socket: &str,
        timeout: Duration,
        metrics: Arc<EncryptionMetrics>,
        intervals: Intervals,
    ) -> Result<Arc<Self>, KmsError> {
        // Bounded by the permits that the jobs have.
        let (jobs, queue) = jobs::unbounded_channel();
        let state = Arc::new(State {
            name: name.to_owned(),
            metrics,
            intervals,
            socket: socket.to_owned(),
            timeout,
            seed: ArcSwapOption::empty(),
            known: TtlCache::new(MAX_REMEMBERED),
            health: Mutex::new(Err(KmsError::NotAsked)),
            version: Mutex::default(),
        });
        // Room for one, so that the thread never blocks on a starter that has gone.
        let (first, wait) = mpsc::sync_channel(1);
        let (own, of) = (state.clone(), name.to_owned());
        let thread = std::thread::Builder::new().name("kms".to_owned()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime.block_on(run(&of, own, queue, first)),
                Err(e) => *own.health.lock() = Err(start_error(&of, format!("no runtime: {e}"))),
            }
        });
        thread.map_err(|e| start_error(name, e.to_string()))?;
        // Receiving fails if the thread has ended; `health` then has the reason.
        let _ = wait.recv();
        Ok(Arc::new(Self {
            name: name.to_owned(),
            jobs,
            permits: Arc::new(Semaphore::new(DECRYPTIONS)),
            state,
        }))
    }

    /// The metrics it reports to.
    pub(super) fn metrics(&self) -> &EncryptionMetrics {
        &self.state.metrics
    }

    /// The plugin's name in the configuration file.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reports the result of the last status check.
    ///
    /// # Errors
    /// Why the plugin is unhealthy.
    pub(crate) fn health(&self) -> Result<(), KmsError> {
        // Cloned out of the lock, which the status check must never wait for.
        let health = self.state.health.lock().clone();
        health.map_err(|e| KmsError::Unhealthy {
            provider: self.name.clone(),
            source: Arc::new(e),
        })
    }

    /// Returns the seed to encrypt with; fails if the plugin has not confirmed its key recently.
    pub(super) fn seed(&self) -> Result<Arc<Seed>, KmsError> {
        let seed = self.state.seed.load_full();
        let seed = seed.ok_or_else(|| KmsError::NoSeed(self.name.clone()))?;
        // A plugin that has lost its key must not be used for new writes: they could never be read again.
        if seed.seen.lock().elapsed() > self.state.intervals.seed_lifetime {
            return Err(KmsError::Expired {
                hash: hash(&seed.source.key_id),
                seconds: self.state.intervals.seed_lifetime.as_secs(),
            });
        }
        Ok(seed)
    }

    /// True if the source was encrypted with another key than the current one.
    pub(super) fn is_stale(&self, source: &Source) -> bool {
        let seed = self.state.seed.load();
        seed.as_ref().is_some_and(|s| s.source.key_id != source.key_id)
    }

    /// Returns the decrypted seed or key of a value. Blocks on the plugin if it is not cached.
    pub(super) fn decrypt(&self, source: &Source) -> DecryptResult {
        // The process's own seed first: it encrypted everything since the start, and comparing is cheaper
        // than hashing.
        if let Some(seed) = &*self.state.seed.load()
            && seed.source == *source
        {
            return Ok(seed.plain.to_vec());
        }
        if let Some(plain) = self.state.known.get(source) {
            return Ok(plain);
        }
        self.state.metrics.cache_missed();
        let plain = block_in_place_if_multi_threaded(|| {
            // Refused at once when there are too many: the caller blocks a thread.
            let permit = self.permits.clone().try_acquire_owned().map_err(|_| KmsError::Busy)?;
            let (to, answer) = mpsc::sync_channel(1);
            let job = Job(source.clone(), to, permit);
            self.jobs.send(job).map_err(|_| KmsError::Stopped)?;
            answer.recv().map_err(|_| KmsError::Stopped)?
        })?;
        self.state.remember(source, plain.clone());
        Ok(plain)
    }
}

fn start_error(provider: &str, why: String) -> KmsError {
    KmsError::Start {
        provider: provider.to_owned(),
        why,
    }
}

/// Runs a blocking wait. On a multi-threaded runtime, moves the other tasks of this worker to another thread
/// first.
fn block_in_place_if_multi_threaded<T>(wait: impl FnOnce() -> T) -> T {
    let flavor = tokio::runtime::Handle::try_current().map(|h| h.runtime_flavor());
    match flavor {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

/// Runs until the plugin is dropped.
async fn run(name: &str, state: Arc<State>, queue: jobs::UnboundedReceiver<Job>, first: mpsc::SyncSender<()>) {
    let client = kms_client::connect(&state.socket);
    tokio::select! {
        // Its channel closes with the plugin, which thereby also ends the checks.
        () = decrypt_all(state.clone(), client.clone(), queue) => {}
        () = check_health(name, &state, client, first) => {}
    }
}

/// Decrypts what is queued, each in a task of its own: a hanging plugin then delays a reader by its own timeout and
/// not by those of all readers before it. Ends with the queue.
async fn decrypt_all(state: Arc<State>, client: Client, mut queue: jobs::UnboundedReceiver<Job>) {
    while let Some(Job(source, to, permit)) = queue.recv().await {
        let (state, mut client) = (state.clone(), client.clone());
        tokio::spawn(async move {
            // Until the call has ended: a plugin that hangs gets no more calls than there are permits.
            let _permit = permit;
            // The reader may have stopped waiting.
            let _ = to.send(decrypt(&state, &mut client, &source).await);
        });
    }
}

/// Checks the status periodically. Never returns.
async fn check_health(name: &str, state: &State, mut client: Client, first: mpsc::SyncSender<()>) {
    let mut first = Some(first);
    loop {
        let outcome = check(state, &mut client).await;
        if let Err(error) = &outcome {
            tracing::debug!(plugin = name, %error, "a KMS plugin is not healthy");
        }
        let pause = match outcome {
            Ok(()) => state.intervals.healthy,
            Err(_) => state.intervals.failing,
        };
        *state.health.lock() = outcome;
        if let Some(first) = first.take() {
            // Wakes the thread that started the plugin.
            let _ = first.send(());
        }
        tokio::time::sleep(pause).await;
    }
}

/// Performs a status check, and requests a new seed if the key id has changed.
async fn check(state: &State, client: &mut Client) -> Result<(), KmsError> {
    let failed = |e| KmsError::Status {
        provider: state.name.clone(),
        source: Arc::new(e),
    };
    let answer = state.call("Status", client.status(StatusRequest {})).await;
    let answer = answer.map_err(failed)?;
    let (version, healthz, key_id) = (answer.version, answer.healthz, answer.key_id);
    if healthz != "ok" {
        return Err(KmsError::Healthz(healthz));
    }
    if version != "v2" && version != "v2beta1" {
        return Err(KmsError::Version(version));
    }
    {
        let mut known = state.version.lock();
        // As upstream, where a plugin may not switch versions while it is in use.
        match &*known {
            Some(before) if *before != version => {
                return Err(KmsError::VersionChanged {
                    before: before.clone(),
                    now: version,
                });
            }
            _ => *known = Some(version),
        }
    }
    if let Err(source) = check_key_id(&key_id) {
        let kind = if key_id.is_empty() { "empty" } else { "too_long" };
        state.metrics.invalid(&state.name, kind);
        return Err(KmsError::KeyId {
            hash: hash(&key_id),
            source,
        });
    }
    state.metrics.key_reported(&state.name, &hash(&key_id));
    if let Some(seed) = &*state.seed.load()
        && seed.source.key_id == key_id
    {
        // The plugin still has the key, so what is written with it can be read again.
        *seed.seen.lock() = Instant::now();
        return Ok(());
    }
    let uid = uuid::Uuid::new_v4().to_string();
    let since = Instant::now();
    let rotated = encrypt(state, client, &uid).await;
    // Counted even if it failed, as upstream's metric.
    state.metrics.key_made(since.elapsed(), rotated.is_ok());
    let seed = rotated.map_err(|e| KmsError::Rotation {
        uid,
        source: Arc::new(e),
    })?;
    // Cached before it is replaced, so that a concurrent read finds it in one place or the other.
    // The new seed was encrypted under the new key id; values under the old one are still being read.
    if let Some(before) = &*state.seed.load() {
        state.remember(&before.source, before.plain.to_vec());
    }
    state.seed.store(Some(Arc::new(seed)));
    Ok(())
}

async fn encrypt(state: &State, client: &mut Client, uid: &str) -> Result<Seed, KmsError> {
    let plain: [u8; 32] = random()?;
    let request = EncryptRequest {
        plaintext: plain.to_vec(),
        uid: uid.to_owned(),
    };
    let answer = state.call("Encrypt", client.encrypt(request)).await?;
    let source = Source {
        ciphertext: answer.ciphertext,
        key_id: answer.key_id,
        annotations: answer.annotations,
    };
    // Before use: what the plugin returned is stored with every object.
    source.check()?;
    Ok(Seed {
        plain,
        source,
        seen: Mutex::new(Instant::now()),
    })
}

async fn decrypt(state: &State, client: &mut Client, source: &Source) -> DecryptResult {
    let request = DecryptRequest {
        ciphertext: source.ciphertext.clone(),
        uid: uuid::Uuid::new_v4().to_string(),
        key_id: source.key_id.clone(),
        annotations: source.annotations.clone(),
    };
    let plain = state.call("Decrypt", client.decrypt(request)).await?.plaintext;
    // AES key lengths; anything else is a confused plugin.
    match plain.len() {
        16 | 24 | 32 => Ok(plain),
        n => Err(KmsError::KeyLength(n)),
    }
}

/// Checks a key id.
///
/// # Errors
/// The violated limit, worded as upstream.
pub(super) fn check_key_id(id: &str) -> Result<(), SourceError> {
    match id.len() {
        0 => Err(SourceError::NoKeyId),
        n if n > MAX_LENGTH => Err(SourceError::KeyIdLength {
            length: n,
            max: MAX_LENGTH,
        }),
        _ => Ok(()),
    }
}
