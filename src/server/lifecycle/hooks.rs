//! Work to be done once the server serves, and work to be done when it begins to go down.

use crate::server::health::{Endpoints, HealthCheck};
use crate::tasks::{Signal, TaskGroup};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a post-start hook is given.
#[derive(Clone, Debug)]
pub struct HookContext {
    /// For what the hook leaves running.
    pub tasks: TaskGroup,
    /// Fires when shutdown begins.
    pub stop: Signal,
}

/// Work to be done once the server serves. It is the health check `poststarthook/<name>` until it returns.
/// An error is fatal for the process.
pub struct PostStartHook {
    name: String,
    done: Arc<AtomicBool>,
    run: Box<dyn FnOnce(HookContext) -> BoxFuture<Result<(), String>> + Send + Sync>,
}

impl PostStartHook {
    /// A hook of that name.
    pub fn new<F>(name: impl Into<String>, run: impl FnOnce(HookContext) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self {
            name: name.into(),
            done: Arc::new(AtomicBool::new(false)),
            run: Box::new(|cx| Box::pin(run(cx))),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its health check.
    pub fn check(&self) -> HealthCheck {
        let done = self.done.clone();
        HealthCheck::new(format!("poststarthook/{}", self.name), Endpoints::ALL, move || {
            if done.load(Ordering::Acquire) {
                Ok(())
            } else {
                Err("not finished".into())
            }
        })
        .with_livez_grace()
    }

    /// Runs it.
    ///
    /// # Errors
    /// The hook's name and its reason.
    pub async fn run(self, cx: HookContext) -> Result<(), String> {
        (self.run)(cx)
            .await
            .map_err(|e| format!("post-start hook {:?} failed: {e}", self.name))?;
        self.done.store(true, Ordering::Release);
        Ok(())
    }
}

/// Work to be done when shutdown begins, while requests are still served.
pub struct PreShutdownHook {
    name: String,
    run: BoxFuture<()>,
}

impl PreShutdownHook {
    /// A hook of that name.
    pub fn new(name: impl Into<String>, run: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            name: name.into(),
            run: Box::pin(run),
        }
    }

    /// Runs it.
    pub async fn run(self) {
        tracing::debug!(hook = self.name, "pre-shutdown hook runs");
        self.run.await;
    }
}
