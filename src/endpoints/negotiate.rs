//! Content negotiation: `Accept` → media type, transform and pretty printing (upstream:
//! `endpoints/handlers/negotiation`).
//!
//! Two checks run in sequence: the router's, which ignores parameters ([`router_check`]), and the
//! serializer's, which evaluates them ([`negotiate`]).

use super::options::Query;
use crate::apimachinery::codec::{cbor, protobuf};
use crate::apimachinery::status::{Result, Status};
use crate::request::accept::{Clause, accept_line, clauses, is_browser};
use http::HeaderMap;

/// The media types upstream serves objects in, in upstream's order.
pub(crate) const OBJECT_TYPES: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
/// The media types upstream serves watches in.
pub(crate) const STREAM_TYPES: [&str; 2] = [
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// The optional encodings that are enabled besides JSON, YAML and protobuf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Codecs {
    /// The feature gate `CBORServingAndStorage`.
    pub cbor: bool,
}

impl Codecs {
    /// The media types of objects. `messages` is false for kinds without a protobuf encoding.
    pub(crate) const fn object_types(self, messages: bool) -> &'static [&'static str] {
        const CBOR: [&str; 4] = [OBJECT_TYPES[0], OBJECT_TYPES[1], OBJECT_TYPES[2], cbor::CONTENT_TYPE];
        const CUSTOM: [&str; 2] = [OBJECT_TYPES[0], OBJECT_TYPES[1]];
        const CUSTOM_CBOR: [&str; 3] = [OBJECT_TYPES[0], OBJECT_TYPES[1], cbor::CONTENT_TYPE];
        match (messages, self.cbor) {
            (true, false) => &OBJECT_TYPES,
            (true, true) => &CBOR,
            (false, false) => &CUSTOM,
            (false, true) => &CUSTOM_CBOR,
        }
    }

    /// The media types of watches, as the 406 message lists them.
    pub(crate) const fn stream_types(self) -> &'static [&'static str] {
        const CBOR: [&str; 3] = [STREAM_TYPES[0], STREAM_TYPES[1], "application/cbor;stream=watch"];
        if self.cbor { &CBOR } else { &STREAM_TYPES }
    }

    const fn offers(self, media: Media) -> bool {
        !matches!(media, Media::Cbor) || self.cbor
    }
}

/// The encoding of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
    /// `application/cbor`
    Cbor,
}

/// The transformation of an object before encoding. The string is the `meta.k8s.io` version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transform {
    None,
    /// `as=Table`
    Table(&'static str),
    /// `as=PartialObjectMetadata`
    Partial(&'static str),
    /// `as=PartialObjectMetadataList`
    PartialList(&'static str),
}

/// The representations an endpoint supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// Objects, tables and partial metadata.
    Objects,
    /// The same as [`Objects`](Self::Objects), as a stream of watch events.
    Events,
    /// Objects and partial metadata, but no tables.
    Metadata,
    /// Plain documents only: discovery and errors.
    Plain,
    /// [`Objects`](Self::Objects) of a kind without a protobuf encoding; only their partial metadata is
    /// available in protobuf.
    CustomObjects,
    /// The same as [`CustomObjects`](Self::CustomObjects), as a stream of watch events.
    CustomEvents,
}

/// The result of content negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Negotiated {
    pub media: Media,
    /// The representation that the `as` parameter of the accepted media type requests.
    pub transform: Transform,
    /// Whether to indent (JSON only).
    pub pretty: bool,
}

impl Negotiated {
    /// True for untransformed compact JSON, the stored form of objects.
    pub(crate) fn is_plain(self) -> bool {
        self.media == Media::Json && !self.pretty && self.transform == Transform::None
    }
}

impl Media {
    /// The value of `Content-Type`.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => protobuf::CONTENT_TYPE,
            Self::Cbor => cbor::CONTENT_TYPE,
        }
    }

    /// True if the encoding delimits the events of a stream.
    pub(crate) const fn streams(self) -> bool {
        !matches!(self, Self::Yaml)
    }

    /// The `Content-Type` of a watch. JSON uses that of a single object.
    pub(crate) const fn stream_type(self) -> &'static str {
        match self {
            Self::Protobuf => protobuf::STREAM_TYPE,
            Self::Cbor => cbor::STREAM_TYPE,
            other => other.content_type(),
        }
    }
}

impl Offer {
    const fn is_stream(self) -> bool {
        matches!(self, Self::Events | Self::CustomEvents)
    }

    const fn is_custom(self) -> bool {
        matches!(self, Self::CustomObjects | Self::CustomEvents)
    }
}

/// The router's check of `Accept`: one clause must be `*/*` or a served type; parameters are ignored.
///
/// # Errors
/// 406 with the list of served types.
pub(crate) fn router_check(headers: &HeaderMap, lists: bool, codecs: Codecs) -> Result<()> {
    let line = accept_line(headers);
    // go-restful compares whole types: `application/*` is refused here although the serializer would accept it.
    let known = |t: &str| t == "*/*" || codecs.object_types(true).contains(&t);
    if line.is_empty()
        || line
            .split(',')
            .any(|c| known(c.split(';').next().unwrap_or("").trim_matches(' ')))
    {
        return Ok(());
    }
    // go-restful lists the types of the route, whatever the kind's own encodings are.
    let mut types = codecs.object_types(true).join(", ");
    if lists {
        types.push_str(", ");
        types.push_str(&codecs.stream_types().join(", "));
    }
    let text = format!("406: Not Acceptable\n\nAvailable representations: {types}");
    let mut s = Status::new(406, "NotAcceptable", text);
    s.details_mut();
    Err(s)
}

/// Returns the first clause, in order of preference, that can be served.
///
/// # Errors
/// 406 with the list of served types.
pub(crate) fn negotiate(headers: &HeaderMap, query: &Query, offer: Offer) -> Result<Negotiated> {
    negotiate_with(Codecs::default(), headers, query, offer)
}

/// [`negotiate`] with optional encodings.
///
/// # Errors
/// 406 with the list of served types.
pub(crate) fn negotiate_with(codecs: Codecs, headers: &HeaderMap, query: &Query, offer: Offer) -> Result<Negotiated> {
    let line = accept_line(headers);
    for clause in clauses(line) {
        // In the order in which upstream registers its serializers, which decides for wildcards.
        for media in [Media::Json, Media::Yaml, Media::Protobuf, Media::Cbor] {
            if !codecs.offers(media) || !clause.takes(media.content_type()) {
                continue;
            }
            let Some(transform) = transform(&clause, media, offer) else {
                continue;
            };
            // Tables and custom resources have no protobuf messages.
            match transform {
                Transform::Table(_) if media == Media::Protobuf => continue,
                Transform::None if media == Media::Protobuf && offer.is_custom() => continue,
                _ => {}
            }
            // Like upstream, the best clause is chosen first and then checked for streaming; there is no
            // fallback to the next.
            if offer.is_stream() && !media.streams() {
                return Err(Status::not_acceptable(codecs.stream_types()));
            }
            let asked = clause.param("pretty") == Some("1");
            return Ok(Negotiated {
                media,
                transform,
                pretty: media == Media::Json && is_pretty(headers, query, asked),
            });
        }
    }
    Err(Status::not_acceptable(codecs.object_types(true)))
}

/// The transform requested by a clause; `None` if it is not supported.
fn transform(clause: &Clause<'_>, media: Media, offer: Offer) -> Option<Transform> {
    // The version of the schema of a transformation; upstream only has v1.
    if clause.param("sv").is_some_and(|v| v != "v1") {
        return None;
    }
    // A document may be returned to a client that accepts a stream.
    if clause.param("stream").is_some_and(|v| v != "watch" || !media.streams()) {
        return None;
    }
    let parts = [clause.param("as"), clause.param("g"), clause.param("v")];
    if parts == [None; 3] {
        return Some(Transform::None);
    }
    let version = match (parts[1], parts[2]) {
        // Errors and discovery documents have no metadata to reduce them to.
        _ if offer == Offer::Plain => return None,
        (Some("meta.k8s.io"), Some("v1")) => "v1",
        (Some("meta.k8s.io"), Some("v1beta1")) => "v1beta1",
        _ => return None,
    };
    // `g` and `v` without `as` name no kind to convert to.
    match parts[0]? {
        "Table" if offer == Offer::Metadata => None,
        "Table" => Some(Transform::Table(version)),
        "PartialObjectMetadata" => Some(Transform::Partial(version)),
        "PartialObjectMetadataList" => Some(Transform::PartialList(version)),
        _ => None,
    }
}

/// Pretty printing: the query parameter decides, then the User-Agent, then the clause.
pub(crate) fn is_pretty(headers: &HeaderMap, query: &Query, asked: bool) -> bool {
    match query.get("pretty") {
        Some("") | None => {}
        // The spellings of Go's `strconv.ParseBool`; anything else counts as false.
        Some(v) => return matches!(v, "1" | "t" | "T" | "TRUE" | "true" | "True"),
    }
    asked || is_browser(headers)
}

#[cfg(test)]
mod tests;
