//! The verbs. Each takes a [`Call`] and answers; the order of its checks is upstream's, because it decides which of
//! several errors a client reads.

pub(crate) mod connect;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod update;
pub(crate) mod watch;

use super::call::Call;
use super::group_version::Answer;
use super::route::Action;
use crate::request::Body;

/// Runs one.
pub(crate) async fn run(action: Action, call: Call, body: Body) -> Answer {
    match action {
        Action::Get => get::get(call).await,
        Action::List => list::list(call).await,
        Action::Watch => watch::watch(call).await,
        Action::Create => create::create(call, body).await,
        Action::Update => update::update(call, body).await,
        Action::Patch => patch::patch(call, body).await,
        Action::Delete => delete::delete(call, body).await,
        Action::DeleteCollection => delete::delete_collection(call, body).await,
        Action::Connect => connect::connect(call, body).await,
    }
}
