//! Bodies that are made in a task of their own.

use super::{Body, BoxError, Inner};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

impl Body {
    /// The same body, whose frames are made in a task of its own from when somebody asks for the first, one more than was
    /// asked for: for frames that take long to make (see [`crate::tasks::aside`]). What is there already stays as it is.
    pub fn aside(self) -> Self {
        match &self.0 {
            Inner::Empty | Inner::Full(_) => self,
            Inner::Stream(_) => Self::stream(Aside {
                left: self.size_hint(),
                work: Work::Due(self),
            }),
        }
    }
}

struct Aside {
    work: Work,
    left: SizeHint,
}

enum Work {
    Due(Body),
    Done(mpsc::Receiver<Result<Frame<Bytes>, BoxError>>, JoinSet<()>),
}

impl http_body::Body for Aside {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Work::Due(body) = &mut self.work {
            let mut body = std::mem::take(body);
            let (out, frames) = mpsc::channel(1);
            let mut task = JoinSet::new();
            let work = async move {
                while let Some(frame) = body.frame().await {
                    if out.send(frame).await.is_err() {
                        return;
                    }
                }
            };
            task.spawn(work.boxed());
            self.work = Work::Done(frames, task);
        }
        let Work::Done(frames, task) = &mut self.work else {
            return Poll::Ready(None);
        };
        let frame = ready!(frames.poll_recv(cx));
        if frame.is_none()
            && let Some(Err(e)) = ready!(task.poll_join_next(cx))
            && e.is_panic()
        {
            std::panic::resume_unwind(e.into_panic());
        }
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
    use futures_util::{Stream, StreamExt as _, stream};
    use http_body_util::StreamBody;
    use std::panic::AssertUnwindSafe;
    use tokio::sync::oneshot;

    fn aside(of: impl Stream<Item = &'static str> + Send + 'static) -> Body {
        let frames = of.map(|text| Ok::<_, BoxError>(Frame::data(Bytes::from_static(text.as_bytes()))));
        Body::stream(StreamBody::new(Box::pin(frames))).aside()
    }

    #[tokio::test]
    async fn a_body_made_aside_is_the_same_body() {
        let whole = aside(stream::iter(["one ", "two ", "three"])).collect(100).await;
        assert_eq!(whole.unwrap(), "one two three");
        assert_eq!(Body::full("there").aside().as_full(), Some(&b"there"[..]));
    }

    #[tokio::test]
    async fn its_task_ends_with_it() {
        let (tied, gone) = oneshot::channel::<()>();
        let mut endless = aside(stream::iter(["first"]).chain(stream::pending()).map(move |text| {
            let _ = &tied;
            text
        }));
        assert_eq!(endless.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
        drop(endless);
        assert!(gone.await.is_err());
    }

    #[tokio::test]
    async fn a_panic_in_its_task_is_one_of_its_reader() {
        let panics = stream::once(async { panic!("a test's own panic") });
        let broken = aside(stream::iter(["first"]).chain(panics)).collect(100);
        assert!(AssertUnwindSafe(broken).catch_unwind().await.is_err());
    }
}
