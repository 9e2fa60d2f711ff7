//! What a filter does with an answer on its way out.

use crate::request::Response;
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// An answer's future with something behind it. The answer is changed where it lies: a chain of these moves it once,
    /// where mapped futures would once for each.
    pub struct Amended<Inside, Amend> {
        #[pin]
        inside: Inside,
        amend: Option<Amend>,
    }
}

/// `inside`, and then `amend`.
pub fn amended<Inside, Amend>(inside: Inside, amend: Amend) -> Amended<Inside, Amend>
where
    Inside: Future<Output = Response>,
    Amend: FnOnce(&mut Response),
{
    Amended {
        inside,
        amend: Some(amend),
    }
}

impl<Inside, Amend> Future for Amended<Inside, Amend>
where
    Inside: Future<Output = Response>,
    Amend: FnOnce(&mut Response),
{
    type Output = Response;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let this = self.project();
        let mut polled = this.inside.poll(cx);
        if let Poll::Ready(response) = &mut polled
            && let Some(amend) = this.amend.take()
        {
            amend(response);
        }
        polled
    }
}
