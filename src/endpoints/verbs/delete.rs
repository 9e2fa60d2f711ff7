//! DELETE of a single object and of a collection: reads the options, then calls the store in a task of its own, which
//! ends even if the client disconnects.

use super::super::call::Call;
use super::super::negotiate::{Negotiated, Offer};
use super::super::options::{DeleteQuery, ListQuery};
use super::super::{body, finish, respond};
use super::VerbResult;
use super::list;
use crate::api::by_gvk;
use crate::api::decode::explain;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::registry::{Deleted, ResultObject};
use crate::request::{Body, Response};

async fn options(call: &Call, req_body: Body) -> Result<DeleteQuery> {
    let bytes = body::read(req_body).await?;
    // The query is only considered if there is no body, as upstream.
    if bytes.is_empty() {
        return DeleteQuery::from_query(&call.query);
    }
    // `DeleteOptions` has a protobuf encoding whatever the kind, so `true` also for custom resources.
    let body_type = body::body_type(&call.parts.headers, true, call.codecs)?;
    let document = body::parse_delete_options(&bytes, body_type).map_err(|e| Status::bad_request(e.to_string()))?;
    // Before they are validated: upstream audits what the client sent.
    call.cx.audit.request_options(&document.value);
    DeleteQuery::from_body(&document.value).map_err(|e| match (body_type, by_gvk("", "v1", "DeleteOptions")) {
        // Go's message quotes the number as the client wrote it.
        (body::BodyType::Json, Some(def)) if e.message.starts_with("json: cannot unmarshal") => {
            explain(def, &bytes).map_or(e, |why| Status::bad_request(why.0))
        }
        _ => e,
    })
}

fn warn(call: &Call, query: &DeleteQuery) {
    // Jobs orphan their pods by default, which upstream warns about (`pkg/registry/batch/job/storage/storage.go`).
    let unset = query.options.propagation.is_none() && query.options.orphan_dependents.is_none();
    if let Some(text) = call
        .resource()
        .strategy
        .rules()
        .missing_propagation_warning
        .filter(|_| unset)
    {
        call.cx.warnings.add(text);
    }
}

pub(crate) async fn delete(mut call: Call, req_body: Body) -> VerbResult {
    call.require_name()?;
    let negotiated = call.negotiate(Offer::Objects)?;
    let query = options(&call, req_body).await?;
    call.check_name()?;
    call.cx.dry_run = query.dry_run;
    warn(&call, &query);
    // Kept aside: the options move into the task.
    let orphan_said_no = query.options.orphan_dependents == Some(false);
    let (store, cx, name) = (call.store().clone(), call.cx.clone(), call.name().to_owned());
    let work = async move { store.delete(&cx, &name, &query.options).await };
    let deleted = finish::finish(work, call.late.clone()).await?;
    // Upstream returns 202 only for the deprecated `orphanDependents=false` while the object still exists.
    let code = if orphan_said_no && !deleted.gone { 202 } else { 200 };
    answer(&call, code, &deleted, negotiated)
}

/// Responds with the object if it still exists or if the kind returns deleted objects, otherwise with a
/// Status.
fn answer(call: &Call, code: u16, deleted: &Deleted, negotiated: Negotiated) -> Result<Response> {
    let resource = call.resource();
    if !deleted.gone || resource.returns_deleted {
        return respond::object(
            code,
            &deleted.object,
            resource,
            negotiated,
            &call.parts.headers,
            &call.query,
            call.store().budget(),
        );
    }
    // The UID in the details lets a client tell the deleted object from a new one of the same name.
    let uid = match &deleted.object {
        ResultObject::Stored(e) => e.decode().uid().to_owned(),
        ResultObject::Tree(v) => v.uid().to_owned(),
    };
    let status = Status::deleted(&resource.group_resource(), call.name(), &uid);
    Ok(respond::value(code, &status, negotiated, &call.parts.headers))
}

pub(crate) async fn delete_collection(mut call: Call, req_body: Body) -> VerbResult {
    let negotiated = call.negotiate(Offer::Objects)?;
    let query = ListQuery::parse(&call.query, call.resource(), false)?;
    let delete = options(&call, req_body).await?;
    call.cx.dry_run = delete.dry_run;
    warn(&call, &delete);
    // Upstream looks at the version and the token when it lists.
    let select = list::options(&call, &query)?;
    let prefix = list::token_prefix(&select);
    let (store, cx) = (call.store().clone(), call.cx.clone());
    let work = async move { store.delete_collection(&cx, select, &delete.options).await };
    // No time limit, as upstream: deleting many objects may take longer than 34 seconds.
    let listing = finish::to_the_end(work, call.late.clone()).await?;
    let meta = list::meta(&prefix, &listing);
    list::respond(&call, listing, &meta, negotiated)
}
