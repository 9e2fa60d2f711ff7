//! A KMS v2 plugin: its health, the seed it has encrypted for this process, and seeds of others it has decrypted.
//!
//! A thread of its own talks to it: storage asks without waiting on the reactor, and a status each minute goes by itself.
//! Only a seed not seen before makes a read wait for the plugin.

use super::kms::{annotation, check_key_id, put_annotations};
use super::{grpc, random};
use crate::apimachinery::codec::hex;
use crate::apimachinery::codec::protobuf::{Payload, Reader, put_bytes};
use crate::telemetry::encryption::EncryptionMetrics;
use arc_swap::ArcSwapOption;
use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::mpsc as jobs;

/// How often a plugin is asked, and how long its word holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Time between statuses.
    pub good: Duration,
    /// The same while they fail.
    pub bad: Duration,
    /// How long a seed is written with after the last good status.
    pub writes: Duration,
}

impl Default for Pace {
    /// Upstream asks each minute, and before that where health is asked for and its last word is 20 s old, or 3 s if it
    /// was bad: this comes to the same.
    fn default() -> Self {
        Self {
            good: Duration::from_secs(20),
            bad: Duration::from_secs(3),
            writes: Duration::from_secs(180),
        }
    }
}

/// How long a decrypted seed is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// Questions to the plugin that may wait.
const QUEUE: usize = 256;

/// A seed as the plugin has encrypted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Source {
    pub ciphertext: Vec<u8>,
    pub key_id: String,
    pub annotations: BTreeMap<String, Vec<u8>>,
}

/// A seed to write with.
pub(super) struct Seed {
    pub plain: [u8; 32],
    pub source: Source,
    /// When the plugin last said that its key is the current one.
    seen: Mutex<Instant>,
}

type Answer = Result<Vec<u8>, String>;

/// Decrypt this, and tell there.
struct Job(Source, mpsc::SyncSender<Answer>);

struct State {
    name: String,
    metrics: Arc<EncryptionMetrics>,
    pace: Pace,
    socket: String,
    timeout: Duration,
    seed: ArcSwapOption<Seed>,
    known: Mutex<HashMap<Source, (Vec<u8>, Instant)>>,
    health: Mutex<Result<(), String>>,
    version: Mutex<Option<String>>,
}

/// A plugin in use. Its thread ends when it is dropped.
pub(super) struct Plugin {
    name: String,
    jobs: jobs::Sender<Job>,
    state: Arc<State>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What may be told of a key id.
pub(super) fn hash(key_id: &str) -> String {
    if key_id.is_empty() {
        return String::new();
    }
    format!("sha256:{}", hex(digest(&SHA256, key_id.as_bytes()).as_ref()))
}

impl State {
    /// Keeps a decrypted seed or key for values that come.
    fn remember(&self, source: &Source, plain: Vec<u8>) {
        let mut known = lock(&self.known);
        known.retain(|_, (_, since)| since.elapsed() < REMEMBERED);
        known.insert(source.clone(), (plain, Instant::now()));
        self.metrics.remembers(&self.name, known.len());
    }

    async fn call(&self, method: &str, message: &[u8]) -> Result<Bytes, String> {
        let since = Instant::now();
        let answer = grpc::call(&self.socket, method, message, self.timeout).await;
        let error = answer.as_ref().err().map(String::as_str);
        let method = format!("/v2.KeyManagementService/{method}");
        self.metrics.called(&self.name, &method, since.elapsed(), error);
        answer
    }
}

impl Plugin {
    /// Starts talking to the plugin, and waits for its first status, good or bad.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(
        name: &str,
        socket: &str,
        timeout: Duration,
        metrics: Arc<EncryptionMetrics>,
        pace: Pace,
    ) -> Result<Arc<Self>, String> {
        let (jobs, queue) = jobs::channel(QUEUE);
        let state = Arc::new(State {
            name: name.to_owned(),
            metrics,
            pace,
            socket: socket.to_owned(),
            timeout,
            seed: ArcSwapOption::empty(),
            known: Mutex::default(),
            health: Mutex::new(Err("it has not answered yet".to_owned())),
            version: Mutex::default(),
        });
        let (first, wait) = mpsc::sync_channel(1);
        let (own, of) = (state.clone(), name.to_owned());
        let thread = std::thread::Builder::new().name("kms".to_owned()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime.block_on(run(&of, &own, queue, first)),
                Err(e) => *lock(&own.health) = Err(format!("no runtime: {e}")),
            }
        });
        thread.map_err(|e| format!("kms provider {name}: {e}"))?;
        // An error is a thread that has ended; health says why.
        let _ = wait.recv();
        Ok(Arc::new(Self {
            name: name.to_owned(),
            jobs,
            state,
        }))
    }

    /// What counts its work.
    pub(super) fn metrics(&self) -> &EncryptionMetrics {
        &self.state.metrics
    }

    /// Its name in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it works, as of the last status.
    ///
    /// # Errors
    /// Why not.
    pub fn health(&self) -> Result<(), String> {
        let health = lock(&self.state.health).clone();
        health.map_err(|e| format!("kmsv2 Provider {} is not healthy, error: {e}", self.name))
    }

    /// The seed to write with.
    pub(super) fn seed(&self) -> Result<Arc<Seed>, String> {
        let seed = self.state.seed.load_full();
        let seed = seed.ok_or_else(|| format!("kmsv2 Provider {}: there is no key to encrypt with yet", self.name))?;
        if lock(&seed.seen).elapsed() > self.state.pace.writes {
            return Err(format!(
                "encryptedDEKSource with keyID hash {:?} expired: the plugin has not said for {} s that the key is current",
                hash(&seed.source.key_id),
                self.state.pace.writes.as_secs()
            ));
        }
        Ok(seed)
    }

    /// True where another key is current.
    pub(super) fn is_stale(&self, source: &Source) -> bool {
        let seed = self.state.seed.load();
        seed.as_ref().is_some_and(|s| s.source.key_id != source.key_id)
    }

    /// The seed or key a value was written with. Waits for the plugin where it was not seen before.
    pub(super) fn decrypt(&self, source: &Source) -> Answer {
        if let Some(seed) = &*self.state.seed.load()
            && seed.source == *source
        {
            return Ok(seed.plain.to_vec());
        }
        if let Some((plain, since)) = lock(&self.state.known).get(source)
            && since.elapsed() < REMEMBERED
        {
            return Ok(plain.clone());
        }
        self.state.metrics.missed();
        let plain = without_reactor(|| {
            let (to, answer) = mpsc::sync_channel(1);
            let gone = |_| "the plugin's thread has ended".to_owned();
            self.jobs
                .try_send(Job(source.clone(), to))
                .map_err(|_| "too many questions wait for the plugin".to_owned())?;
            answer.recv().map_err(gone)?
        })?;
        self.state.remember(source, plain.clone());
        Ok(plain)
    }
}

/// Lets other tasks of this thread go on elsewhere while it waits.
fn without_reactor<T>(wait: impl FnOnce() -> T) -> T {
    let flavor = tokio::runtime::Handle::try_current().map(|h| h.runtime_flavor());
    match flavor {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

async fn run(name: &str, state: &State, mut queue: jobs::Receiver<Job>, first: mpsc::SyncSender<()>) {
    let mut first = Some(first);
    loop {
        let outcome = check(state).await;
        if let Err(why) = &outcome {
            tracing::debug!(plugin = name, why, "a KMS plugin is not healthy");
        }
        let pause = match outcome {
            Ok(()) => state.pace.good,
            Err(_) => state.pace.bad,
        };
        *lock(&state.health) = outcome;
        if let Some(first) = first.take() {
            // The starter waits for it.
            let _ = first.send(());
        }
        let next = tokio::time::Instant::now() + pause;
        loop {
            // Questions first: somebody waits for them.
            tokio::select! {
                biased;
                job = queue.recv() => match job {
                    Some(Job(source, to)) => {
                        // Nobody may be waiting any more.
                        let _ = to.send(decrypt(state, &source).await);
                    }
                    None => return,
                },
                () = tokio::time::sleep_until(next) => break,
            }
        }
    }
}

/// Asks for the status, and makes a seed for a key that is new.
async fn check(state: &State) -> Result<(), String> {
    let failed = |e| {
        format!(
            "failed to perform status section of the healthz check for KMS Provider {}, error: {e}",
            state.name
        )
    };
    let answer = state.call("Status", &[]).await;
    let answer = answer.map_err(failed)?;
    let [mut version, mut healthz, mut key_id] = [const { String::new() }; 3];
    let mut fields = Reader::new(&answer);
    while let Some((number, payload)) = fields.next().map_err(|e| e.to_string())? {
        let Payload::Bytes(b) = payload else { continue };
        let text = String::from_utf8_lossy(b).into_owned();
        match number {
            1 => version = text,
            2 => healthz = text,
            3 => key_id = text,
            _ => {}
        }
    }
    if healthz != "ok" {
        return Err(format!("got unexpected healthz status: {healthz}"));
    }
    if version != "v2" && version != "v2beta1" {
        return Err(format!("expected KMSv2 API version v2, got {version}"));
    }
    {
        let mut known = lock(&state.version);
        match &*known {
            Some(before) if *before != version => {
                return Err(format!(
                    "KMSv2 API version should not change after the initial status response version {before}, got {version}"
                ));
            }
            _ => *known = Some(version),
        }
    }
    if let Err(e) = check_key_id(&key_id) {
        let kind = if key_id.is_empty() { "empty" } else { "too_long" };
        state.metrics.invalid(&state.name, kind);
        return Err(format!("got invalid KMSv2 KeyID hash {:?}: {e}", hash(&key_id)));
    }
    state.metrics.current(&state.name, &hash(&key_id));
    if let Some(seed) = &*state.seed.load()
        && seed.source.key_id == key_id
    {
        *lock(&seed.seen) = Instant::now();
        return Ok(());
    }
    let uid = uuid::Uuid::new_v4().to_string();
    let since = Instant::now();
    let rotated = encrypt(state, &uid).await;
    state
        .metrics
        .key_made(since.elapsed(), rotated.as_ref().err().map(String::as_str));
    let seed = rotated.map_err(|e| format!("failed to rotate DEK uid={uid:?}: {e}"))?;
    // Remembered first: a read in between finds it in one place or the other.
    if let Some(before) = &*state.seed.load() {
        state.remember(&before.source, before.plain.to_vec());
    }
    state.seed.store(Some(Arc::new(seed)));
    Ok(())
}

async fn encrypt(state: &State, uid: &str) -> Result<Seed, String> {
    let plain: [u8; 32] = random()?;
    let mut request = Vec::new();
    put_bytes(&mut request, 1, &plain);
    put_bytes(&mut request, 2, uid.as_bytes());
    let answer = state.call("Encrypt", &request).await?;
    let mut source = Source::default();
    let mut fields = Reader::new(&answer);
    while let Some((number, payload)) = fields.next().map_err(|e| e.to_string())? {
        match (number, payload) {
            (1, Payload::Bytes(b)) => source.ciphertext = b.to_vec(),
            (2, Payload::Bytes(b)) => source.key_id = String::from_utf8_lossy(b).into_owned(),
            (3, Payload::Bytes(b)) => source.annotations.extend([annotation(b)?]),
            _ => {}
        }
    }
    source.check()?;
    Ok(Seed {
        plain,
        source,
        seen: Mutex::new(Instant::now()),
    })
}

async fn decrypt(state: &State, source: &Source) -> Answer {
    let mut request = Vec::new();
    put_bytes(&mut request, 1, &source.ciphertext);
    put_bytes(&mut request, 2, uuid::Uuid::new_v4().to_string().as_bytes());
    put_bytes(&mut request, 3, source.key_id.as_bytes());
    put_annotations(&mut request, 4, &source.annotations);
    let answer = state.call("Decrypt", &request).await?;
    let mut plain = Vec::new();
    let mut fields = Reader::new(&answer);
    while let Some((number, payload)) = fields.next().map_err(|e| e.to_string())? {
        if let (1, Payload::Bytes(b)) = (number, payload) {
            plain = b.to_vec();
        }
    }
    match plain.len() {
        16 | 24 | 32 => Ok(plain),
        n => Err(format!("the plugin gave {n} bytes for a key")),
    }
}
