//! One API server: a container, a mux, health checks and hooks, and the delegate behind it (upstream's
//! `k8s.io/apiserver/pkg/server/genericapiserver.go`).
//!
//! [`GenericServer`] is the builder. It ends as the delegate of another server
//! ([`GenericServer::into_delegate`]) or as the head of the chain ([`GenericServer::prepare`], which returns
//! [`Prepared`]).

use super::chain::{self, ChainConfig};
use super::container::Container;
use super::delegate::{Contributions, DelegationTarget};
use super::director::Director;
use super::health::{self, HealthCheck};
use super::lifecycle::{HookContext, HookError, Lifecycle, PostStartHook, PreShutdownHook, readiness};
use super::mux::{DynHandler, PathRecorderMux, Registration};
use super::routes;
use crate::request::Handler;
use crate::request::body::BoxError;
use crate::sync::Mutex;
use crate::tasks::{Signal, TaskGroup};
use crate::telemetry::Telemetry;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A server under construction.
pub(crate) struct GenericServer {
    name: &'static str,
    container: Arc<Container>,
    mux: Arc<PathRecorderMux>,
    director: DynHandler,
    delegate: Arc<dyn DelegationTarget>,
    own: Contributions,
}

impl GenericServer {
    /// A server in front of `delegate`, which handles every path that this server does not.
    pub(crate) fn new(name: &'static str, delegate: Arc<dyn DelegationTarget>) -> Self {
        let container = Arc::new(Container::new());
        let mux = Arc::new(PathRecorderMux::new());
        // This is the delegation: what neither the container nor the mux has goes to the next server.
        mux.set_not_found(delegate.unprotected_handler());
        Self {
            name,
            director: Arc::new(Director::new(container.clone(), mux.clone())),
            container,
            mux,
            delegate,
            own: Contributions::default(),
        }
    }

    /// The web services. They can still be changed while the server runs.
    pub(crate) fn container(&self) -> &Arc<Container> {
        &self.container
    }

    /// The paths outside of web services. They can still be changed while the server runs.
    pub(crate) fn mux(&self) -> &Arc<PathRecorderMux> {
        &self.mux
    }

    /// The next server in the delegation.
    pub(crate) fn delegate(&self) -> &Arc<dyn DelegationTarget> {
        &self.delegate
    }

    pub(crate) fn add_health_check(&mut self, check: HealthCheck) {
        self.own.health_checks.push(check);
    }

    /// Adds a hook to run once the gateway serves. The check `poststarthook/<name>` fails until the hook
    /// returns; an error ends the process.
    pub(crate) fn add_post_start_hook<F>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(HookContext) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.own.post_start_hooks.push(PostStartHook::new(name, run));
    }

    /// Adds a signal to wait for before the set of paths is complete. Until it fires, unknown paths get 503
    /// instead of 404.
    pub(crate) fn add_paths_complete_signal(&mut self, name: &'static str) -> Signal {
        let signal = Signal::new(name);
        self.own.paths_complete.push(signal.clone());
        signal
    }

    /// Returns the paths of this server and its delegates at each call.
    pub(crate) fn listed_paths(&self) -> impl Fn() -> Vec<String> + Send + Sync + 'static {
        let paths = Paths {
            container: self.container.clone(),
            mux: self.mux.clone(),
            delegate: self.delegate.clone(),
        };
        move || paths.all()
    }

    /// Finishes the server as a delegate of another one.
    pub(crate) fn into_delegate(self) -> Arc<dyn DelegationTarget> {
        Arc::new(Delegate {
            paths: Paths {
                container: self.container,
                mux: self.mux,
                delegate: self.delegate.clone(),
            },
            director: self.director,
            delegate: self.delegate,
            // In an option because hooks can run only once: the head of the chain takes them.
            own: Mutex::new(Some(self.own)),
        })
    }

    /// Finishes the server as the head of the delegation: installs the index, version, health and metrics,
    /// and puts the filter chain in front.
    pub(crate) fn prepare(self, config: ChainConfig, livez_grace: Duration) -> Prepared {
        let paths = self.listed_paths();
        let mut all = Contributions {
            health_checks: vec![HealthCheck::ping(), routes::log_check(), routes::loopback_check()],
            ..Contributions::default()
        };
        let mut delegates = self.delegate.take_contributions();
        let mut own = self.own;
        // Checks are listed in this order: delegates first, then own, then post-start hooks, then shutdown.
        all.health_checks.append(&mut delegates.health_checks);
        all.health_checks.append(&mut own.health_checks);
        all.append(delegates);
        all.append(own);
        let hooks = all.post_start_hooks.iter().map(PostStartHook::check);
        all.health_checks.extend(hooks);
        let lifecycle = config.lifecycle.clone();
        let telemetry = config.telemetry.clone();
        let counters = telemetry.clone();
        all.health_checks.push(lifecycle.shutdown_check());

        self.container.replace(routes::version());
        let grace_until = (!livez_grace.is_zero()).then(|| Instant::now() + livez_grace);
        let mut installed = health::routes(&all.health_checks, &telemetry, grace_until);
        installed.push(Registration::exact(
            "/metrics",
            true,
            routes::metrics(telemetry.clone()),
        ));
        installed.push(Registration::exact("/metrics/slis", true, routes::slis(telemetry)));
        if let Some(thread) = &config.reserved {
            // Only health and metrics: everything else belongs on the runtime, whose threads it may use up.
            for registration in &mut installed {
                registration.handler = thread.wrap(registration.handler.clone());
            }
        }
        // Not on the reserved thread, which is for probes only.
        let index = routes::index(paths);
        installed.push(Registration::exact("/", false, index.clone()));
        installed.push(Registration::exact("/index.html", false, index));
        // In one step: `/readyz` must not exist before the checks that it consists of.
        self.mux.change_all(installed, &[]);

        tracing::debug!(server = self.name, "prepared");
        let handler = chain::build(config, all.paths_complete, self.director);
        Prepared {
            handler,
            lifecycle,
            telemetry: counters,
            health_checks: all.health_checks.into(),
            post_start_hooks: all.post_start_hooks,
            pre_shutdown_hooks: all.pre_shutdown_hooks,
        }
    }
}

/// The head of the delegation, ready to serve.
pub(crate) struct Prepared {
    /// The handler chain, for the listener.
    pub handler: Arc<dyn Handler>,
    /// The signals of startup and shutdown.
    pub lifecycle: Lifecycle,
    /// The metrics that the filters and health checks count in.
    pub telemetry: Telemetry,
    /// The checks of the health endpoints, for callers in the process.
    pub health_checks: Arc<[HealthCheck]>,
    /// Run by [`Prepared::start_hooks`].
    pub post_start_hooks: Vec<PostStartHook>,
    /// Passed to [`Lifecycle::shut_down`].
    pub pre_shutdown_hooks: Vec<PreShutdownHook>,
}

impl Prepared {
    /// Starts all post-start hooks concurrently, and what fires `has_been_ready` after them. The first error
    /// goes to `fatal`; the process should then end.
    pub(crate) fn start_hooks(&mut self, tasks: &TaskGroup, fatal: &tokio::sync::mpsc::Sender<HookError>) {
        let done = self.post_start_hooks.iter().map(|hook| hook.done().clone()).collect();
        let ready = self.lifecycle.has_been_ready.clone();
        tasks.spawn_until_stopped("readiness", readiness::follow(done, self.health_checks.clone(), ready));
        for hook in self.post_start_hooks.drain(..) {
            let cx = HookContext { tasks: tasks.clone() };
            let fatal = fatal.clone();
            tasks.spawn(format!("poststarthook/{}", hook.name()), async move {
                if let Err(error) = hook.run(cx).await {
                    // If the queue is full it already holds an error.
                    let _ = fatal.try_send(error);
                }
            });
        }
    }
}

/// The listed paths of a server and its delegates.
struct Paths {
    container: Arc<Container>,
    mux: Arc<PathRecorderMux>,
    delegate: Arc<dyn DelegationTarget>,
}

impl Paths {
    fn all(&self) -> Vec<String> {
        let mut all = self.container.roots();
        all.append(&mut self.mux.listed_paths());
        all.append(&mut self.delegate.listed_paths());
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// A finished server that serves as a delegate.
struct Delegate {
    paths: Paths,
    director: DynHandler,
    delegate: Arc<dyn DelegationTarget>,
    own: Mutex<Option<Contributions>>,
}

impl DelegationTarget for Delegate {
    fn unprotected_handler(&self) -> DynHandler {
        self.director.clone()
    }

    fn listed_paths(&self) -> Vec<String> {
        self.paths.all()
    }

    fn take_contributions(&self) -> Contributions {
        let mut all = self.delegate.take_contributions();
        let own = self.own.lock().take();
        all.append(own.unwrap_or_default());
        all
    }
}
