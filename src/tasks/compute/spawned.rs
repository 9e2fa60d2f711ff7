//! The end of a job: [`outcome`], and [`Spawned`] for one that continues without its caller.

use super::{Error, Job};
use crate::interrupt::Interrupted;
use crate::telemetry::compute::ComputeMetrics;
use async_task::FallibleTask;
use futures_util::FutureExt as _;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

type Caught<T> = std::thread::Result<Option<T>>;

/// Turns the outcome of a job's task into the job's result. Propagates a panic of the job.
pub(super) fn outcome<T>(caught: Caught<T>, metrics: &ComputeMetrics) -> Result<T, Error> {
    match caught {
        Ok(Some(done)) => Ok(done),
        Ok(None) => Err(Error::Interrupted),
        // An interruption unwinds with its own payload.
        Err(payload) if payload.is::<Interrupted>() => {
            metrics.interrupted();
            Err(Error::Interrupted)
        }
        Err(panic) => resume_unwind(panic),
    }
}

/// Work that continues when this is dropped. Awaiting it returns the result.
///
/// # Cancel safety
/// Dropping it discards only the result.
pub(crate) struct Spawned<T> {
    task: Option<FallibleTask<T, Arc<Job>>>,
    metrics: ComputeMetrics,
}

impl<T> Spawned<T> {
    pub(super) fn new(task: FallibleTask<T, Arc<Job>>, metrics: ComputeMetrics) -> Self {
        Self {
            task: Some(task),
            metrics,
        }
    }
}

impl<T> Future for Spawned<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = &mut self.task else {
            return Poll::Ready(Err(Error::Interrupted));
        };
        let caught = ready!(AssertUnwindSafe(task).catch_unwind().poll_unpin(cx));
        self.task = None;
        Poll::Ready(outcome(caught, &self.metrics))
    }
}

impl<T> Drop for Spawned<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            // Dropping a task would cancel it.
            task.detach();
        }
    }
}
