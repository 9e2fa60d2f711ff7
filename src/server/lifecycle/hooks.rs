//! Hooks that run once the server serves ([`PostStartHook`]) and when its shutdown begins
//! ([`PreShutdownHook`]).

use crate::request::body::BoxError;
use crate::server::health::{Endpoints, HealthCheck};
use crate::tasks::TaskGroup;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    name: String,
    done: Arc<AtomicBool>,
    run: Box<dyn FnOnce(HookContext) -> BoxFuture<Result<(), BoxError>> + Send + Sync>,
}

/// A post-start hook failed.
#[derive(Debug, thiserror::Error)]
#[error("post-start hook {name:?} failed: {source}")]
pub(crate) struct HookError {
    name: String,
    source: BoxError,
}

impl PostStartHook {
    /// A hook with this name.
    pub(crate) fn new<F>(name: impl Into<String>, run: impl FnOnce(HookContext) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self {
            name: name.into(),
            done: Arc::new(AtomicBool::new(false)),
            run: Box::new(|cx| Box::pin(run(cx))),
        }
    }

    /// The hook's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The hook's health check.
    pub(crate) fn check(&self) -> HealthCheck {
        let done = self.done.clone();
        HealthCheck::new(format!("poststarthook/{}", self.name), Endpoints::ALL, move || {
            // Pairs with the release below: who sees the hook done also sees its effects.
            if done.load(Ordering::Acquire) {
                Ok(())
            } else {
                Err("not finished")
            }
        })
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
                self.done.store(true, Ordering::Release);
                Ok(())
            }
            // `done` stays false, so the check fails until the process ends.
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
    /// A hook with this name.
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
