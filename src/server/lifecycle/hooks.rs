//! Hooks that run once the server serves ([`PostStartHook`]) and when its shutdown begins
//! ([`PreShutdownHook`]).

use crate::request::body::BoxError;
use crate::server::health::{Endpoints, HealthCheck};
use crate::tasks::{Signal, TaskGroup};
use std::future::Future;
use std::pin::Pin;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The argument of a post-start hook.
#[derive(Clone, Debug)]
pub(crate) struct HookContext {
    /// Task group for tasks that outlive the hook.
    pub tasks: TaskGroup,
}

/// A hook that runs once the server serves. The health check `poststarthook/<name>` fails until it returns.
/// An error is fatal for the process.
pub(crate) struct PostStartHook {
    name: &'static str,
    done: Signal,
    run: Box<dyn FnOnce(HookContext) -> BoxFuture<Result<(), BoxError>> + Send + Sync>,
}

/// A post-start hook failed.
#[derive(Debug, thiserror::Error)]
#[error("post-start hook {name:?} failed: {source}")]
pub(crate) struct HookError {
    name: &'static str,
    source: BoxError,
}

impl PostStartHook {
    pub(crate) fn new<F>(name: &'static str, run: impl FnOnce(HookContext) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self {
            name,
            done: Signal::new(name),
            run: Box::new(|cx| Box::pin(run(cx))),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Fires when the hook has returned without an error.
    pub(crate) fn done(&self) -> &Signal {
        &self.done
    }

    /// The hook's health check.
    pub(crate) fn check(&self) -> HealthCheck {
        let done = self.done.clone();
        HealthCheck::new(format!("poststarthook/{}", self.name), Endpoints::ALL, move || {
            if done.fired() { Ok(()) } else { Err("not finished") }
        })
        // A slow start must not make the liveness probe restart the process.
        .with_livez_grace()
    }

    /// Runs the hook.
    ///
    /// # Cancel safety
    /// Not cancel safe: the hook is aborted, and its health check fails forever.
    ///
    /// # Errors
    /// [`HookError`].
    pub(crate) async fn run(self, cx: HookContext) -> Result<(), HookError> {
        match (self.run)(cx).await {
            Ok(()) => {
                self.done.fire();
                Ok(())
            }
            // `done` never fires, so the check fails until the process ends.
            Err(source) => Err(HookError {
                name: self.name,
                source,
            }),
        }
    }
}

/// A hook that runs when the shutdown begins, while requests are still served.
pub(crate) struct PreShutdownHook {
    name: String,
    run: BoxFuture<()>,
}

impl PreShutdownHook {
    pub(crate) fn new(name: impl Into<String>, run: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            name: name.into(),
            run: Box::pin(run),
        }
    }

    /// Runs the hook. Dropping the future aborts it.
    pub(crate) async fn run(self) {
        tracing::debug!(hook = self.name, "pre-shutdown hook runs");
        self.run.await;
    }
}
