//! Connect subresources: log, exec, attach, portforward and proxy. Admission and authorization happen here;
//! the connector produces the response.

use super::super::call::Call;
use super::super::options::connect;
use super::VerbResult;
use crate::registry::{SubresourceBehaviour, WriteOptions};
use crate::request::{Body, Request};
use http::Method;

pub(crate) async fn connect(call: Call, body: Body) -> VerbResult {
    call.check_name()?;
    let Some(SubresourceBehaviour::Connect(connector)) = call.route.subresource().map(|s| s.behaviour.clone()) else {
        return Err(super::update::absent(&call));
    };
    // Parsed before admission, because plugins may inspect and change the options.
    let mut options = connect::read(connector.options(), &call.query, &call.route.rest)?;
    // Upstream treats reading a log as a GET, without admission.
    if call.subresource() != "log" {
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
