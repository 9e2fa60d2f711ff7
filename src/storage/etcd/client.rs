//! [`Members`]: the members of a cluster, with failover. Calls go to one member until it fails to answer,
//! then to the next. Every call made through this module must be safe to repeat.

use super::error::{ConnectError, Failure};
use crate::storage::Revision;
use crate::x509::pem;
use etcd_client::{
    Certificate, Client, ConnectOptions, GetOptions, GetResponse, Identity, KvClient, TlsOptions, WatchClient,
};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;

/// Time limits of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Limit of a single attempt.
    pub attempt: Duration,
    /// Limit of the call including all attempts.
    pub total: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            attempt: Duration::from_secs(5),
            total: Duration::from_secs(10),
        }
    }
}

/// Time limit for establishing a TCP connection with its TLS handshake.
const CONNECT: Duration = Duration::from_secs(3);
/// Maximum number of connections for watches; each is opened when first needed.
const WATCH_CONNECTIONS: usize = 64;
/// Watches per connection before the next connection is used.
const WATCHES: usize = 48;
/// HTTP/2 keepalive pings: interval and timeout, as upstream.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// Addresses and credentials of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// `http://` or `https://` URLs of the members.
    pub servers: Vec<String>,
    /// PEM bundle of CA certificates; `None` uses the system's roots.
    pub ca: Option<Vec<u8>>,
    /// PEM client certificate and key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// User name and password, if the cluster uses password authentication.
    pub user: Option<(String, String)>,
}

struct Member {
    url: String,
    requests: OnceCell<Client>,
    /// Connections only for watches, so that a long response does not delay events. Several, because a server
    /// that sets no limit itself gets at most 100 concurrent streams per connection, and a further watch
    /// would never open.
    // Lazily connected: with few resources most of them never open.
    watches: [OnceCell<Client>; WATCH_CONNECTIONS],
}

pub(super) struct Members {
    members: Vec<Member>,
    options: ConnectOptions,
    /// Index of the member that receives calls and watches.
    active: watch::Sender<usize>,
    /// The newest revision seen in any response.
    seen: AtomicU64,
}

impl Members {
    /// Validates the addresses; does not connect.
    pub(crate) fn new(access: &Access) -> Result<Self, ConnectError> {
        // The library would otherwise accept a member that is partitioned from its quorum; with a leader
        // required it fails and the call moves on.
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_keep_alive(KEEP_ALIVE.0, KEEP_ALIVE.1)
            .with_require_leader(true)
            // The tokens of etcd's own authentication expire within minutes.
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &access.user {
            options = options.with_user(name, password);
        }
        if access.servers.is_empty() {
            return Err(ConnectError::Address("no server is given".to_owned()));
        }
        let secure = access.servers.iter().filter(|s| s.starts_with("https://")).count();
        if secure > 0 {
            // One set of TLS options serves all members.
            if secure < access.servers.len() {
                return Err(ConnectError::Address(
                    "either all servers must use https or none of them".to_owned(),
                ));
            }
            options = options.with_tls(tls(access));
        }
        for url in &access.servers {
            let parsed = url.parse::<http::Uri>();
            let why = match &parsed {
                Ok(uri) if uri.host().is_some_and(|h| !h.is_empty()) => continue,
                Ok(_) => "it has no host".to_owned(),
                Err(e) => e.to_string(),
            };
            return Err(ConnectError::Address(format!("{url}: {why}")));
        }
        // A trailing slash would become part of every request path.
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

    /// Returns the newest revision seen in any response.
    pub(crate) fn seen(&self) -> Revision {
        Revision(self.seen.load(Ordering::Acquire))
    }

    /// Records and returns the revision of a response.
    pub(crate) fn saw(&self, header: Option<&etcd_client::ResponseHeader>) -> Revision {
        let revision = header.map_or(0, |h| h.revision().cast_unsigned());
        // `fetch_max`: responses arrive out of order, and the revision announced to readers must not go back.
        self.seen.fetch_max(revision, Ordering::AcqRel);
        Revision(revision)
    }

    pub(crate) fn urls(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|m| &*m.url)
    }

    /// Returns the client of one member, by its index in [`urls`](Self::urls).
    pub(crate) async fn member(&self, index: usize) -> Result<Client, Failure> {
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

    /// Index of the member that receives calls.
    pub(crate) fn active(&self) -> usize {
        *self.active.borrow()
    }

    /// Directs calls to this member.
    pub(crate) fn prefer(&self, index: usize) {
        self.active
            // Without a change nobody is notified, so open watches are not reopened.
            .send_if_modified(|active| std::mem::replace(active, index) != index);
    }

    /// Fails over from a member to the next, unless another caller already has.
    pub(crate) fn leave(&self, index: usize) {
        let next = (index + 1) % self.members.len();
        // Compared under the channel's lock: of many concurrent failures at one member only the first moves
        // on, or calls would rotate through all members at once.
        self.active.send_if_modified(|active| {
            let here = *active == index && next != index;
            if here {
                *active = next;
            }
            here
        });
    }

    /// Returns once calls go to a member other than this one. Cancel safe.
    pub(crate) async fn left(&self, index: usize) {
        let mut active = self.active.subscribe();
        if active.wait_for(|active| *active != index).await.is_err() {
            // `self` owns the sender, so the channel cannot be closed.
            std::future::pending::<()>().await;
        }
    }

    /// Returns a client for one watch and the index of its member. `number` is the resource's sequence
    /// number, which determines the connection.
    pub(crate) async fn watch_client(&self, number: usize) -> (usize, Result<WatchClient, Failure>) {
        let index = self.active();
        let member = &self.members[index];
        // By sequence number and not at random, so a reopened watch uses the same connection.
        let connection = &member.watches[(number / WATCHES) % WATCH_CONNECTIONS];
        let made = connection.get_or_try_init(|| self.connect(member)).await;
        // The library's 4 MiB limit is below what a single page of large objects takes.
        let client = made.map(|c| c.watch_client().max_decoding_message_size(usize::MAX));
        (index, client)
    }

    /// Makes a single attempt at one member.
    pub(crate) async fn attempt<T, A>(
        &self,
        index: usize,
        within: Duration,
        ask: impl FnOnce(Client) -> A,
    ) -> Result<T, Failure>
    where
        A: Future<Output = Result<T, etcd_client::Error>>,
    {
        // Connecting counts towards the limit: a member that accepts no connection must not use up the whole
        // call.
        let requested = async { ask(self.member(index).await?).await.map_err(Failure::Client) };
        let answer = tokio::time::timeout(within, requested).await;
        answer.unwrap_or(Err(Failure::TimedOut))
    }

    /// Calls until a member answers; gives up after [`Limits::total`]. `ask` may be called more than once.
    ///
    /// # Errors
    /// The failure of the last attempt.
    pub(crate) async fn call<T, A>(&self, ask: impl FnMut(Client) -> A) -> Result<T, Failure>
    where
        A: Future<Output = Result<T, etcd_client::Error>>,
    {
        self.call_within(Limits::default(), ask).await
    }

    /// As [`call`](Self::call), with the given limits.
    pub(crate) async fn call_within<T, A>(&self, limits: Limits, mut ask: impl FnMut(Client) -> A) -> Result<T, Failure>
    where
        A: Future<Output = Result<T, etcd_client::Error>>,
    {
        let give_up = Instant::now() + limits.total;
        let mut tries = 0;
        loop {
            let index = self.active();
            // The last attempt is cut to what is left of the total.
            let within = limits.attempt.min(give_up - Instant::now());
            let outcome = self.attempt(index, within, &mut ask).await;
            tries += 1;
            match outcome {
                Err(e) if e.is_transient() => {
                    tracing::debug!(member = %self.members[index].url, error = %e, "etcd did not answer, retrying");
                    self.leave(index);
                    if Instant::now() >= give_up {
                        return Err(e);
                    }
                    // Pause only after every member has failed once.
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

    /// Reads a range of keys.
    pub(crate) async fn range(&self, key: impl AsRef<[u8]>, options: GetOptions) -> Result<GetResponse, Failure> {
        self.range_within(Limits::default(), key, options).await
    }

    /// As [`range`](Self::range), with the given limits.
    pub(crate) async fn range_within(
        &self,
        limits: Limits,
        key: impl AsRef<[u8]>,
        options: GetOptions,
    ) -> Result<GetResponse, Failure> {
        let answer = self
            .call_within(limits, |client| {
                let (key, options) = (key.as_ref().to_vec(), options.clone());
                async move { kv(&client).get(key, Some(options)).await }
            })
            .await?;
        self.saw(answer.header());
        Ok(answer)
    }

    /// Queries the version of every member; `None` for those that do not answer.
    pub(crate) async fn versions(&self) -> Vec<Option<String>> {
        let ask = |index| async move {
            let mut client = self.member(index).await.ok()?;
            let status = tokio::time::timeout(CONNECT, client.status()).await.ok()?.ok()?;
            Some(status.version().to_owned())
        };
        futures_util::future::join_all((0..self.members.len()).map(ask)).await
    }
}

/// Returns a key-value client without a limit on response size.
pub(super) fn kv(client: &Client) -> KvClient {
    // As for watches: a page of large objects is beyond the library's limit.
    client.kv_client().max_decoding_message_size(usize::MAX)
}

fn tls(access: &Access) -> TlsOptions {
    let mut tls = TlsOptions::new();
    match &access.ca {
        Some(bundle) => tls = tls.ca_certificate(Certificate::from_pem(bundle)),
        None => {
            for der in rustls_native_certs::load_native_certs().certs {
                // The library takes PEM only.
                tls = tls.ca_certificate(Certificate::from_pem(pem::encode(pem::CERTIFICATE, &der)));
            }
        }
    }
    if let Some((certificate, key)) = &access.identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    tls
}
