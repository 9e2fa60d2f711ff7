//! PUT of an object or a subresource: decodes and checks the body ([`update`]), or passes it to the handler of a
//! subresource with rules of its own ([`custom`]). Conflicts and validation are left to the store.

use super::super::call::Call;
use super::super::options::WriteQuery;
use super::super::{body, finish};
use super::Reply;
use super::VerbResult;
use super::create::{decode, note};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::resource::SubresourceHandler;
use crate::registry::write::WriteOptions;
use crate::registry::{ResultObject, SubresourceBehaviour, Updated, dedup_owner_references};
use crate::request::Body;
use std::sync::Arc;

pub(crate) async fn update(mut call: Call, req_body: Body) -> VerbResult {
    call.require_name()?;
    let negotiated = call.negotiate(call.offer())?;
    // As in upstream's `handlers/update.go`, the body is read before options and media type are checked, so that 413
    // takes precedence over 415.
    let bytes = body::read(req_body).await?;
    let options = WriteQuery::parse(&call.query, "UpdateOptions", false)?;
    call.cx.dry_run = options.dry_run;
    let body_type = body::body_type(&call.parts.headers, call.definition().is_some(), call.codecs)?;
    let mut object = decode(&call, &bytes, body_type, &options)?;
    call.check_namespace(&mut object)?;
    // Before the name is checked: upstream audits the object even if it is refused then.
    note(&call, &object);
    call.check_body_name(&object)?;
    call.check_name()?;
    // Adds its warning only once per request, not for each attempt of the update loop.
    dedup_owner_references(&mut object, &call.cx.warnings, false);

    let write = WriteOptions {
        manager: Some(options.manager(&call.parts.headers)),
        subresource: call.subresource().to_owned(),
        options: Arc::new(options.to_value("UpdateOptions", call.query.text("fieldValidation"))),
        // A UID in the body is a precondition: the object must not have been replaced by another one of its name.
        uid: Some(object.uid().to_owned()).filter(|u| !u.is_empty()),
        kind: None,
        authorize_create: call.authorize_create.clone(),
    };
    let (reply, late) = (Reply::to(&call, negotiated), call.late.clone());
    let updated = finish::finish(async move { replace(&call, object, &write).await }, late).await?;
    let code = if updated.created { 201 } else { 200 };
    reply.object(code, updated.object).await
}

async fn replace(call: &Call, object: Value, write: &WriteOptions) -> Result<Updated> {
    if let Some(SubresourceBehaviour::Custom(handler)) = call.route.subresource().map(|s| &s.behaviour) {
        return custom(call, handler, object, write).await;
    }
    // Cloned because the store mutates its copy and asks again after a conflict.
    let mut transform = |_: Option<&Value>| Ok(object.clone());
    call.store()
        .update(&call.cx, call.name(), &mut transform, false, write)
        .await
}

/// Updates a subresource through its own handler, which stores the object itself.
pub(crate) async fn custom(
    call: &Call,
    handler: &Arc<dyn SubresourceHandler>,
    object: Value,
    write: &WriteOptions,
) -> Result<Updated> {
    if call.kind() == call.resource().gvk() {
        // An update of the parent object: admission runs in the parent's store, at its usual position between
        // the checks.
        let object = handler.update_as(&call.cx, call.name(), object, write).await?;
        return Ok(Updated {
            object: ResultObject::Tree(object),
            created: false,
        });
    }
    let write = &WriteOptions {
        kind: Some(call.kind()),
        ..write.clone()
    };
    let object = call
        .store()
        .update_through(&call.cx, call.name(), &**handler, object, write)
        .await?;
    Ok(Updated {
        object: ResultObject::Tree(object),
        created: false,
    })
}

/// 404: the object does not exist.
pub(crate) fn absent(call: &Call) -> Status {
    Status::not_found(&call.resource().group_resource(), call.name())
}
