//! The ways in which an object is sent to the gateway: verbs, encodings, patch types.

use crate::catalogue::{Resource, Subresource};
use crate::growth_check::Sample;
use crate::make::reach;
use crate::meter;
use crate::server::{Call, GatewayResponse, NAMESPACE, Server, call};
use crate::sites::Site;
use std::cell::Cell;
use torana::api::{TypeDef, protobuf};
use torana::apimachinery::Value;
use torana::apimachinery::codec::{cbor, json, yaml};
use torana::json;

/// An encoding of a whole object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Json,
    Yaml,
    Protobuf,
    Cbor,
}

impl Codec {
    pub(crate) fn media(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::Cbor => "application/cbor",
        }
    }

    pub(crate) fn encode(self, object: &Value) -> Option<Vec<u8>> {
        Some(match self {
            Self::Json => json::to_vec(object),
            Self::Yaml => yaml::to_string(object).into_bytes(),
            Self::Protobuf => protobuf::encode(object)?,
            Self::Cbor => cbor::to_vec(object),
        })
    }
}

/// How the long field is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submission {
    /// POST of the object.
    Create(Codec),
    /// PUT of the long object over the short one.
    Update(Codec),
    /// PUT of the long object with its elements reversed, over the long one.
    UpdateLong,
    /// A merge patch that sets the field, on the long object.
    Merge,
    /// A strategic merge patch that sets the field in reverse order, on the long object.
    Strategic,
    /// A JSON patch with an operation for each element, on the long object.
    JsonPatch,
    /// Server-side apply of the long object, twice; the second one is measured.
    Apply,
    /// A list that contains the long object, as a table.
    Table,
    /// A list that contains the long object, as metadata only.
    Metadata,
}

impl Submission {
    /// Every way to send a valid long field.
    pub(crate) const ALL: [Self; 13] = [
        Self::Create(Codec::Json),
        Self::Create(Codec::Yaml),
        Self::Create(Codec::Protobuf),
        Self::Create(Codec::Cbor),
        Self::Update(Codec::Json),
        Self::Update(Codec::Protobuf),
        Self::UpdateLong,
        Self::Merge,
        Self::Strategic,
        Self::JsonPatch,
        Self::Apply,
        Self::Table,
        Self::Metadata,
    ];

    /// The name used in messages.
    pub(crate) fn shown(self) -> String {
        format!("{self:?}")
    }

    /// Whether the long object must be stored first.
    fn stores(self) -> bool {
        !matches!(self, Self::Create(_) | Self::Update(_))
    }
}

/// The resource, subresource and objects of a request.
pub(crate) struct Target<'a> {
    pub server: &'a Server,
    pub resource: &'a Resource,
    /// The status, or another subresource that is written separately.
    pub subresource: Option<&'a Subresource>,
    pub site: &'a Site,
    /// A valid object, or a valid body of the subresource.
    pub base: &'a Value,
    /// A valid object of the resource, needed where the subresource has a kind of its own.
    pub parent: &'a Value,
    pub counter: &'a Cell<usize>,
}

/// A copy of the object with an unused name.
pub(crate) fn renamed(resource: &Resource, base: &Value, i: usize) -> Value {
    let text = json::to_string(base);
    let name = format!("o{i}o");
    let text = text
        .replace("everies", &format!("{name}es"))
        .replace("every", &name)
        .replace("Every", &format!("O{i}o"));
    let text = text.replace("192.0.2.7", &format!("192.0.{}.{}", 3 + i / 250, i % 250));
    let mut object = json::decode(text.as_bytes()).expect("still JSON");
    if resource.namespaced {
        object.set(&["metadata", "namespace"], NAMESPACE);
    }
    object
}

impl Target<'_> {
    /// A number that was not used before.
    pub(crate) fn count(&self) -> usize {
        self.counter.set(self.counter.get() + 1);
        self.counter.get()
    }

    fn next(&self) -> Value {
        renamed(self.resource, self.base, self.count())
    }

    fn with(&self, mut object: Value, value: Value) -> Value {
        *reach(&mut object, self.def(), &self.site.path) = value;
        object
    }

    /// The type of the request body.
    pub(crate) fn def(&self) -> &'static TypeDef {
        self.subresource.and_then(|p| p.def).unwrap_or(self.resource.def)
    }

    /// Whether the subresource has a kind of its own, such as an eviction or a scale.
    fn speaks_another_kind(&self) -> bool {
        self.def().name != self.resource.def.name
    }

    fn to_part(&self, stored: &Value, body: Vec<u8>) -> Call {
        let posts = self.subresource.is_some_and(|p| p.verbs.iter().any(|v| v == "create"));
        let path = format!("{}?dryRun=All", self.item(stored));
        call(if posts { "POST" } else { "PUT" }, path, body)
    }

    fn item(&self, object: &Value) -> String {
        let item = self.resource.item(object.str_at(&["metadata", "name"]));
        match self.subresource {
            Some(subresource) => format!("{item}/{}", subresource.name),
            None => item,
        }
    }

    /// The server's refusal of the object, or null if it accepts the object.
    pub(crate) fn refusal(&self, object: &Value) -> Value {
        // A dry run goes through admission and validation but stores nothing, so it can be repeated.
        let path = format!("{}?dryRun=All", self.resource.collection());
        let answer = match self.subresource {
            None => self.server.send(&call("POST", path, json::to_vec(object))),
            Some(_) => {
                let parent = match self.speaks_another_kind() {
                    true => renamed(self.resource, self.parent, self.count()),
                    false => self.next(),
                };
                let Some(stored) = self.store(&parent) else {
                    return json!({});
                };
                let mut object = rename_as(object, &stored);
                if !self.speaks_another_kind() {
                    // The update of a subresource needs the current version.
                    let version = stored.at(&["metadata", "resourceVersion"]).clone();
                    object.set(&["metadata", "resourceVersion"], version);
                }
                let answer = self.server.send(&self.to_part(&stored, json::to_vec(&object)));
                self.remove(&stored);
                answer
            }
        };
        match answer.is_fine() {
            true => Value::Null,
            false => answer.json(),
        }
    }

    fn store(&self, object: &Value) -> Option<Value> {
        let path = self.resource.collection();
        let made = self.server.send(&call("POST", path, json::to_vec(object)));
        made.is_fine().then(|| made.json())
    }

    fn remove(&self, object: &Value) {
        let item = self.resource.item(object.str_at(&["metadata", "name"]));
        let gone = self
            .server
            .send(&call("DELETE", format!("{item}?gracePeriodSeconds=0"), Vec::new()));
        // There are no controllers to remove finalizers.
        if gone.is_fine() && self.server.get(&item).is_fine() {
            let free = br#"{"metadata":{"finalizers":null}}"#.to_vec();
            let patch = Call {
                content_type: "application/merge-patch+json",
                ..call("PATCH", item, free)
            };
            self.server.send(&patch);
        }
    }

    /// Sends the field with this value and measures the request. `None` if it cannot be sent in that way.
    pub(crate) fn run(&self, submission: Submission, value: &Value) -> Option<Sample> {
        if self.speaks_another_kind() {
            let Submission::Create(codec) = submission else {
                return None;
            };
            let stored = self.store(&renamed(self.resource, self.parent, self.count()))?;
            let body = rename_as(&self.with(self.base.clone(), value.clone()), &stored);
            let call = self.to_part(&stored, codec.encode(&body)?);
            let call = Call {
                content_type: codec.media(),
                ..call
            };
            let sample = self.timed(&call);
            self.remove(&stored);
            return Some(sample);
        }
        let short = self.next();
        let long = self.with(short.clone(), value.clone());
        if let (Submission::Create(codec), None) = (submission, self.subresource) {
            let path = format!("{}?dryRun=All", self.resource.collection());
            let call = Call {
                content_type: codec.media(),
                ..call("POST", path, codec.encode(&long)?)
            };
            return Some(self.timed(&call));
        }
        let stored = self.store(if submission.stores() && self.subresource.is_none() {
            &long
        } else {
            &short
        })?;
        let sample = self.over(submission, &stored, value);
        self.remove(&stored);
        sample
    }

    fn over(&self, submission: Submission, stored: &Value, value: &Value) -> Option<Sample> {
        let item = self.item(stored);
        let dry = format!("{item}?dryRun=All");
        if submission.stores() && self.subresource.is_some() {
            let long = self.with(stored.clone(), value.clone());
            let answer = self.server.send(&call("PUT", item.clone(), json::to_vec(&long)));
            if !answer.is_fine() {
                return None;
            }
        }
        // Controllers that write the same object (its status, finalizers) may have changed it.
        let now = self.resource.item(stored.str_at(&["metadata", "name"]));
        let stored = &self.server.get(&now).json();
        let long = self.with(stored.clone(), value.clone());
        let patch = |kind: &'static str, body: Value| {
            let call = Call {
                content_type: kind,
                ..call("PATCH", dry.clone(), json::to_vec(&body))
            };
            Some(self.timed(&call))
        };
        match submission {
            Submission::Create(codec) | Submission::Update(codec) => {
                let call = Call {
                    content_type: codec.media(),
                    ..call("PUT", dry, codec.encode(&long)?)
                };
                Some(self.timed(&call))
            }
            Submission::UpdateLong => {
                let turned = self.with(stored.clone(), reversed(value));
                Some(self.timed(&call("PUT", dry, json::to_vec(&turned))))
            }
            Submission::Merge => patch("application/merge-patch+json", self.patch(value.clone())),
            Submission::Strategic => patch("application/strategic-merge-patch+json", self.patch(reversed(value))),
            Submission::JsonPatch => patch("application/json-patch+json", self.operations(stored, value)?),
            Submission::Apply => {
                let path = format!("{item}?fieldManager=fuzzer&force=true");
                let mut config = self.with(
                    json!({"apiVersion": (long.get("apiVersion").clone()), "kind": (long.get("kind").clone()),
                           "metadata": {"name": (long.at(&["metadata", "name"]).clone())}}),
                    value.clone(),
                );
                config.unset(&["metadata", "managedFields"]);
                let apply = |value: &Value, path: String| Call {
                    content_type: "application/apply-patch+yaml",
                    ..call("PATCH", path, json::to_vec(value))
                };
                if !self.server.send(&apply(&config, path.clone())).is_fine() {
                    // The apply is refused; the cost of the refusal is measured instead.
                    return Some(self.timed(&apply(&config, format!("{path}&dryRun=All"))));
                }
                let turned = self.with(config, reversed(value));
                Some(self.timed(&apply(&turned, format!("{path}&dryRun=All"))))
            }
            Submission::Table | Submission::Metadata => {
                let kind = if submission == Submission::Table {
                    "Table"
                } else {
                    "PartialObjectMetadataList"
                };
                let accept = match kind {
                    "Table" => "application/json;as=Table;g=meta.k8s.io;v=v1",
                    _ => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                };
                let mut sample = self.timed(&Call {
                    accept,
                    ..call("GET", self.resource.collection(), Vec::new())
                });
                // The input of a list is the stored object, not the empty request body.
                sample.sent = json::to_vec(stored).len();
                Some(sample)
            }
        }
    }

    /// A patch that sets the field only. List elements on the path contain what a merge needs to find them.
    fn patch(&self, value: Value) -> Value {
        let whole = self.with(self.base.clone(), value);
        let mut body = Value::object();
        if let crate::sites::Step::Field(first) = self.site.path[0] {
            let subresource = match self.site.path.get(1) {
                Some(crate::sites::Step::Field(second)) => {
                    let mut subresource = Value::object();
                    subresource.set(&[second], whole.at(&[first, second]).clone());
                    subresource
                }
                _ => whole.get(first).clone(),
            };
            body.set(&[first], subresource);
        }
        body
    }

    /// JSON patch operations for each element, alternately replaced and tested.
    fn operations(&self, stored: &Value, value: &Value) -> Option<Value> {
        use crate::sites::Step;
        let mut pointer = String::new();
        for step in &self.site.path {
            match step {
                Step::Field(name) => pointer.push_str(&format!("/{name}")),
                Step::First => pointer.push_str("/0"),
                Step::Member => pointer.push_str("/k"),
            }
        }
        let _ = stored;
        let operation =
            |at: String, v: &Value| json!({"op": "replace", "path": (format!("{pointer}/{at}")), "value": (v.clone())});
        let operations = match value {
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(i, v)| operation(i.to_string(), v))
                .collect(),
            Value::Object(members) => members
                .iter()
                .map(|(k, v)| operation(k.replace('/', "~1"), v))
                .collect(),
            _ => return None,
        };
        Some(Value::Array(operations))
    }

    fn timed(&self, call: &Call) -> Sample {
        let (cost, answer) = meter::measure(|| self.server.send(call));
        let GatewayResponse { code, .. } = answer;
        Sample {
            cost,
            sent: call.body.len(),
            code,
        }
    }
}

fn rename_as(object: &Value, stored: &Value) -> Value {
    let mut object = object.clone();
    object.set(&["metadata", "name"], stored.str_at(&["metadata", "name"]));
    object
}

fn reversed(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().rev().cloned().collect()),
        other => other.clone(),
    }
}
