//! Events as lines of JSON, or as messages with their length in front.

use crate::api::protobuf;
use crate::apimachinery::codec::protobuf::frame;
use crate::apimachinery::codec::{cbor, json};
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;
use crate::endpoints::negotiate::Media;
use crate::endpoints::respond::partial;
use crate::endpoints::respond::stored::{self, Rows};
use crate::endpoints::respond::table::{self, Include};
use crate::registry::Resource;
use crate::storage::{Entry, Event, EventType, WatchItem};
use bytes::Bytes;
use std::sync::Arc;

/// What objects are turned into.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    Object,
    Partial(&'static str),
    Table(&'static str, Include),
}

/// Makes the frames of one watch.
pub struct Frames {
    resource: Arc<Resource>,
    media: Media,
    form: Form,
    bookmarks: bool,
    /// The bookmark that closes the initial state says so.
    mark_initial_end: bool,
    columns_sent: bool,
}

fn line(kind: &str, object: &[u8]) -> Vec<u8> {
    line_of(kind, object.len(), |out| out.extend_from_slice(object))
}

/// A line around what is written, which has about this size.
fn line_of(kind: &str, size: usize, object: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(size + kind.len() + 24);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    object(&mut out);
    out.extend_from_slice(b"}\n");
    out
}

/// The frame of a tree.
fn encoded(media: Media, kind: &str, object: &Value) -> Vec<u8> {
    match media {
        // Negotiation keeps kinds without messages away from protobuf.
        Media::Protobuf => frame(kind, &protobuf::encode(object).unwrap_or_default()),
        Media::Cbor => cbor::event(kind, object),
        _ => line(kind, &json::to_vec(object)),
    }
}

/// An ERROR event.
pub fn error(status: &Status, media: Media) -> Vec<u8> {
    encoded(media, "ERROR", &status.to_value())
}

const fn text(t: EventType) -> &'static str {
    match t {
        EventType::Added => "ADDED",
        EventType::Modified => "MODIFIED",
        EventType::Deleted => "DELETED",
    }
}

impl Frames {
    pub fn new(resource: Arc<Resource>, media: Media, form: Form, bookmarks: bool, mark_initial_end: bool) -> Self {
        Self {
            resource,
            media,
            form,
            bookmarks,
            mark_initial_end,
            columns_sent: false,
        }
    }

    /// The frame of an item; `None`: this client does not want it.
    pub fn make(&mut self, item: WatchItem) -> Option<Bytes> {
        match item {
            WatchItem::Change(t, event) => Some(self.change(t, &event)),
            WatchItem::Initial(entry) => Some(match self.form {
                Form::Object if self.media == Media::Json => line("ADDED", &entry.json).into(),
                _ => self.stored("ADDED", &entry),
            }),
            WatchItem::Bookmark { revision, initial_end } => {
                if !self.bookmarks || (initial_end && !self.mark_initial_end) {
                    return None;
                }
                Some(self.bookmark(&revision.0.to_string(), initial_end))
            }
        }
    }

    fn change(&mut self, t: EventType, event: &Event) -> Bytes {
        match (self.form, self.media) {
            (Form::Object, media @ (Media::Protobuf | Media::Cbor)) => {
                let frames = &event.binary_frames.get_or_init(Box::default)[usize::from(media == Media::Cbor)];
                frames[t as usize]
                    .get_or_init(|| encoded(media, text(t), &event.object(t).decode()).into())
                    .clone()
            }
            (Form::Object, _) => event.frames[t as usize]
                .get_or_init(|| line(text(t), &event.object(t).json).into())
                .clone(),
            _ => self.stored(text(t), &event.object(t)),
        }
    }

    /// The frame of a stored object, of which no more is decoded than it needs.
    fn stored(&mut self, kind: &str, entry: &Entry) -> Bytes {
        let binary = matches!(self.media, Media::Protobuf | Media::Cbor);
        match self.form {
            Form::Object => encoded(self.media, kind, &entry.decode()),
            Form::Partial(version) if binary => {
                encoded(self.media, kind, &stored::partial(&self.resource, entry, version))
            }
            Form::Partial(version) => line_of(kind, 1024, |out| {
                stored::write_partial(&self.resource, entry, version, out);
            }),
            Form::Table(version, include) => {
                let columns = self.columns();
                let rows = Rows {
                    resource: &self.resource,
                    version,
                    include,
                };
                if binary {
                    encoded(self.media, kind, &rows.table(entry, columns))
                } else {
                    line_of(kind, 1024, |out| rows.write_table(entry, columns, out))
                }
            }
        }
        .into()
    }

    /// The column definitions, the first time.
    fn columns(&mut self) -> Value {
        if std::mem::replace(&mut self.columns_sent, true) {
            return Value::Null;
        }
        table::columns(&self.resource)
    }

    fn bookmark(&mut self, version: &str, initial_end: bool) -> Bytes {
        let mut object = Value::object();
        object.set(&["apiVersion"], self.resource.gvk().api_version());
        object.set(&["kind"], self.resource.kind.as_str());
        object.set(&["metadata", "resourceVersion"], version);
        // Members that Go writes even when they are empty stand in bookmarks, too.
        let bare = object.clone();
        if self.resource.schema.normalize(&mut object).is_err() {
            object = bare;
        }
        object.set(&["metadata", "resourceVersion"], version);
        if initial_end {
            object.set(&["metadata", "annotations", "k8s.io/initial-events-end"], "true");
        }
        match (self.form, initial_end) {
            (Form::Object, _) => encoded(self.media, "BOOKMARK", &object).into(),
            // The mark must be readable even where rows carry no objects.
            (Form::Table(version, Include::None), true) => {
                self.formed_as("BOOKMARK", object, Form::Table(version, Include::Metadata))
            }
            (form, _) => self.formed_as("BOOKMARK", object, form),
        }
    }

    fn formed_as(&mut self, kind: &str, object: Value, form: Form) -> Bytes {
        let value = match form {
            Form::Object => object,
            Form::Partial(version) => partial::of(&self.resource, &object, version),
            Form::Table(version, include) => {
                let columns = self.columns();
                table::of_event(&self.resource, &object, version, include, columns)
            }
        };
        encoded(self.media, kind, &value).into()
    }
}
