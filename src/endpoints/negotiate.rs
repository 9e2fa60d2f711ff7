//! `Accept` → media type, transform, pretty printing; as upstream's `endpoints/handlers/negotiation`.
//!
//! Two checks come one after the other: the router's, which knows bare types only ([`router_check`]), and the
//! serializer's, which knows parameters ([`negotiate`]).

use super::options::Query;
use crate::apimachinery::codec::{cbor, protobuf};
use crate::apimachinery::status::{Result, Status};
use http::HeaderMap;
use http::header::{ACCEPT, USER_AGENT};

/// The media types upstream serves objects in, in its order.
pub const OBJECT_TYPES: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
/// Those it streams watches in.
pub const STREAM_TYPES: [&str; 2] = [
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// Which encodings are on, beside JSON, YAML and protobuf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codecs {
    /// Feature gate `CBORServingAndStorage`.
    pub cbor: bool,
}

impl Codecs {
    /// The media types of objects; of kinds without messages where `messages` is false.
    pub const fn object_types(self, messages: bool) -> &'static [&'static str] {
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

    /// The media types of watches.
    pub const fn stream_types(self) -> &'static [&'static str] {
        const CBOR: [&str; 3] = [STREAM_TYPES[0], STREAM_TYPES[1], "application/cbor;stream=watch"];
        if self.cbor { &CBOR } else { &STREAM_TYPES }
    }

    const fn offers(self, media: Media) -> bool {
        !matches!(media, Media::Cbor) || self.cbor
    }
}

/// How an answer is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
    /// `application/cbor`
    Cbor,
}

/// What an object is turned into before it is encoded. The text is the version of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    /// The object as it is.
    None,
    /// `as=Table`
    Table(&'static str),
    /// `as=PartialObjectMetadata`
    Partial(&'static str),
    /// `as=PartialObjectMetadataList`
    PartialList(&'static str),
}

/// What an endpoint can do beside plain objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Objects, tables, metadata.
    Objects,
    /// The same as a stream of events.
    Events,
    /// Objects and metadata: answers without a table.
    Metadata,
    /// Plain documents only: discovery, errors.
    Plain,
    /// As [`Objects`](Self::Objects), of a kind without messages: protobuf is for their metadata alone.
    CustomObjects,
    /// The same as a stream of events.
    CustomEvents,
}

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Encoding.
    pub media: Media,
    /// Form.
    pub transform: Transform,
    /// Indented.
    pub pretty: bool,
}

impl Negotiated {
    /// Objects as compact JSON: as they are stored.
    pub fn is_plain(self) -> bool {
        self.media == Media::Json && !self.pretty && self.transform == Transform::None
    }
}

impl Media {
    /// The `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => protobuf::CONTENT_TYPE,
            Self::Cbor => cbor::CONTENT_TYPE,
        }
    }

    /// Whether events can be told apart in it.
    pub const fn streams(self) -> bool {
        !matches!(self, Self::Yaml)
    }

    /// The `Content-Type` of a watch; JSON keeps its plain one.
    pub const fn stream_type(self) -> &'static str {
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

/// One clause of an Accept header.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause<'a> {
    /// `application`, or `*`.
    pub main: &'a str,
    /// `json`, or `*`.
    pub sub: &'a str,
    /// Parameters but `q`.
    pub params: Vec<(&'a str, &'a str)>,
    quality: f64,
}

impl<'a> Clause<'a> {
    /// The value of a parameter. An empty one is none.
    pub fn param(&self, name: &str) -> Option<&'a str> {
        let found = self.params.iter().find(|(k, _)| *k == name).map(|(_, v)| *v);
        found.filter(|v| !v.is_empty())
    }

    /// True where this clause takes `main/sub`.
    pub fn takes(&self, media_type: &str) -> bool {
        let (main, sub) = media_type.split_once('/').unwrap_or((media_type, ""));
        (self.main == "*" || self.main == main) && (self.sub == "*" || self.sub == sub)
    }
}

/// The first `Accept` line: further ones are not read.
pub fn accept_line(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("")
}

/// The clauses of an Accept line, best first. An empty line takes everything.
pub fn clauses(line: &str) -> Vec<Clause<'_>> {
    let line = if line.is_empty() { "*/*" } else { line };
    let mut out: Vec<Clause<'_>> = Vec::new();
    for text in line.split(',') {
        let mut parts = text.split(';').map(|p| p.trim_matches(' '));
        let range = parts.next().unwrap_or("");
        let (main, sub) = match range.split_once('/') {
            Some((main, sub)) if !sub.contains('/') => (main, sub),
            None if range == "*" => ("*", "*"),
            _ => continue,
        };
        let mut clause = Clause {
            main,
            sub,
            params: Vec::new(),
            quality: 1.0,
        };
        for param in parts {
            let Some((k, v)) = param.split_once('=').filter(|(_, v)| !v.contains('=')) else {
                continue;
            };
            let (k, v) = (k.trim_matches(' '), v.trim_matches(' '));
            match k {
                "q" => clause.quality = v.parse().unwrap_or(0.0),
                _ => clause.params.push((k, v)),
            }
        }
        out.push(clause);
    }
    out.sort_by(|a, b| {
        let rank = |c: &Clause<'_>| (c.main == "*", c.sub == "*");
        b.quality.total_cmp(&a.quality).then_with(|| rank(a).cmp(&rank(b)))
    });
    out
}

/// The router's look at `Accept`: one clause must be `*/*` or a produced type, whatever its parameters.
///
/// # Errors
/// 406.
pub fn router_check(headers: &HeaderMap, lists: bool, codecs: Codecs) -> Result<()> {
    let line = accept_line(headers);
    let known = |t: &str| t == "*/*" || codecs.object_types(true).contains(&t);
    if line.is_empty()
        || line
            .split(',')
            .any(|c| known(c.split(';').next().unwrap_or("").trim_matches(' ')))
    {
        return Ok(());
    }
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

/// The best clause that can be served.
///
/// # Errors
/// 406 with the accepted types.
pub fn negotiate(headers: &HeaderMap, query: &Query, offer: Offer) -> Result<Negotiated> {
    negotiate_among(Codecs::default(), headers, query, offer)
}

/// As [`negotiate`], with the encodings that are on.
///
/// # Errors
/// 406 with the accepted types.
pub fn negotiate_among(codecs: Codecs, headers: &HeaderMap, query: &Query, offer: Offer) -> Result<Negotiated> {
    let line = accept_line(headers);
    for clause in clauses(line) {
        for media in [Media::Json, Media::Yaml, Media::Protobuf, Media::Cbor] {
            if !codecs.offers(media) || !clause.takes(media.content_type()) {
                continue;
            }
            let Some(transform) = transform(&clause, media, offer) else {
                continue;
            };
            // Cells have no messages, and neither have custom resources.
            match transform {
                Transform::Table(_) if media == Media::Protobuf => continue,
                Transform::None if media == Media::Protobuf && offer.is_custom() => continue,
                _ => {}
            }
            // The best clause decides, and only then whether what it takes can be streamed.
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

/// `None`: the clause asks for what there is not.
fn transform(clause: &Clause<'_>, media: Media, offer: Offer) -> Option<Transform> {
    if clause.param("sv").is_some_and(|v| v != "v1") {
        return None;
    }
    // Who takes a stream takes a document too.
    if clause.param("stream").is_some_and(|v| v != "watch" || !media.streams()) {
        return None;
    }
    let parts = [clause.param("as"), clause.param("g"), clause.param("v")];
    if parts == [None; 3] {
        return Some(Transform::None);
    }
    let version = match (parts[1], parts[2]) {
        _ if offer == Offer::Plain => return None,
        (Some("meta.k8s.io"), Some("v1")) => "v1",
        (Some("meta.k8s.io"), Some("v1beta1")) => "v1beta1",
        _ => return None,
    };
    match parts[0]? {
        "Table" if offer == Offer::Metadata => None,
        "Table" => Some(Transform::Table(version)),
        "PartialObjectMetadata" => Some(Transform::Partial(version)),
        "PartialObjectMetadataList" => Some(Transform::PartialList(version)),
        _ => None,
    }
}

/// Query parameter, else who asks, else the clause.
pub fn is_pretty(headers: &HeaderMap, query: &Query, asked: bool) -> bool {
    match query.get("pretty") {
        Some("") | None => {}
        Some(v) => return matches!(v, "1" | "t" | "T" | "TRUE" | "true" | "True"),
    }
    let agent = headers.get(USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or("");
    asked || ["curl", "Wget", "Mozilla/5.0"].iter().any(|a| agent.starts_with(a))
}

#[cfg(test)]
mod tests;
