//! [`amended`]: changes the response of the inner handler in place, for filters that add headers to it.

use crate::request::Response;
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// A future that amends the inner future's response in place. Nested `map` combinators would move the
    /// response once per filter; nesting these moves it once.
    pub struct Amended<Inside, Amend> {
        #[pin]
        inside: Inside,
        amend: Option<Amend>,
    }
}

/// Runs `amend` on the response of `inside`.
pub(crate) fn amended<Inside, Amend>(inside: Inside, amend: Amend) -> Amended<Inside, Amend>
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
