//! Connect subresources: log, exec, attach, portforward and proxy. Admission and authorization happen here; the
//! connector produces the response.

use super::super::call::Call;
use super::super::group_version::VerbResult;
use super::super::options::connect;
use crate::admission::{Attributes, Operation};
use crate::apimachinery::value::Value;
use crate::registry::SubresourceBehaviour;
use crate::request::{Body, Request};
use http::Method;
use std::sync::Arc;

pub(crate) async fn connect(call: Call, body: Body) -> VerbResult {
    call.check_name()?;
    let Some(SubresourceBehaviour::Connect(connector)) = call.route.subresource().map(|s| s.behaviour.clone()) else {
        return Err(super::update::absent(&call));
    };
    let mut options = connect::read(connector.options(), &call.query, &call.route.rest)?;
    // Upstream treats reading a log as a GET, without admission.
    if call.subresource() != "log" {
        let attributes = Attributes {
            operation: Operation::Connect,
            kind: call.kind(),
            resource: call.resource().gvr.clone(),
            subresource: call.subresource().to_owned(),
            namespace: call.cx.namespace.clone(),
            name: call.name().to_owned(),
            user: call.cx.user.clone(),
            dry_run: false,
            old_object: None,
            options: Arc::new(Value::Null),
            warnings: call.cx.warnings.clone(),
            audit: call.cx.audit.clone(),
        };
        call.store().admission().mutate(&attributes, &mut options).await?;
        call.store().admission().validate(&attributes, &options).await?;
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
