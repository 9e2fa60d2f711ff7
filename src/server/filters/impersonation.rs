//! Refuses requests that ask to act as somebody else. Serving them is a feature of its own; ignoring the headers would
//! do under one name what was meant to be done under another.

use crate::apimachinery::status::Status;
use crate::authz::{Attributes, forbidden};
use crate::request::user::MASTERS;
use crate::request::{Answering, Authenticated, Handler, Request};
use crate::server::chain::{Fact, Filter};
use crate::server::respond::{self, NOSNIFF};
use http::header::X_CONTENT_TYPE_OPTIONS;
use std::sync::Arc;

struct RefuseImpersonation(Arc<dyn Handler>);

/// The filter.
pub fn filter() -> Filter {
    Filter {
        name: "impersonation",
        needs: &[Fact::RequestInfo, Fact::Authenticated],
        leaves: &[],
        wrap: Box::new(|inner| Arc::new(RefuseImpersonation(inner))),
    }
}

impl Handler for RefuseImpersonation {
    fn handle<'a, 't>(&'a self, req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        let asked = req.headers().iter().any(|(name, value)| {
            let name = name.as_str();
            (matches!(name, "impersonate-user" | "impersonate-uid" | "impersonate-group") && !value.is_empty())
                || name.starts_with("impersonate-extra-")
        });
        if !asked {
            return self.0.handle(req);
        }
        let status = refusal(&req);
        let mut r = respond::status(&status, req.headers());
        r.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        Box::pin(std::future::ready(r))
    }
}

/// Whoever has no right to it is told so in upstream's words; members of `system:masters`, who would have it, are told
/// that it is not served.
fn refusal(req: &Request) -> Status {
    let info = super::info(req);
    let named = req
        .headers()
        .get("impersonate-user")
        .is_some_and(|user| !user.is_empty());
    if !named {
        return Status::bad_request("requested impersonation without impersonating a user name");
    }
    match req.extensions().get::<Authenticated>() {
        Some(who) if !who.user().in_group(MASTERS) => {
            let verb = format!("impersonate-on:user-info:{}", info.verb);
            forbidden(&Attributes::of(who.user(), &info).with_verb(&verb), "")
        }
        _ => Status::new(
            403,
            "Forbidden",
            "forbidden: impersonation is not served by this server",
        ),
    }
}
