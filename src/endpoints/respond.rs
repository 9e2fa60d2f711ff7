//! Responses: objects, lists, tables and errors in the negotiated representation.
//!
//! Start at [`object`] and [`status`]; lists are in [`list`], watch events in `verbs::watch`.

pub(crate) mod chunks;
pub(crate) mod encoded;
pub(crate) mod gzip;
pub(crate) mod list;
pub(crate) mod partial;
pub(crate) mod stored;
pub(crate) mod table;

use super::negotiate::{Codecs, Media, Negotiated, Offer, Transform, negotiate_with};
use super::options::Query;
use crate::api::{json, protobuf};
use crate::apimachinery::codec::{cbor, yaml};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::patch::go_type;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::{Resource, ResultObject};
use crate::request::{Body, Response};
use crate::storage::Budget;
use crate::tasks::compute;
use crate::telemetry::request_parts::{self, Part};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use std::sync::Arc;
use stored::Rows;

/// A response of the given media type.
pub(crate) fn bytes(code: u16, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Encodes a tree.
///
/// # Errors
/// 406 for protobuf if the kind has no protobuf message.
pub(crate) fn encode(value: &Value, media: Media, pretty: bool) -> Result<Vec<u8>> {
    Ok(match (media, pretty) {
        (Media::Json, true) => json::to_vec_pretty(value),
        (Media::Json, false) => {
            let mut out = json::to_vec(value);
            out.push(b'\n');
            out
        }
        (Media::Yaml, _) => yaml::to_vec(value),
        (Media::Cbor, _) => cbor::to_vec(value),
        (Media::Protobuf, _) => protobuf::encode(value).ok_or_else(|| {
            not_acceptable(format!(
                "object {} does not implement the protobuf marshalling interface and cannot be encoded to a protobuf \
                 message",
                value.str_at(&["kind"])
            ))
        })?,
    })
}

/// Responds with an untransformed tree: discovery documents, Statuses and reviews.
pub(crate) fn value(code: u16, value: &Value, negotiated: Negotiated, headers: &HeaderMap) -> Response {
    match encode(value, negotiated.media, negotiated.pretty) {
        Ok(body) => gzip::maybe(bytes(code, negotiated.media.content_type(), Body::full(body)), headers),
        Err(s) => status(&s, headers, &Query::default()),
    }
}

/// Responds with a Status in a media type the client accepts, or in indented JSON if it accepts none.
pub(crate) fn status(status: &Status, headers: &HeaderMap, query: &Query) -> Response {
    status_with(Codecs::default(), status, headers, query)
}

/// [`status`] with optional encodings.
pub(crate) fn status_with(codecs: Codecs, status: &Status, headers: &HeaderMap, query: &Query) -> Response {
    let body = status.to_value();
    let encoded = negotiate_with(codecs, headers, query, Offer::Plain)
        .and_then(|n| Ok((n.media, encode(&body, n.media, n.pretty)?)));
    let mut response = match encoded {
        Ok((media, body)) => bytes(status.code, media.content_type(), Body::full(body)),
        // An error must reach the client even if it accepts none of our media types.
        Err(_) => bytes(
            status.code,
            Media::Json.content_type(),
            Body::full(json::to_vec_pretty(&body)),
        ),
    };
    if status.retry_after() > 0 {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(status.retry_after()));
    }
    response
}

/// Responds with one object of a resource in the negotiated representation.
///
/// # Errors
/// 406 for a list representation; 400 for invalid table options.
pub(crate) fn object(
    code: u16,
    written: &ResultObject,
    resource: &Resource,
    negotiated: Negotiated,
    headers: &HeaderMap,
    query: &Query,
    budget: Option<&Arc<Budget>>,
) -> Result<Response> {
    let media = negotiated.media.content_type();
    let plain = negotiated.media == Media::Json && !negotiated.pretty;
    let transform = match written {
        // A Status is returned as it is, whatever transform was requested.
        ResultObject::Tree(object) if ObjectView::kind(object) == "Status" => Transform::None,
        _ => negotiated.transform,
    };
    // Measures until it is dropped, which includes early returns.
    let _timing = request_parts::timing(part_of(transform));
    let body = match transform {
        // The stored bytes are the response body.
        Transform::None if plain => chunks::line(written_bytes(written)),
        Transform::None => {
            let kept = match written {
                ResultObject::Stored(entry) if !negotiated.pretty => {
                    encoded::whole(entry, resource, negotiated.media, budget)
                }
                _ => None,
            };
            match kept {
                Some(bytes) => Body::full(bytes),
                // Not cached: indented, or a tree that is not stored.
                None => held(encode(&written.to_value(), negotiated.media, negotiated.pretty)?)?,
            }
        }
        Transform::Table(version) => {
            let include = table::Include::parse(query)?;
            let columns = table::columns(resource);
            let rows = Rows {
                resource,
                version,
                include,
            };
            let table = match written {
                ResultObject::Stored(entry) if plain => {
                    return line(code, |out| rows.write_table(entry, columns, out), headers);
                }
                ResultObject::Stored(entry) => rows.table(entry, columns),
                ResultObject::Tree(object) => table::of_event(resource, object, version, include, columns),
            };
            held(encode(&table, negotiated.media, negotiated.pretty)?)?
        }
        Transform::Partial(version) => {
            let partial = match written {
                // From the stored bytes, without building a tree.
                ResultObject::Stored(entry) if plain => {
                    return line(
                        code,
                        |out| stored::write_partial(resource, entry, version, out),
                        headers,
                    );
                }
                ResultObject::Stored(entry) => partial::of_entry(resource, entry, version),
                ResultObject::Tree(object) => partial::of(resource, object, version),
            };
            held(encode(&partial, negotiated.media, negotiated.pretty)?)?
        }
        Transform::PartialList(_) => return Err(no_list(written, resource)),
    };
    Ok(gzip::maybe(bytes(code, media, body), headers))
}

/// The part of the request's latency that building the response counts for.
fn part_of(transform: Transform) -> Part {
    match transform {
        Transform::None => Part::Serialize,
        _ => Part::Transform,
    }
}

/// A body built for this response. Large ones are charged to the caller's memory until they are sent.
fn held(bytes: Vec<u8>) -> Result<Body> {
    compute::account_for(bytes)
        .map(Body::full)
        .map_err(super::offload::offload_error_status)
}

/// Responds with one line of JSON.
fn line(code: u16, write: impl FnOnce(&mut Vec<u8>), headers: &HeaderMap) -> Result<Response> {
    // Metadata and a row of ordinary size fit without growing.
    let mut out = Vec::with_capacity(4096);
    write(&mut out);
    out.push(b'\n');
    Ok(gzip::maybe(
        bytes(code, Media::Json.content_type(), held(out)?),
        headers,
    ))
}

fn written_bytes(written: &ResultObject) -> Bytes {
    written.bytes()
}

/// 406 with a specific message.
pub(crate) fn not_acceptable(message: String) -> Status {
    Status::new(406, "NotAcceptable", message)
}

/// The Go type of a resource's lists in upstream's server.
pub(crate) fn list_type(resource: &Resource) -> String {
    match resource.unstructured {
        true => "unstructured.UnstructuredList".to_owned(),
        false => format!("{}.{}List", package(&resource.gvr.group), resource.kind),
    }
}

/// The error for an object that is requested as a list of metadata.
fn no_list(written: &ResultObject, resource: &Resource) -> Status {
    // A tree may be of a subresource's kind, such as Scale.
    let kind = match written {
        ResultObject::Tree(object) => object.gvk(),
        ResultObject::Stored(_) => resource.gvk(),
    };
    if resource.unstructured && kind == resource.gvk() {
        // In upstream, the type of custom resources is that of their lists too, so that it looks for items.
        let object = written.to_value();
        return Status::raw_error(match object.as_object().and_then(|members| members.get("items")) {
            None => "content is not a list".to_owned(),
            Some(items) => format!("content is not a list: {}", go_type(items)),
        });
    }
    not_acceptable(format!(
        "you requested PartialObjectMetadataList, but the requested object is not a list (*{}.{})",
        package(&kind.group),
        kind.kind
    ))
}

fn package(group: &str) -> &str {
    match group.split('.').next() {
        // Events of both groups are the same type.
        None | Some("" | "events") => "core",
        Some(first) => first,
    }
}
