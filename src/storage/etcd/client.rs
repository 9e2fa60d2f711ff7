//! The members of one cluster. Calls go to one member until it fails to answer, then to the next; every call made here
//! may be repeated without harm.

use super::error::{ConnectError, Failure};
use crate::storage::Revision;
use etcd_client::{
    Certificate, Client, ConnectOptions, GetOptions, GetResponse, Identity, KvClient, TlsOptions, WatchClient,
};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;

/// How long a call may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// A single attempt.
    pub attempt: Duration,
    /// The call with all its attempts.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            attempt: Duration::from_secs(5),
            patience: Duration::from_secs(10),
        }
    }
}

/// Time for a TCP connection and its handshake.
const CONNECT: Duration = Duration::from_secs(3);
/// Connections for watches, each used where there are so many of them that it is needed.
const WATCH_CONNECTIONS: usize = 64;
/// Watches on one connection, before those of the next round.
const WATCHES: usize = 48;
/// HTTP/2 pings of idle connections: how often, and how long the answer may take. Upstream's.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// How the cluster is reached.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// `http://` or `https://` URLs of its members.
    pub servers: Vec<String>,
    /// PEM bundle of the CA; `None`: the system's roots.
    pub ca: Option<Vec<u8>>,
    /// PEM certificate and key shown to the cluster.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// User and password, where the cluster has authentication by name.
    pub user: Option<(String, String)>,
}

struct Member {
    url: String,
    requests: OnceCell<Client>,
    /// Connections of their own: a long answer doesn't hold up events. More than one: without a word from the server, a
    /// connection takes a hundred streams, and a further watch would wait for ever.
    watches: [OnceCell<Client>; WATCH_CONNECTIONS],
}

pub(super) struct Members {
    members: Vec<Member>,
    options: ConnectOptions,
    /// The member calls go to, and watches with them.
    active: watch::Sender<usize>,
    /// The newest revision any answer has shown.
    seen: AtomicU64,
}

impl Members {
    /// Knows the members; connects to none.
    pub fn new(access: &Access) -> Result<Self, ConnectError> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_keep_alive(KEEP_ALIVE.0, KEEP_ALIVE.1)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &access.user {
            options = options.with_user(name, password);
        }
        if access.servers.is_empty() {
            return Err(ConnectError::Address("no server is named".to_owned()));
        }
        let secure = access.servers.iter().filter(|s| s.starts_with("https://")).count();
        if secure > 0 {
            if secure < access.servers.len() {
                return Err(ConnectError::Address(
                    "either all members are reached by https or none".to_owned(),
                ));
            }
            options = options.with_tls(tls(access));
        }
        for url in &access.servers {
            let parsed = url.parse::<http::Uri>();
            let why = match &parsed {
                Ok(uri) if uri.host().is_some_and(|h| !h.is_empty()) => continue,
                Ok(_) => "it names no host".to_owned(),
                Err(e) => e.to_string(),
            };
            return Err(ConnectError::Address(format!("{url}: {why}")));
        }
        let members = access.servers.iter().map(|url| Member {
            url: url.trim_end_matches('/').to_owned(),
            requests: OnceCell::new(),
            watches: std::array::from_fn(|_| OnceCell::new()),
        });
        Ok(Self {
            members: members.collect(),
            options,
            active: watch::Sender::new(0),
            seen: AtomicU64::new(0),
        })
    }

    /// The newest revision any answer has shown.
    pub fn seen(&self) -> Revision {
        Revision(self.seen.load(Ordering::Acquire))
    }

    /// Notes the revision of an answer.
    pub fn saw(&self, header: Option<&etcd_client::ResponseHeader>) -> Revision {
        let revision = header.map_or(0, |h| h.revision().cast_unsigned());
        self.seen.fetch_max(revision, Ordering::AcqRel);
        Revision(revision)
    }

    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|m| &*m.url)
    }

    /// The client of one member, by its place in [`urls`](Self::urls).
    pub async fn member(&self, index: usize) -> Result<Client, Failure> {
        let member = &self.members[index];
        let made = member.requests.get_or_try_init(|| self.connect(member)).await?;
        Ok(made.clone())
    }

    async fn connect(&self, member: &Member) -> Result<Client, Failure> {
        let connected = Client::connect([&member.url], Some(self.options.clone()));
        let client = tokio::time::timeout(Limits::default().attempt, connected)
            .await
            .map_err(|_| Failure::TimedOut)??;
        Ok(client)
    }

    /// The place of the member calls go to.
    pub fn active(&self) -> usize {
        *self.active.borrow()
    }

    /// Sends calls to this member from now on.
    pub fn prefer(&self, index: usize) {
        self.active
            .send_if_modified(|active| std::mem::replace(active, index) != index);
    }

    /// Leaves a member for the next one, unless somebody else has done so.
    pub fn leave(&self, index: usize) {
        let next = (index + 1) % self.members.len();
        self.active.send_if_modified(|active| {
            let here = *active == index && next != index;
            if here {
                *active = next;
            }
            here
        });
    }

    /// Returns once calls go to another member than this.
    pub async fn left(&self, index: usize) {
        let mut active = self.active.subscribe();
        if active.wait_for(|active| *active != index).await.is_err() {
            // The sender is this one's own.
            std::future::pending::<()>().await;
        }
    }

    /// A client for one watch, and the place of its member.
    /// `number`: that of the resource, which decides about the connection.
    pub async fn watch_client(&self, number: usize) -> (usize, Result<WatchClient, Failure>) {
        let index = self.active();
        let member = &self.members[index];
        let connection = &member.watches[(number / WATCHES) % WATCH_CONNECTIONS];
        let made = connection.get_or_try_init(|| self.connect(member)).await;
        let client = made.map(|c| c.watch_client().max_decoding_message_size(usize::MAX));
        (index, client)
    }

    /// Asks one member once.
    pub async fn attempt<T, A>(
        &self,
        index: usize,
        within: Duration,
        ask: impl FnOnce(Client) -> A,
    ) -> Result<T, Failure>
    where
        A: Future<Output = Result<T, etcd_client::Error>>,
    {
        let asked = async { ask(self.member(index).await?).await.map_err(Failure::Refused) };
        let answer = tokio::time::timeout(within, asked).await;
        answer.unwrap_or(Err(Failure::TimedOut))
    }

    /// Asks until somebody answers; gives up after some seconds. `ask` may be called more than once.
    ///
    /// # Errors
    /// What the last one asked has said.
    pub async fn call<T, A>(&self, ask: impl FnMut(Client) -> A) -> Result<T, Failure>
    where
        A: Future<Output = Result<T, etcd_client::Error>>,
    {
        self.call_within(Limits::default(), ask).await
    }

    /// The same, within limits.
    pub async fn call_within<T, A>(&self, limits: Limits, mut ask: impl FnMut(Client) -> A) -> Result<T, Failure>
    where
        A: Future<Output = Result<T, etcd_client::Error>>,
    {
        let give_up = Instant::now() + limits.patience;
        let mut tries = 0;
        loop {
            let index = self.active();
            let within = limits.attempt.min(give_up - Instant::now());
            let outcome = self.attempt(index, within, &mut ask).await;
            tries += 1;
            match outcome {
                Err(e) if e.is_passing() => {
                    tracing::debug!(member = %self.members[index].url, error = %e, "etcd did not answer, asking again");
                    self.leave(index);
                    if Instant::now() >= give_up {
                        return Err(e);
                    }
                    if tries >= self.members.len() {
                        let round = (tries / self.members.len()).min(10) as u32;
                        let pause = Instant::now() + Duration::from_millis(50) * round;
                        tokio::time::sleep_until(pause.min(give_up)).await;
                    }
                }
                done => return done,
            }
        }
    }

    /// Reads a range.
    pub async fn range(&self, key: &str, options: GetOptions) -> Result<GetResponse, Failure> {
        self.range_within(Limits::default(), key, options).await
    }

    /// The same, within limits.
    pub async fn range_within(&self, limits: Limits, key: &str, options: GetOptions) -> Result<GetResponse, Failure> {
        let answer = self
            .call_within(limits, |client| {
                let (key, options) = (key.to_owned(), options.clone());
                async move { kv(&client).get(key, Some(options)).await }
            })
            .await?;
        self.saw(answer.header());
        Ok(answer)
    }

    /// Asks every member for its version; `None` where one does not answer.
    pub async fn versions(&self) -> Vec<Option<String>> {
        let ask = |index| async move {
            let mut client = self.member(index).await.ok()?;
            let status = tokio::time::timeout(CONNECT, client.status()).await.ok()?.ok()?;
            Some(status.version().to_owned())
        };
        futures_util::future::join_all((0..self.members.len()).map(ask)).await
    }
}

/// The key-value client, for objects of any size the cluster takes.
pub(super) fn kv(client: &Client) -> KvClient {
    client.kv_client().max_decoding_message_size(usize::MAX)
}

fn tls(access: &Access) -> TlsOptions {
    let mut tls = TlsOptions::new();
    match &access.ca {
        Some(bundle) => tls = tls.ca_certificate(Certificate::from_pem(bundle)),
        None => {
            use base64::Engine as _;
            for der in rustls_native_certs::load_native_certs().certs {
                let text = base64::engine::general_purpose::STANDARD.encode(&der);
                let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
                tls = tls.ca_certificate(Certificate::from_pem(pem));
            }
        }
    }
    if let Some((certificate, key)) = &access.identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    tls
}
