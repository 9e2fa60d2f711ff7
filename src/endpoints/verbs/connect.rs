//! Connections: log, exec, attach, portforward, proxy. The connector owns the answer.

use super::super::call::Call;
use super::super::group_version::Answer;
use crate::admission::{Attributes, Operation};
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;
use crate::registry::SubresourceBehaviour;
use crate::request::{Body, Request};
use std::sync::Arc;

pub(crate) async fn connect(call: Call, body: Body) -> Answer {
    call.check_name()?;
    if call.query.get("dryRun").is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let Some(SubresourceBehaviour::Connect(connector)) = call.route.subresource().map(|s| s.behaviour.clone()) else {
        return Err(super::update::absent(&call));
    };
    // Reading a log is a GET upstream, not a connection: no admission.
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
        };
        let mut nothing = Value::Null;
        call.store().admission().mutate(&attributes, &mut nothing).await?;
        call.store().admission().validate(&attributes, &nothing).await?;
    }
    let Call { parts, route, cx, .. } = call;
    let req = Request::from_parts(parts, body);
    Ok(connector.connect(&cx, &route.name, &route.rest, req).await)
}
