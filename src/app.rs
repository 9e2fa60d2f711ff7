//! The composition root, the only module that may import all others. `compose` builds a gateway; this file
//! has the running one, and its shutdown.
//!
//! [`start`] returns a running [`Gateway`]; [`run`] also handles termination signals; [`Gateway::builder`] is
//! for programs that add to it. Public async functions return boxed futures; otherwise each binary would
//! compile the whole future again.

mod access;
mod admission;
mod audit;
mod authentication;
mod builder;
mod components;
mod compose;
mod controllers;
pub(crate) mod credentials;
pub(crate) mod dev;
pub(crate) mod doctor;
mod enablement;
mod error;
mod flows;
mod hooks;
mod identity_providers;
mod kubelets;
mod metrics;
mod port;
mod servers;
mod service_accounts;
mod service_manager;
mod shared_trust;
mod store;
mod token_objects;
pub(crate) mod tool;
mod trust;
mod webhooks;

pub use builder::GatewayBuilder;
pub use error::Error;

use crate::audit::Audit;
use crate::cli::CompletedOptions;
use crate::request::Handler;
use crate::sdk::ApiGroup;
use crate::server::GatewayService;
use crate::server::lifecycle::{HookError, Lifecycle, PreShutdownHook, ShutdownTimeouts};
use crate::serving::Drained;
use crate::tasks::TaskGroup;
use compose::build;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use port::OpenPort;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use store::Stores;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// Time for the gateway's own tasks to end after the last connection is closed.
const TASKS_GRACE: Duration = Duration::from_secs(5);
/// Time for the audit backends to store buffered events.
const AUDIT_GRACE: Duration = Duration::from_secs(10);

/// A running gateway.
///
/// In a test, a gateway on a free port with a directory of its own:
///
/// ```no_run
/// use torana::gateway::{Command, Gateway, parse, start};
/// use torana::json;
/// use torana::sdk::client::{Client, ClientConfig};
///
/// # async fn test() -> Result<(), Box<dyn std::error::Error>> {
/// let dir = tempfile::tempdir()?;
/// let data = format!("--data-dir={}", dir.path().display());
/// let words = ["test", "serve", "--secure-port=0", "--bind-address=127.0.0.1", &data];
/// let Command::Serve(options) = parse(words.map(Into::into))? else {
///     return Err("these are flags of `torana serve`".into());
/// };
/// let gateway: Gateway = start(options.complete()?).await?;
///
/// let client = Client::try_new(&ClientConfig::from_kubeconfig(gateway.kubeconfig())?)?;
/// while client.get("/readyz").await.is_err() {
///     tokio::time::sleep(std::time::Duration::from_millis(10)).await;
/// }
/// let made = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
/// client.create("/api/v1/namespaces/default/configmaps", &made).await?;
/// assert!(gateway.shut_down().await);
/// # Ok(())
/// # }
/// ```
pub struct Gateway {
    address: SocketAddr,
    url: String,
    kubeconfig: PathBuf,
    lifecycle: Lifecycle,
    hooks: Vec<PreShutdownHook>,
    times: ShutdownTimeouts,
    tasks: TaskGroup,
    stores: Arc<Stores>,
    audit: Option<Arc<Audit>>,
    port: OpenPort,
    handler: Arc<dyn Handler>,
    fatal: mpsc::Receiver<HookError>,
}

/// Starts a gateway. It accepts connections when this returns; `/readyz` passes once its post-start hooks
/// have finished. Needs a multi-threaded tokio runtime.
///
/// # Errors
/// The data directory, the port or a file cannot be used.
pub fn start(options: CompletedOptions) -> BoxFuture<'static, Result<Gateway, Error>> {
    start_with(options, Vec::new())
}

/// Like [`start`], with additional API groups. They are stored, admitted, authorized, discovered and
/// registered like the built-in ones.
///
/// ```no_run
/// use torana::gateway::{CompletedOptions, Error, start_with};
/// use torana::json;
/// use torana::sdk::{ApiGroup, Kind};
///
/// # async fn serve(options: CompletedOptions) -> Result<(), Error> {
/// let note = Kind::namespaced("Note", "notes", json!({"type": "object"})).short_name("nt");
/// let gateway = start_with(options, vec![ApiGroup::new("notes.example.com", "v1", [note])]).await?;
/// println!("serving on {}", gateway.url());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`start`], and if a group's name is invalid or taken, or a schema is invalid.
pub fn start_with(options: CompletedOptions, own: Vec<ApiGroup>) -> BoxFuture<'static, Result<Gateway, Error>> {
    own.into_iter()
        .fold(Gateway::builder(options), GatewayBuilder::group)
        .start()
}

impl Gateway {
    /// A builder of a gateway that serves more than the built-in groups, or has layers around it.
    pub fn builder(options: CompletedOptions) -> GatewayBuilder {
        GatewayBuilder::new(options)
    }

    /// The address that the port is bound to. Its port number is the actual one if the options ask for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The URL for clients on this machine.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The filter chain with the layers around it as a `tower::Service`, for in-process requests. They are
    /// authenticated and authorized like requests to the port, but need no connection and no TLS.
    ///
    /// ```no_run
    /// use bytes::Bytes;
    /// use http_body_util::Full;
    /// use torana::gateway::Gateway;
    /// use tower::ServiceExt as _;
    ///
    /// # async fn ask(gateway: Gateway) -> Result<(), Box<dyn std::error::Error>> {
    /// let request = http::Request::get("/version").body(Full::<Bytes>::default())?;
    /// let response = gateway.service().oneshot(request).await?;
    /// assert_eq!(response.status(), 200);
    /// # Ok(())
    /// # }
    /// ```
    pub fn service(&self) -> GatewayService {
        GatewayService::new(self.handler.clone())
    }

    /// The path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// Waits for a fatal error, for example of a post-start hook.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn failed(&mut self) -> Error {
        match self.fatal.recv().await {
            Some(error) => Error::Fatal(error.into()),
            // The sender is gone: all hooks have ended, so none can fail any more.
            None => std::future::pending().await,
        }
    }

    /// Shuts down in order: `/readyz` fails, new requests are rejected, requests in flight finish, watches
    /// end, the store is flushed. Returns false if requests had to be cut.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, connections are cut, and the store is closed without
    /// waiting for them.
    pub fn shut_down(self) -> BoxFuture<'static, bool> {
        self.shut_down_inner().boxed()
    }

    async fn shut_down_inner(self) -> bool {
        let Self {
            lifecycle,
            hooks,
            times,
            tasks,
            stores,
            audit,
            port,
            ..
        } = self;
        let server = port.server;
        let stopping = &server;
        let stop = || stopping.stop_accepting();
        // From the outside in: requests, connections, tasks, audit, store. Each stage may still need the next
        // one.
        let drained = lifecycle.shut_down(times, hooks, stop, || async {}).await;
        // Requests have had their time; what is left are idle connections and stragglers.
        let closed = server.drain(Duration::from_secs(2)).await;
        // Before audit: tasks such as control loops send requests, which are audited.
        if let Err(late) = tasks.shutdown(tokio::time::Instant::now() + TASKS_GRACE).await {
            tracing::warn!(tasks = ?late.0, "tasks did not end in time");
        }
        if let Some(audit) = audit {
            audit.shut_down(tokio::time::Instant::now() + AUDIT_GRACE).await;
        }
        // Last, and off the reactor: it waits for the disk.
        let flushed = tokio::task::spawn_blocking(move || stores.shutdown()).await;
        if let Err(e) = flushed {
            tracing::error!("closing the store failed: {e}");
        }
        drained && closed == Drained::Clean
    }
}

/// Serves until a termination signal or a fatal error, then shuts down in order. A second signal ends the
/// process immediately.
///
/// # Errors
/// As [`start_with`]; the fatal error; a second signal.
pub fn run(options: CompletedOptions) -> BoxFuture<'static, Result<(), Error>> {
    run_with(options, Vec::new())
}

/// Like [`run`], with additional API groups ([`start_with`]).
///
/// ```no_run
/// use torana::gateway::{CompletedOptions, Error, run_with};
/// use torana::json;
/// use torana::sdk::{ApiGroup, Kind};
///
/// # async fn serve(options: CompletedOptions) -> Result<(), Error> {
/// let note = Kind::namespaced("Note", "notes", json!({"type": "object"}));
/// run_with(options, vec![ApiGroup::new("notes.example.com", "v1", [note])]).await
/// # }
/// ```
///
/// # Errors
/// As [`run`].
pub fn run_with(options: CompletedOptions, own: Vec<ApiGroup>) -> BoxFuture<'static, Result<(), Error>> {
    own.into_iter()
        .fold(Gateway::builder(options), GatewayBuilder::group)
        .run()
}

impl GatewayBuilder {
    /// Starts the gateway, as [`start`] does.
    ///
    /// # Errors
    /// As [`start_with`].
    pub fn start(self) -> BoxFuture<'static, Result<Gateway, Error>> {
        build(self).boxed()
    }

    /// Serves until a termination signal or a fatal error, as [`run`] does.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(self) -> BoxFuture<'static, Result<(), Error>> {
        run_until_signalled(self).boxed()
    }
}

async fn run_until_signalled(builder: GatewayBuilder) -> Result<(), Error> {
    let gateway = build(builder).await?;
    serve_until_signalled(gateway, Signals::catch()?, std::future::pending()).await
}

/// Serves until a termination signal or a fatal error, then shuts down in order. `beside` runs meanwhile and
/// never ends.
async fn serve_until_signalled(
    mut gateway: Gateway,
    mut signals: Signals,
    beside: impl Future<Output = ()>,
) -> Result<(), Error> {
    // The order does not matter: each event leads to the same shutdown, and a signal that loses is not needed
    // any more.
    let failure = tokio::select! {
        _ = signals.next() => None,
        error = gateway.failed() => Some(error),
        () = beside => None,
    };
    tracing::info!("shutting down");
    tokio::select! {
        _ = gateway.shut_down() => {}
        // Whoever signals twice does not want to wait for the drain.
        _ = signals.next() => return Err(Error::SecondSignal),
    }
    failure.map_or(Ok(()), Err)
}

/// The signals that end the process in order, as a stream without end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on the signals no longer kill the process.
    fn catch() -> Result<Self, Error> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(Error::Signals)?,
            interrupt: signal(SignalKind::interrupt()).map_err(Error::Signals)?,
        })
    }
}

impl Stream for Signals {
    type Item = ();

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        let this = self.get_mut();
        // A pending one registers the task, so both must be polled before this may be pending.
        match this.terminate.poll_recv(cx) {
            Poll::Pending => this.interrupt.poll_recv(cx),
            caught => caught,
        }
    }
}
