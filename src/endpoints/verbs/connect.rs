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
    let mut options = connect::read(connector.options(), &call.query, &call.route.rest)?;
    // Upstream treats reading a log as a GET, without admission.
    if call.subresource() != "log" {
        let write = WriteOptions {
            subresource: call.subresource().to_owned(),
            kind: Some(call.kind()),
            ..WriteOptions::default()
        };
        let store = call.store();
        store.admit_connect(&call.cx, call.name(), &mut options, &write).await?;
    }
    if connector.get_requires_create()
        && call.parts.method == Method::GET
        && let Some(check) = &call.authorize_create
    {
        check.authorize_create().await?;
    }
    let Call { parts, route, cx, .. } = call;
    let req = Request::from_parts(parts, body);
    connector.connect(&cx, &route.name, &options, req).await
}
