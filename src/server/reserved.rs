//! A thread reserved for `/livez`, `/readyz` and `/metrics`, so that probes are answered however busy the
//! runtime threads and the compute pool are.

use super::mux::DynHandler;
use super::respond;
use crate::apimachinery::status::Status;
use crate::request::{Authorized, Request, Response, UnprotectedHandler};
use async_trait::async_trait;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of requests waiting for the thread; further ones get 429.
const QUEUE_LIMIT: usize = 256;

/// The reserved thread. Clones share it; it ends when the last one is dropped.
#[derive(Clone)]
pub(crate) struct ReservedThread(mpsc::Sender<Job>);

struct Job {
    handler: DynHandler,
    request: Request,
    authorized: Authorized,
    answer: oneshot::Sender<std::thread::Result<Response>>,
}

impl ReservedThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// Fails if the system cannot create a thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, mut waiting) = mpsc::channel::<Job>(QUEUE_LIMIT);
        // A runtime of its own, because handlers may use timers. It has no I/O driver: they must not do I/O.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let work = move || {
            while let Some(job) = waiting.blocking_recv() {
                // Spawned, so that a panic ends the task and not the thread.
                let answering = runtime.spawn(job.handler.serve(job.request, job.authorized));
                // Nothing aborts the task, so a failed join is always a panic.
                let answered = runtime.block_on(answering).map_err(tokio::task::JoinError::into_panic);
                // Fails if the client has disconnected.
                let _ = job.answer.send(answered);
            }
        };
        std::thread::Builder::new().name("health".to_owned()).spawn(work)?;
        Ok(Self(jobs))
    }

    /// A handler that runs `handler` on the thread.
    pub(crate) fn wrap(&self, handler: DynHandler) -> DynHandler {
        Arc::new(Reserved {
            thread: self.clone(),
            handler,
        })
    }
}

struct Reserved {
    thread: ReservedThread,
    handler: DynHandler,
}

#[async_trait]
impl UnprotectedHandler for Reserved {
    async fn serve(self: Arc<Self>, request: Request, authorized: Authorized) -> Response {
        // Kept for the negotiation of an error: the request itself moves to the thread.
        let headers = request.headers().clone();
        let (answer, answered) = oneshot::channel();
        let job = Job {
            handler: self.handler.clone(),
            request,
            authorized,
            answer,
        };
        // Never waits: a probe that queues behind 256 others is late anyway.
        if self.thread.0.try_send(job).is_err() {
            let status = Status::too_many_requests("too many requests, please try again later", 1);
            return respond::status(&status, &headers);
        }
        match answered.await {
            Ok(Ok(response)) => response,
            // Re-raised here, where the panic filter handles and logs it.
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => respond::status(&Status::service_unavailable("the server is shutting down"), &headers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Body, UserInfo};
    use crate::server::respond::FnHandler;

    fn ask(handler: &DynHandler) -> impl Future<Output = Response> + use<> {
        let authorized = Authorized::for_test(UserInfo::anonymous());
        handler.clone().serve(Request::new(Body::empty()), authorized)
    }

    #[tokio::test]
    async fn handlers_run_on_the_reserved_thread() {
        let here = std::thread::current().id();
        let thread = ReservedThread::start().unwrap();
        let handler = thread.wrap(Arc::new(FnHandler(move |_: &Request| {
            assert_ne!(std::thread::current().id(), here);
            Response::new("ok".into())
        })));
        assert_eq!(ask(&handler).await.into_body().as_full(), Some(&b"ok"[..]));
    }

    #[tokio::test]
    async fn a_panic_leaves_the_thread_running() {
        let thread = ReservedThread::start().unwrap();
        let panics = thread.wrap(Arc::new(FnHandler(|_: &Request| panic!("a test's own panic"))));
        assert!(tokio::spawn(ask(&panics)).await.is_err());
        let handler = thread.wrap(Arc::new(FnHandler(|_: &Request| Response::new("ok".into()))));
        assert_eq!(ask(&handler).await.into_body().as_full(), Some(&b"ok"[..]));
    }
}
