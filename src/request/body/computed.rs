//! Response bodies whose frames are produced on the compute pool ([`Body::computed`]), so that encoding a
//! large list does not block an I/O worker.

use super::{Body, BoxError, Inner};
use crate::tasks::compute::{self, Error};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

impl Body {
    /// Moves the production of a streaming body onto the current compute pool. The job starts with the first
    /// poll, stays one frame ahead of the reader, and is cancelled when the body is dropped. Bodies in
    /// memory, and bodies created outside of a pool's scope, are returned unchanged.
    pub fn computed(self) -> Self {
        let current = match &self.0 {
            Inner::Empty | Inner::Full(_) | Inner::Failed(_) => None,
            Inner::Stream(_) => compute::current(),
        };
        let Some(current) = current else { return self };
        // Taken before the body moves into the job: the transport needs it for `Content-Length`.
        let (left, mut body) = (self.size_hint(), self);
        // One frame ahead: enough to overlap encoding with sending, and little memory for a client that stalls.
        let (out, frames) = mpsc::channel(1);
        // A second handle: the job captures one, and the other runs it.
        let caller = current.clone();
        let work = async move {
            // Reserve first: a frame is computed only when the reader has room for it, and the caller has
            // read enough of its other responses.
            while let Ok(room) = out.reserve().await {
                if caller.room_for_response().await.is_err() {
                    // An error and not the end: the client must see that the response is incomplete.
                    room.send(Err("the caller has too many unread responses".into()));
                    return;
                }
                match body.frame().await {
                    Some(frame) => {
                        let frame = frame.map(counted);
                        let failed = frame.is_err();
                        room.send(frame);
                        if failed {
                            return;
                        }
                    }
                    None => return,
                }
            }
        };
        // Zero: frames are charged one by one in `counted`.
        let job = async move { current.run(0, work).await };
        Self::stream(Computed {
            job: Job::Running(job.boxed()),
            frames,
            left,
        })
    }
}

/// Accounts for a large frame until the client has read it: readers that stall hold one frame each.
fn counted(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_data() {
        Ok(data) => Frame::data(compute::account_for_part(data)),
        Err(trailers) => trailers,
    }
}

struct Computed {
    job: Job,
    frames: mpsc::Receiver<Result<Frame<Bytes>, BoxError>>,
    left: SizeHint,
}

enum Job {
    /// The job starts on its first poll.
    Running(BoxFuture<'static, Result<(), Error>>),
    Over(Result<(), Error>),
}

impl Computed {
    /// The error that ended the job, returned once; `None` if the body is complete.
    fn failure(&mut self) -> Option<BoxError> {
        let Job::Over(end) = std::mem::replace(&mut self.job, Job::Over(Ok(()))) else {
            return None;
        };
        match end.err()? {
            Error::Full => Some("too many computations wait".into()),
            Error::Interrupted => Some("computing the answer took too long".into()),
        }
    }
}

impl http_body::Body for Computed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Drive the job, which also starts it. Frames it has already sent are still drained after it ends.
        if let Job::Running(job) = &mut self.job
            && let Poll::Ready(end) = job.poll_unpin(cx)
        {
            self.job = Job::Over(end);
        }
        let frame = match ready!(self.frames.poll_recv(cx)) {
            Some(frame) => Some(frame),
            None => {
                // The job dropped its sender after the poll above; collect its result.
                if let Job::Running(job) = &mut self.job {
                    self.job = Job::Over(ready!(job.poll_unpin(cx)));
                }
                self.failure().map(Err)
            }
        };
        if let Some(data) = frame.as_ref().and_then(|f| f.as_ref().ok()?.data_ref())
            && let Some(left) = self.left.exact()
        {
            self.left = SizeHint::with_exact(left.saturating_sub(data.len() as u64));
        }
        Poll::Ready(frame)
    }

    fn size_hint(&self) -> SizeHint {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::compute::{ComputePool, Config, HeldBackFlows, RunnableJobs};
    use crate::telemetry::Telemetry;
    use futures_util::{Stream, StreamExt as _, stream};
    use http_body_util::StreamBody;
    use std::panic::AssertUnwindSafe;
    use std::sync::Arc;
    use tokio::sync::oneshot;

    fn body(of: impl Stream<Item = &'static str> + Send + 'static) -> Body {
        let frames = of.map(|text| Ok::<_, BoxError>(Frame::data(Bytes::from_static(text.as_bytes()))));
        Body::stream(StreamBody::new(Box::pin(frames)))
    }

    async fn computed(body: Body) -> (Body, ComputePool) {
        let pool = ComputePool::start(Config::default(), Telemetry::new().compute.clone()).unwrap();
        let within = pool.within(pool.flow("a"), async { body.computed() });
        (within.await, pool)
    }

    #[tokio::test]
    async fn a_computed_body_has_the_same_frames() {
        let (whole, _pool) = computed(body(stream::iter(["one ", "two ", "three"]))).await;
        assert_eq!(whole.collect(100).await.unwrap(), "one two three");
        let (there, _pool) = computed(Body::full("there")).await;
        assert_eq!(there.as_full(), Some(&b"there"[..]));
    }

    #[tokio::test]
    async fn frames_are_computed_on_the_pool() {
        let here = std::thread::current().id();
        let elsewhere = stream::once(async move {
            match std::thread::current().id() == here {
                true => "here",
                false => "on the pool",
            }
        });
        let (made, _pool) = computed(body(elsewhere)).await;
        assert_eq!(made.collect(100).await.unwrap(), "on the pool");
    }

    /// Otherwise clients that do not read their lists would leave no memory to the jobs of others.
    #[tokio::test]
    async fn an_unread_body_does_not_keep_the_memory_of_the_job_that_made_it() {
        let limit = 1 << 20;
        let config = Config {
            memory_bytes: limit,
            ..Config::default()
        };
        let pool = ComputePool::start(config, Telemetry::new().compute.clone()).unwrap();
        // Jobs of this size run one at a time.
        let made = || pool.run(pool.flow("a"), limit / 4, async { body(stream::pending()).computed() });
        let mut first = made().await.unwrap();
        assert!(first.frame().now_or_never().is_none(), "its job waits for a frame");
        let second = tokio::time::timeout(std::time::Duration::from_secs(30), made()).await;
        assert!(second.is_ok(), "the second body is made while the first one is unread");
    }

    fn large_frames(count: usize) -> Body {
        let frames = (0..count).map(|_| Ok::<_, BoxError>(Frame::data(Bytes::from(vec![7; 64 << 10]))));
        Body::stream(StreamBody::new(stream::iter(frames)))
    }

    async fn next(body: &mut Body) -> Bytes {
        let frame = body.frame().await.expect("a frame").expect("no error");
        frame.into_data().expect("data")
    }

    /// Cutting them off instead would look like a broken connection to the client.
    #[tokio::test]
    async fn responses_of_one_caller_wait_until_others_are_read() {
        let config = Config {
            // Half of it: two frames.
            body_bytes_per_flow: 4 * (64 << 10),
            ..Config::default()
        };
        let pool = ComputePool::start(config, Telemetry::new().compute.clone()).unwrap();
        let flows = Arc::new(HeldBackFlows::default());
        let of = |name: &str, flow| {
            let jobs = RunnableJobs::of_flow(flow, &flows);
            pool.within_request(pool.flow(name), Some(jobs), async { large_frames(3).computed() })
        };
        let (mut first, mut second) = (of("a", 1).await, of("a", 1).await);
        // The first body has one frame here and another one computed ahead.
        let held = next(&mut first).await;
        while pool.response_bytes() < 2 * (64 << 10) {
            tokio::task::yield_now().await;
        }
        assert!(second.frame().now_or_never().is_none());
        while !flows.contains(1) {
            tokio::task::yield_now().await;
        }
        let other = of("b", 2).await.collect(usize::MAX).await;
        assert_eq!(
            other.map(|b| b.len()).ok(),
            Some(3 * (64 << 10)),
            "other callers are not concerned"
        );
        drop(held);
        drop(first);
        assert_eq!(second.collect(usize::MAX).await.unwrap().len(), 3 * (64 << 10));
        assert!(!flows.contains(1));
        // The job of the first body may be about to send a frame that nobody receives.
        while pool.response_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn dropping_the_body_cancels_its_job() {
        let (tied, gone) = oneshot::channel::<()>();
        let (mut endless, _pool) = computed(body(stream::iter(["first"]).chain(stream::pending()).map(
            move |text| {
                let _ = &tied;
                text
            },
        )))
        .await;
        assert_eq!(endless.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
        drop(endless);
        assert!(gone.await.is_err());
    }

    #[tokio::test]
    async fn a_panic_in_the_job_propagates_to_the_reader() {
        let panics = stream::once(async { panic!("a test's own panic") });
        let (broken, _pool) = computed(body(stream::iter(["first"]).chain(panics))).await;
        assert!(AssertUnwindSafe(broken.collect(100)).catch_unwind().await.is_err());
    }
}
