//! The only place where storage errors become Statuses (upstream: `k8s.io/apiserver/pkg/storage/errors`).

use crate::apimachinery::Status;
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::status::Cause;
use crate::storage::{Error, Revision};

fn too_new(asked: u64, current: u64) -> Status {
    let mut s = Status::timeout(format!("Too large resource version: {asked}, current: {current}"), 1);
    // Clients look at the cause to tell it from other timeouts.
    s.details_mut().causes.push(Cause {
        reason: "ResourceVersionTooLarge".into(),
        message: "Too large resource version".into(),
        ..Cause::default()
    });
    s
}

fn common(error: &Error) -> Status {
    match error {
        Error::TooNew { requested, current } => too_new(requested.0, current.0),
        Error::NotReady(after) => Status::too_many_requests("storage is (re)initializing", *after),
        Error::LoadFailed(after, _) => Status::too_many_requests(error.to_string(), *after),
        Error::Unreadable { .. } | Error::Unwritable(_) => Status::internal(error),
        other => Status::raw_error(other.to_string()),
    }
}

/// The Status for a failed get.
pub(crate) fn read(error: &Error) -> Status {
    common(error)
}

/// The Status for a failed list; `continued` tells whether the request had a continue token.
pub(crate) fn list(error: &Error, continued: bool) -> Status {
    match error {
        Error::Compacted(_) if continued => Status::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of \
             the results. Continuing with the provided token results in an inconsistent list - objects that were \
             created, modified, or deleted between the time the first chunk was returned and now may show up in the \
             list.",
        ),
        Error::Compacted(_) => Status::expired("The resourceVersion for the provided list is too old."),
        other => common(other),
    }
}

/// The Status for a failed watch that started at `since`.
pub(crate) fn watch(error: &Error, since: Option<Revision>) -> Status {
    match error {
        Error::Compacted(oldest) => {
            let asked = since.unwrap_or_default().0;
            Status::expired(format!("too old resource version: {asked} ({})", oldest.0))
        }
        other => common(other),
    }
}

/// The Status for a failed write; callers handle the conflicts that they can retry first.
pub(crate) fn write(error: &Error, gr: &GroupResource, name: &str) -> Status {
    match error {
        Error::Conflict(_) => Status::modified(gr, name),
        other => common(other),
    }
}
