//! A thread that does nothing but answer the paths by which the server is watched: `/livez`, `/readyz`, `/metrics`.
//!
//! Whatever the reactors and the compute pool are busy with, these answers wait for no computation but each other.

use super::mux::DynHandler;
use super::respond;
use crate::apimachinery::status::Status;
use crate::request::{Authorized, Request, Response, UnprotectedHandler};
use async_trait::async_trait;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Requests that wait for the thread; more are answered 429.
const WAITING: usize = 256;

/// The thread. Clones are the same thread, which ends with the last of them.
#[derive(Clone)]
pub struct ReservedThread(mpsc::Sender<Job>);

struct Job {
    handler: DynHandler,
    request: Request,
    authorized: Authorized,
    answer: oneshot::Sender<std::thread::Result<Response>>,
}

impl ReservedThread {
    /// Starts it.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start() -> io::Result<Self> {
        let (jobs, mut waiting) = mpsc::channel::<Job>(WAITING);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let work = move || {
            while let Some(job) = waiting.blocking_recv() {
                let answering = runtime.spawn(job.handler.answer(job.request, job.authorized));
                let answered = runtime.block_on(answering).map_err(tokio::task::JoinError::into_panic);
                // Refused where the client has gone.
                let _ = job.answer.send(answered);
            }
        };
        std::thread::Builder::new().name("health".to_owned()).spawn(work)?;
        Ok(Self(jobs))
    }

    /// A handler whose answers are made on the thread.
    pub fn around(&self, handler: DynHandler) -> DynHandler {
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
    async fn serve(&self, request: Request, authorized: Authorized) -> Response {
        let headers = request.headers().clone();
        let (answer, answered) = oneshot::channel();
        let job = Job {
            handler: self.handler.clone(),
            request,
            authorized,
            answer,
        };
        if self.thread.0.try_send(job).is_err() {
            let status = Status::too_many_requests("too many requests, please try again later", 1);
            return respond::status(&status, &headers);
        }
        match answered.await {
            Ok(Ok(response)) => response,
            // The panic filter answers and logs it.
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => respond::status(&Status::service_unavailable("the server is shutting down"), &headers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Body, UserInfo};
    use crate::server::respond::Answer;

    fn ask(handler: &DynHandler) -> impl Future<Output = Response> + use<> {
        let authorized = Authorized::mint(Arc::new(UserInfo::anonymous()));
        handler.clone().answer(Request::new(Body::empty()), authorized)
    }

    #[tokio::test]
    async fn answers_are_made_on_a_thread_of_their_own() {
        let here = std::thread::current().id();
        let thread = ReservedThread::start().unwrap();
        let handler = thread.around(Arc::new(Answer(move |_: &Request| {
            assert_ne!(std::thread::current().id(), here);
            Response::new("ok".into())
        })));
        assert_eq!(ask(&handler).await.into_body().as_full(), Some(&b"ok"[..]));
    }

    #[tokio::test]
    async fn a_panic_leaves_the_thread_running() {
        let thread = ReservedThread::start().unwrap();
        let panics = thread.around(Arc::new(Answer(|_: &Request| panic!("a test's own panic"))));
        assert!(tokio::spawn(ask(&panics)).await.is_err());
        let handler = thread.around(Arc::new(Answer(|_: &Request| Response::new("ok".into()))));
        assert_eq!(ask(&handler).await.into_body().as_full(), Some(&b"ok"[..]));
    }
}
