//! Encodes watch events as JSON lines, length-prefixed protobuf messages or CBOR items.
//!
//! Entry point: [`Frames::encode`].

use crate::api::{json, protobuf};
use crate::apimachinery::codec::cbor;
use crate::apimachinery::codec::protobuf::{frame, frame_around};
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;
use crate::endpoints::negotiate::Media;
use crate::endpoints::respond::stored::{self, Rows};
use crate::endpoints::respond::table::{self, Include};
use crate::endpoints::respond::{encoded, partial};
use crate::registry::{Resource, errors};
use crate::storage::{Budget, Entry, Event, EventType, WatchItem};
use bytes::Bytes;
use std::sync::Arc;

/// The representation of the objects in events.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Representation {
    Object,
    Partial(&'static str),
    Table(&'static str, Include),
}

/// An encoded event. The variants differ in who owns the bytes, and thereby in who is charged for them.
pub(crate) enum EncodedFrame {
    /// Built for this watch only.
    Own(Vec<u8>),
    /// Shared with other watches.
    Shared(Bytes),
    /// A shared object with its own head and tail.
    Around(Vec<u8>, Bytes, &'static [u8]),
}

/// Objects from this size on are not copied into their frame.
const LARGE: usize = 16 << 10;

/// Objects from this size on are encoded on the compute pool.
const HEAVY: usize = 32 << 10;
/// The same limit for objects that only need to be copied.
const HEAVY_TO_COPY: usize = 1 << 20;

/// Encodes the events of one watch.
pub(crate) struct Frames {
    resource: Arc<Resource>,
    media: Media,
    representation: Representation,
    bookmarks: bool,
    /// Annotate the bookmark that ends the initial events.
    mark_initial_end: bool,
    columns_sent: bool,
    budget: Option<Arc<Budget>>,
}

fn line(kind: &str, object: &[u8]) -> Vec<u8> {
    line_of(kind, object.len(), |out| out.extend_from_slice(object))
}

/// Builds a line around the content written by `object`, of approximately `size` bytes.
fn line_of(kind: &str, size: usize, object: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    // 24 bytes for the fixed parts of the line.
    let mut out = Vec::with_capacity(size + kind.len() + 24);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    object(&mut out);
    out.extend_from_slice(LINE_END);
    out
}

/// The end of a line, after the object.
const LINE_END: &[u8] = b"}\n";

/// The frame of an event whose object is a tree.
fn encode_frame(media: Media, kind: &str, object: &Value) -> Vec<u8> {
    match media {
        // Negotiation never selects protobuf for kinds without messages, so encoding succeeds.
        Media::Protobuf => frame(kind, &protobuf::encode(object).unwrap_or_default()),
        Media::Cbor => cbor::event(kind, object),
        _ => line(kind, &json::to_vec(object)),
    }
}

/// The frame of an ERROR event.
pub(crate) fn error(status: &Status, media: Media) -> Vec<u8> {
    encode_frame(media, "ERROR", &status.to_value())
}

const fn text(t: EventType) -> &'static str {
    match t {
        EventType::Added => "ADDED",
        EventType::Modified => "MODIFIED",
        EventType::Deleted => "DELETED",
    }
}

impl Frames {
    pub(crate) fn new(
        resource: Arc<Resource>,
        media: Media,
        representation: Representation,
        bookmarks: bool,
        mark_initial_end: bool,
    ) -> Self {
        Self {
            resource,
            media,
            representation,
            bookmarks,
            mark_initial_end,
            columns_sent: false,
            budget: None,
        }
    }

    /// Enables sharing of frames and encodings, charged to `budget`.
    pub(crate) fn shared(self, budget: Option<&Arc<Budget>>) -> Self {
        let budget = budget.cloned();
        Self { budget, ..self }
    }

    /// True if encoding the item may block a reactor thread for too long.
    pub(crate) fn is_heavy(&self, item: &WatchItem) -> bool {
        let (entry, copied) = match item {
            // An object that stops matching the selector is sent as it was, which may be much larger than it is.
            WatchItem::Change(t, event) => (event.shown(*t), *t == EventType::Deleted),
            WatchItem::Initial(entry) => (entry, false),
            WatchItem::Bookmark { .. } | WatchItem::Failed(_) => return false,
        };
        let size = entry.json.len();
        match (self.representation, self.media) {
            // Stored JSON is shared without copying, except for deletions, whose revision differs.
            (Representation::Object, Media::Json) if !entry.json.is_compressed() => copied && size >= HEAVY_TO_COPY,
            _ => size >= HEAVY,
        }
    }

    /// Encodes an item; `None` for bookmarks the client did not request.
    pub(crate) fn encode(&mut self, item: WatchItem) -> Option<EncodedFrame> {
        match item {
            WatchItem::Change(t, event) => Some(self.change(t, &event)),
            WatchItem::Initial(entry) => Some(
                self.around("ADDED", &entry)
                    .unwrap_or_else(|| EncodedFrame::Own(self.entry("ADDED", &entry))),
            ),
            WatchItem::Bookmark { revision, initial_end } => {
                // The store ends every initial state with a bookmark; clients of the older protocol do not expect it.
                if !self.bookmarks || (initial_end && !self.mark_initial_end) {
                    return None;
                }
                Some(EncodedFrame::Own(self.bookmark(&revision.0.to_string(), initial_end)))
            }
            WatchItem::Failed(why) => {
                let status = errors::watch(&why, None);
                Some(EncodedFrame::Own(error(&status, self.media)))
            }
        }
    }

    fn change(&mut self, t: EventType, event: &Event) -> EncodedFrame {
        // The object of a deletion is the previous one with a new revision, so its bytes cannot be shared.
        if t != EventType::Deleted
            && let Some(made) = self.around(text(t), &event.entry)
        {
            return made;
        }
        let metadata = match self.representation {
            // Rows contain ages relative to now and cannot be shared.
            Representation::Table(..) => return EncodedFrame::Own(self.entry(text(t), &event.object(t))),
            Representation::Object => None,
            Representation::Partial(version) => Some(version),
        };
        let budget = self.budget.clone();
        let key = encoded::frame(t, self.media, metadata);
        // Encoded by the first of the watchers that see this event in this way.
        EncodedFrame::Shared(
            event
                .encodings
                .bytes(budget.as_ref(), key, || self.entry(text(t), &event.object(t)).into()),
        )
    }

    /// A frame around a large object that is shared instead of copied; `None` if the frame must be built.
    fn around(&self, kind: &str, entry: &Entry) -> Option<EncodedFrame> {
        if !matches!(self.representation, Representation::Object) || entry.json.len() < LARGE {
            return None;
        }
        match self.media {
            // Decompressed for the frame, which is therefore shared instead.
            Media::Json if entry.json.is_compressed() => None,
            Media::Json => {
                let mut head = line(kind, &[]);
                head.truncate(head.len() - LINE_END.len());
                Some(EncodedFrame::Around(head, entry.json().into_owned(), LINE_END))
            }
            Media::Protobuf => {
                // The same cached message as in GET and LIST, so a large object is encoded once for all of them.
                let message = encoded::message(entry, self.resource.schema.definition()?, self.budget.as_ref());
                let gvk = self.resource.gvk();
                let (head, tail) = frame_around(kind, &gvk.api_version(), &gvk.kind, message.len());
                Some(EncodedFrame::Around(head, message, tail))
            }
            _ => None,
        }
    }

    /// The frame of an entry, decoding no more of it than necessary.
    fn entry(&mut self, kind: &str, entry: &Entry) -> Vec<u8> {
        let budget = self.budget.as_ref();
        match (self.representation, self.media) {
            (Representation::Object, Media::Json) => line(kind, &entry.json()),
            (Representation::Object, Media::Protobuf) => match self.resource.schema.definition() {
                Some(def) => {
                    let gvk = self.resource.gvk();
                    let message = encoded::message(entry, def, budget);
                    frame(kind, &encoded::enveloped(&gvk.api_version(), &gvk.kind, &message))
                }
                None => encode_frame(self.media, kind, &entry.decode()),
            },
            (Representation::Object, _) => encode_frame(self.media, kind, &entry.decode()),
            (Representation::Partial(version), Media::Protobuf) => {
                let message = partial::message(&self.resource, entry, version, budget);
                // The message is the same in both versions of the group; only the envelope names one.
                let group = format!("meta.k8s.io/{version}");
                frame(kind, &encoded::enveloped(&group, "PartialObjectMetadata", &message))
            }
            (Representation::Partial(version), Media::Cbor) => {
                encode_frame(self.media, kind, &partial::of_entry(&self.resource, entry, version))
            }
            (Representation::Partial(version), _) => line_of(kind, 1024, |out| {
                stored::write_partial(&self.resource, entry, version, out);
            }),
            (Representation::Table(version, include), media) => {
                let columns = self.columns();
                let rows = Rows {
                    resource: &self.resource,
                    version,
                    include,
                };
                if matches!(media, Media::Protobuf | Media::Cbor) {
                    encode_frame(media, kind, &rows.table(entry, columns))
                } else {
                    line_of(kind, 1024, |out| rows.write_table(entry, columns, out))
                }
            }
        }
    }

    /// The column definitions for the first event, or for every event if the kind requires it.
    fn columns(&mut self) -> Value {
        let always = self.resource.columns.as_ref().is_some_and(|c| c.always_headed);
        // kubectl keeps the columns of the first event, so repeating them in each event would only cost bytes.
        if std::mem::replace(&mut self.columns_sent, true) && !always {
            return Value::Null;
        }
        table::columns(&self.resource)
    }

    fn bookmark(&mut self, version: &str, initial_end: bool) -> Vec<u8> {
        let mut object = empty_object(&self.resource);
        object.set(&["metadata", "resourceVersion"], version);
        if initial_end {
            object.set(&["metadata", "annotations", "k8s.io/initial-events-end"], "true");
        }
        match (self.representation, initial_end) {
            (Representation::Object, _) => encode_frame(self.media, "BOOKMARK", &object),
            // The initial-events-end annotation must be visible even if rows embed no objects.
            (Representation::Table(version, Include::None), true) => {
                self.encode_as("BOOKMARK", object, Representation::Table(version, Include::Metadata))
            }
            (representation, _) => self.encode_as("BOOKMARK", object, representation),
        }
    }

    fn encode_as(&mut self, kind: &str, object: Value, representation: Representation) -> Vec<u8> {
        let value = match representation {
            Representation::Object => object,
            Representation::Partial(version) => partial::of(&self.resource, &object, version),
            Representation::Table(version, include) => {
                let columns = self.columns();
                table::of_event(&self.resource, &object, version, include, columns)
            }
        };
        encode_frame(self.media, kind, &value)
    }
}

/// The object of upstream's bookmarks, without their metadata: an empty object of the kind, converted to the version.
fn empty_object(resource: &Resource) -> Value {
    let mut object = Value::object();
    object.set(&["apiVersion"], resource.gvk().api_version());
    object.set(&["kind"], resource.kind.as_str());
    // The internal types of these have the number by value, so that it is 0 rather than absent.
    if &*resource.gvr.group == "apps" && matches!(&*resource.kind, "Deployment" | "ReplicaSet" | "StatefulSet") {
        object.set(&["spec", "replicas"], 0i64);
    }
    // Normalise to add the fields Go always serialises.
    let bare = object.clone();
    if resource.schema.normalize(&mut object).is_err() {
        object = bare;
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlplane::resource_builder::GroupVersionBuilder;

    #[test]
    fn an_empty_workload_has_no_replicas() {
        let replicas = |plural: &'static str, kind: &'static str| {
            let (group, version) = ("apps", "v1");
            let row = GroupVersionBuilder { group, version }.kind(plural, kind).build();
            empty_object(&row).at(&["spec", "replicas"]).as_i64()
        };
        assert_eq!(replicas("statefulsets", "StatefulSet"), Some(0));
        assert_eq!(replicas("daemonsets", "DaemonSet"), None);
    }

    #[test]
    fn frame_around_equals_an_enveloped_frame() {
        for size in [0, 1, 100, 127, 128, 16_000, 16_383, 16_384, 3 << 20] {
            let message = vec![7; size];
            let (head, tail) = frame_around("ADDED", "apps/v1", "Deployment", size);
            let whole = frame("ADDED", &encoded::enveloped("apps/v1", "Deployment", &message));
            assert_eq!([&head, &message, tail].concat(), whole, "{size} bytes");
        }
    }
}
