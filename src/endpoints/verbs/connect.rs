//! Connect subresources: log, exec, attach, portforward and proxy. Admission and authorization happen here;
//! the connector produces the response.

use super::super::call::Call;
use super::super::options::{Query, connect};
use super::VerbResult;
use crate::apimachinery::status::{Result, Status};
use crate::registry::{SubresourceBehaviour, WriteOptions};
use crate::request::{Body, Request};
use http::Method;

pub(crate) async fn connect(call: Call, body: Body) -> VerbResult {
    // Upstream treats reading a log as a GET, whose parameters are its own, and without admission.
    let is_log = call.subresource() == "log";
    if !is_log {
        check_dry_run(&call.query)?;
    }
    call.check_name()?;
    let Some(SubresourceBehaviour::Connect(connector)) = call.route.subresource().map(|s| s.behaviour.clone()) else {
        return Err(super::update::absent(&call));
    };
    // Parsed before admission, because plugins may inspect and change the options.
    let mut options = connect::read(connector.options(), &call.query, &call.route.rest)?;
    if !is_log {
        let write = WriteOptions {
            subresource: call.subresource().to_owned(),
            // Admission sees the kind of the options, not that of the parent.
            kind: Some(call.kind()),
            ..WriteOptions::default()
        };
        let store = call.store();
        store.admit_connect(&call.cx, call.name(), &mut options, &write).await?;
    }
    // A WebSocket handshake is always a GET, so without this check `get` on the subresource would suffice to run
    // commands (upstream: gate `AuthorizePodWebsocketUpgradeCreatePermission`).
    if connector.get_requires_create()
        && call.parts.method == Method::GET
        && let Some(check) = &call.authorize_create
    {
        check.authorize_create().await?;
    }
    // The connector gets the whole request: it may have to upgrade the connection.
    let Call { parts, route, cx, .. } = call;
    let req = Request::from_parts(parts, body);
    connector.connect(&cx, &route.name, &options, req).await
}

/// Refuses the parameter whatever its value: a connection cannot be tried out.
fn check_dry_run(query: &Query) -> Result<()> {
    match query.get("dryRun") {
        Some(_) => Err(Status::bad_request("dryRun is not supported")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_no_dry_run() {
        assert_eq!(check_dry_run(&Query::parse("command=ls")), Ok(()));
        for query in ["dryRun=All", "dryRun"] {
            assert_eq!(check_dry_run(&Query::parse(query)).unwrap_err().code, 400, "{query}");
        }
    }
}
