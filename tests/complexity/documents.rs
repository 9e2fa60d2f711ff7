//! Bodies and queries that no object of the schema table produces: features of an encoding or a patch type
//! beyond the tree they describe. All are sent to ConfigMaps or Nodes, because decoders do not depend on the
//! kind.

use crate::server::{Call, NAMESPACE, call};
use torana::api::protobuf;
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;
use torana::apimachinery::codec::protobuf::{envelope, put_bytes, put_message};
use torana::json;

/// The name of the object that patches are applied to.
pub(crate) const TARGET: &str = "target";

/// A family of requests, parametrised by length.
pub(crate) struct Document {
    pub name: &'static str,
    /// The initial lengths; the first is an eighth of the second.
    pub lengths: [usize; 2],
    /// The ConfigMap to patch, for a length; `None` if the request is not a patch.
    pub stored: Option<fn(usize) -> Value>,
    pub call: fn(usize) -> Call,
}

const COUNTS: [usize; 2] = [128, 1024];
const BYTES: [usize; 2] = [2 << 10, 16 << 10];

fn collection() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps?dryRun=All")
}

fn item(query: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{TARGET}?dryRun=All{query}")
}

fn post(content_type: &'static str, body: impl Into<Vec<u8>>) -> Call {
    Call {
        content_type,
        ..call("POST", collection(), body.into())
    }
}

fn yaml(body: &str) -> Call {
    post(
        "application/yaml",
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\n{body}"),
    )
}

/// A ConfigMap in JSON with `more` inserted among its members.
fn text(more: &str) -> Call {
    let body = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},{more}}}"#);
    post("application/json", body)
}

fn strict(call: Call) -> Call {
    Call {
        path: format!("{}&fieldValidation=Strict", call.path),
        ..call
    }
}

fn patch(kind: &'static str, query: &str, body: impl Into<Vec<u8>>) -> Call {
    Call {
        content_type: kind,
        ..call("PATCH", item(query), body.into())
    }
}

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// `n` texts joined by commas.
/// An apply of a ConfigMap with `n` keys.
fn apply_of_data(n: usize, query: &str) -> Call {
    let data = joined(n, |i| format!(r#""k{i:06}":"w""#));
    let body =
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{TARGET}"}},"data":{{{data}}}}}"#);
    patch(APPLY, query, body)
}

fn joined(n: usize, one: impl Fn(usize) -> String) -> String {
    (0..n).map(one).collect::<Vec<_>>().join(",")
}

fn config_map(metadata: Value, data: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    object.set(&["metadata"], metadata);
    object.set(&["metadata", "name"], TARGET);
    object.set(&["data"], data);
    object
}

fn with_data(n: usize) -> Value {
    config_map(
        Value::object(),
        crate::make::pairs((0..n).map(|i| (format!("k{i:06}"), json!("v")))),
    )
}

fn with_finalizers(n: usize) -> Value {
    let finalizers = (0..n).map(|i| json!(format!("example.com/f{i}"))).collect();
    let mut metadata = Value::object();
    metadata.set(&["finalizers"], Value::Array(finalizers));
    config_map(metadata, Value::object())
}

fn with_owners(n: usize) -> Value {
    let owner = |i: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": (format!("u{i}"))});
    let mut metadata = Value::object();
    metadata.set(&["ownerReferences"], Value::Array((0..n).map(owner).collect()));
    config_map(metadata, Value::object())
}

/// A ConfigMap with `n` field managers, each of which owns one field.
fn with_managers(n: usize) -> Value {
    let mut object = with_data(n);
    let entry = |i: usize| {
        json!({"manager": (format!("m{i}")), "operation": "Apply", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
               "fieldsType": "FieldsV1", "fieldsV1": {"f:data": (fields([i]))}})
    };
    object.set(
        &["metadata", "managedFields"],
        Value::Array((0..n).map(entry).collect()),
    );
    object
}

fn fields(of: impl IntoIterator<Item = usize>) -> Value {
    crate::make::pairs(of.into_iter().map(|i| (format!("f:k{i:06}"), Value::object())))
}

fn message(members: impl FnOnce(&mut Vec<u8>)) -> Call {
    let mut out = Vec::new();
    envelope(&mut out, "v1", "ConfigMap", members);
    post("application/vnd.kubernetes.protobuf", out)
}

/// A number with this many digits.
fn digits(n: usize) -> String {
    "1".repeat(n)
}

/// Every family.
pub(crate) const ALL: &[Document] = &[
    Document {
        name: "YAML: aliases of a long text",
        lengths: COUNTS,
        stored: None,
        call: |n| {
            yaml(&format!(
                "data:\n  a: &a {}\n{}",
                "x".repeat(8 * n),
                lines(n, |i| format!("  k{i}: *a"))
            ))
        },
    },
    Document {
        name: "YAML: aliases of a long list",
        lengths: COUNTS,
        stored: None,
        call: |n| {
            yaml(&format!(
                "x: &a [{}]\ny:\n{}",
                "1,".repeat(n),
                lines(n, |_| "- *a".into())
            ))
        },
    },
    Document {
        name: "YAML: aliases of aliases",
        lengths: [2, 16],
        stored: None,
        call: |n| {
            let level = |i: usize| match i {
                0 => "  l0: &l0 [x]".to_owned(),
                i => format!("  l{i}: &l{i} [*l{0}, *l{0}]", i - 1),
            };
            yaml(&format!("data:\n{}", lines(n, level)))
        },
    },
    Document {
        name: "YAML: merge keys of a long map",
        lengths: COUNTS,
        stored: None,
        call: |n| {
            let long = joined(n, |i| format!("k{i}: v"));
            yaml(&format!("x: &m {{{long}}}\ny:\n{}", lines(n, |_| "- {<<: *m}".into())))
        },
    },
    Document {
        name: "YAML: a merge key of many maps",
        lengths: COUNTS,
        stored: None,
        call: |n| {
            yaml(&format!(
                "x: &m {{a: b}}\ndata: {{<<: [{}]}}",
                joined(n, |_| "*m".into())
            ))
        },
    },
    Document {
        name: "YAML: anchors",
        lengths: COUNTS,
        stored: None,
        call: |n| yaml(&format!("data:\n{}", lines(n, |i| format!("  k{i}: &a{i} v")))),
    },
    Document {
        name: "YAML: equal keys",
        lengths: COUNTS,
        stored: None,
        call: |n| strict(yaml(&format!("data:\n{}", lines(n, |_| "  k: v".into())))),
    },
    Document {
        name: "YAML: a text of many lines",
        lengths: BYTES,
        stored: None,
        call: |n| yaml(&format!("data:\n  k: \"{}\"", "a\n\n   ".repeat(n / 6))),
    },
    Document {
        name: "YAML: comments",
        lengths: BYTES,
        stored: None,
        call: |n| yaml(&"#\n".repeat(n / 2)),
    },
    Document {
        name: "YAML: documents",
        lengths: COUNTS,
        stored: None,
        call: |n| yaml(&"---\n".repeat(n)),
    },
    Document {
        name: "YAML: explicit keys and open brackets",
        lengths: COUNTS,
        stored: None,
        call: |n| yaml(&format!("x: {}", "{? ".repeat(n))),
    },
    Document {
        name: "JSON: equal keys",
        lengths: COUNTS,
        stored: None,
        call: |n| strict(text(&format!("\"data\":{{{}}}", joined(n, |_| r#""k":"v""#.into())))),
    },
    Document {
        name: "JSON: every key twice",
        lengths: COUNTS,
        stored: None,
        call: |n| {
            strict(text(&format!(
                "\"data\":{{{}}}",
                joined(2 * n, |i| format!(r#""k{}":"v""#, i / 2))
            )))
        },
    },
    Document {
        name: "JSON: unknown fields",
        lengths: COUNTS,
        stored: None,
        call: |n| strict(text(&joined(n, |i| format!(r#""k{i}":1"#)))),
    },
    Document {
        name: "JSON: unknown fields that are warned of",
        lengths: COUNTS,
        stored: None,
        call: |n| text(&joined(n, |i| format!(r#""k{i}":1"#))),
    },
    Document {
        name: "JSON: the same field, nested deep, many times",
        lengths: COUNTS,
        stored: None,
        call: |n| strict(text(&joined(n, |_| r#""metadata":{"labels":{"a":"b"}}"#.into()))),
    },
    Document {
        name: "JSON: escapes",
        lengths: BYTES,
        stored: None,
        call: |n| text(&format!(r#""data":{{"k":"{}"}}"#, r"\ud83d\ude00\n".repeat(n / 14))),
    },
    Document {
        name: "JSON: digits",
        lengths: BYTES,
        stored: None,
        call: |n| {
            text(&format!(
                r#""data":{{"k":{}}},"x":{}.{}e{}"#,
                digits(n),
                digits(n),
                digits(n),
                digits(n)
            ))
        },
    },
    Document {
        name: "JSON: white space",
        lengths: BYTES,
        stored: None,
        call: |n| text(&format!("{}\"data\":{{}}", " \n".repeat(n / 2))),
    },
    Document {
        name: "JSON: a broken end",
        lengths: COUNTS,
        stored: None,
        call: |n| text(&format!("\"data\":{{{}}}}}}}", joined(n, |i| format!(r#""k{i}":"v""#)))),
    },
    Document {
        name: "protobuf: the same message many times",
        lengths: COUNTS,
        stored: None,
        call: |n| {
            message(|out| {
                for i in 0..n {
                    // Field 1, metadata: a name and a finalizer.
                    put_message(out, 1, |m| {
                        put_bytes(m, 1, b"a");
                        put_bytes(m, 14, format!("example.com/f{i}").as_bytes());
                    });
                }
            })
        },
    },
    Document {
        name: "protobuf: entries of a map, with equal keys and others",
        lengths: COUNTS,
        stored: None,
        call: |n| {
            message(|out| {
                put_message(out, 1, |m| put_bytes(m, 1, b"a"));
                for i in 0..n {
                    put_message(out, 2, |m| {
                        put_bytes(m, 1, format!("k{}", if i % 2 == 0 { i } else { 1 }).as_bytes());
                        put_bytes(m, 2, b"v");
                    });
                }
            })
        },
    },
    Document {
        name: "protobuf: unknown fields",
        lengths: COUNTS,
        stored: None,
        call: |n| message(|out| (0..n).for_each(|i| put_bytes(out, 100 + (i % 20) as u8, b"v"))),
    },
    Document {
        name: "CBOR: equal keys",
        lengths: COUNTS,
        stored: None,
        call: |n| {
            // {"apiVersion": "v1", …} of indefinite length, then `n` times "k": 1.
            let mut body = b"\xd9\xd9\xf7\xbf\x4aapiVersion\x42v1\x44kind\x49ConfigMap".to_vec();
            (0..n).for_each(|_| body.extend(b"\x41k\x01"));
            body.push(0xff);
            post("application/cbor", body)
        },
    },
    Document {
        name: "CBOR: a text of many chunks",
        lengths: COUNTS,
        stored: None,
        call: |n| {
            let mut body = b"\xd9\xd9\xf7\xbf\x4aapiVersion\x42v1\x44kind\x49ConfigMap\x41x\x5f".to_vec();
            (0..n).for_each(|_| body.extend(b"\x41k"));
            body.extend([0xff, 0xff]);
            post("application/cbor", body)
        },
    },
    Document {
        name: "JSON patch: elements put in front of others",
        lengths: COUNTS,
        stored: Some(|_| with_finalizers(1)),
        call: |n| {
            let add = |i| format!(r#"{{"op":"add","path":"/metadata/finalizers/0","value":"example.com/g{i}"}}"#);
            patch(JSON_PATCH, "", format!("[{}]", joined(n, add)))
        },
    },
    Document {
        name: "JSON patch: the first element removed",
        lengths: COUNTS,
        stored: Some(with_finalizers),
        call: |n| {
            let remove = |_| r#"{"op":"remove","path":"/metadata/finalizers/0"}"#.to_owned();
            patch(JSON_PATCH, "", format!("[{}]", joined(n, remove)))
        },
    },
    Document {
        name: "JSON patch: the first element moved to the end",
        lengths: COUNTS,
        stored: Some(with_finalizers),
        call: |n| {
            let moved = r#"{"op":"move","from":"/metadata/finalizers/0","path":"/metadata/finalizers/-"}"#;
            patch(JSON_PATCH, "", format!("[{}]", joined(n, |_| moved.to_owned())))
        },
    },
    Document {
        name: "JSON patch: a long value copied",
        lengths: COUNTS,
        stored: Some(with_finalizers),
        call: |n| {
            let copy = |i| format!(r#"{{"op":"copy","from":"/metadata/finalizers","path":"/x{i}"}}"#);
            patch(JSON_PATCH, "", format!("[{}]", joined(n, copy)))
        },
    },
    Document {
        name: "JSON patch: a value copied into itself",
        lengths: [4, 32],
        stored: Some(|_| with_finalizers(4)),
        call: |n| {
            let copy = |i| format!(r#"{{"op":"copy","from":"/metadata","path":"/metadata/x{i}"}}"#);
            patch(JSON_PATCH, "", format!("[{}]", joined(n, copy)))
        },
    },
    Document {
        name: "JSON patch: a long list tested",
        lengths: COUNTS,
        stored: Some(with_finalizers),
        call: |n| {
            let test = |i| format!(r#"{{"op":"test","path":"/metadata/finalizers/{i}","value":"example.com/f{i}"}}"#);
            patch(JSON_PATCH, "", format!("[{}]", joined(n, test)))
        },
    },
    Document {
        name: "JSON patch: keys added and removed",
        lengths: COUNTS,
        stored: Some(with_data),
        call: |n| {
            let add = |i| {
                format!(r#"{{"op":"add","path":"/data/a{i}","value":"v"}},{{"op":"remove","path":"/data/k{i:06}"}}"#)
            };
            patch(JSON_PATCH, "", format!("[{}]", joined(n, add)))
        },
    },
    Document {
        name: "merge patch: keys added and removed",
        lengths: COUNTS,
        stored: Some(with_data),
        call: |n| {
            let change = |i| format!(r#""k{i:06}":null,"a{i}":"v""#);
            patch(MERGE, "", format!(r#"{{"data":{{{}}}}}"#, joined(n, change)))
        },
    },
    Document {
        name: "strategic merge patch: elements of a set deleted",
        lengths: COUNTS,
        stored: Some(with_finalizers),
        call: |n| {
            let list = joined(n, |i| format!(r#""example.com/f{i}""#));
            patch(
                STRATEGIC,
                "",
                format!(r#"{{"metadata":{{"$deleteFromPrimitiveList/finalizers":[{list}]}}}}"#),
            )
        },
    },
    Document {
        name: "strategic merge patch: the order of a set",
        lengths: COUNTS,
        stored: Some(with_finalizers),
        call: |n| {
            let list = joined(n, |i| format!(r#""example.com/f{}""#, n - 1 - i));
            let body =
                format!(r#"{{"metadata":{{"$setElementOrder/finalizers":[{list}],"finalizers":["example.com/f0"]}}}}"#);
            patch(STRATEGIC, "", body)
        },
    },
    Document {
        name: "strategic merge patch: the order of a list of objects",
        lengths: COUNTS,
        stored: Some(with_owners),
        call: |n| {
            let list = joined(n, |i| format!(r#"{{"uid":"u{}"}}"#, n - 1 - i));
            let body = format!(
                r#"{{"metadata":{{"$setElementOrder/ownerReferences":[{list}],"ownerReferences":[{{"uid":"u0","name":"p"}}]}}}}"#
            );
            patch(STRATEGIC, "", body)
        },
    },
    Document {
        name: "strategic merge patch: objects of a list deleted",
        lengths: COUNTS,
        stored: Some(with_owners),
        call: |n| {
            let list = joined(n, |i| format!(r#"{{"$patch":"delete","uid":"u{i}"}}"#));
            patch(
                STRATEGIC,
                "",
                format!(r#"{{"metadata":{{"ownerReferences":[{list}]}}}}"#),
            )
        },
    },
    Document {
        name: "strategic merge patch: keys that are retained",
        lengths: COUNTS,
        stored: Some(with_data),
        call: |n| {
            let list = joined(n, |i| format!(r#""k{i:06}""#));
            patch(STRATEGIC, "", format!(r#"{{"data":{{"$retainKeys":[{list}]}}}}"#))
        },
    },
    Document {
        name: "apply: conflicts with many managers",
        lengths: COUNTS,
        stored: Some(with_managers),
        call: |n| apply_of_data(n, "&fieldManager=fuzzer"),
    },
    Document {
        name: "apply: fields taken from many managers",
        lengths: COUNTS,
        stored: Some(with_managers),
        call: |n| apply_of_data(n, "&fieldManager=fuzzer&force=true"),
    },
    Document {
        name: "update: managed fields of many managers",
        lengths: COUNTS,
        stored: Some(with_managers),
        call: |n| {
            let mut object = with_managers(n);
            object.set(&["data"], with_data(n / 2).get("data").clone());
            call("PUT", item("&fieldManager=fuzzer"), json::to_vec(&object))
        },
    },
    Document {
        name: "create in protobuf: managed fields of many managers",
        lengths: COUNTS,
        stored: None,
        call: |n| {
            let body = protobuf::encode(&with_managers(n)).expect("ConfigMaps have messages");
            post("application/vnd.kubernetes.protobuf", body)
        },
    },
    Document {
        name: "selector: values of a label",
        lengths: COUNTS,
        stored: Some(|_| with_data(1)),
        call: |n| list("labelSelector", &format!("a in ({})", joined(n, |i| format!("v{i}")))),
    },
    Document {
        name: "selector: requirements",
        lengths: COUNTS,
        stored: Some(|_| with_data(1)),
        call: |n| list("labelSelector", &joined(n, |i| format!("k{i}!=v"))),
    },
    Document {
        name: "selector: fields",
        lengths: COUNTS,
        stored: Some(|_| with_data(1)),
        call: |n| list("fieldSelector", &joined(n, |i| format!("metadata.name!=n{i}"))),
    },
    Document {
        name: "selector: brackets",
        lengths: COUNTS,
        stored: Some(|_| with_data(1)),
        call: |n| list("labelSelector", &"a in (b),(".repeat(n)),
    },
    Document {
        name: "options of a deletion: unknown fields",
        lengths: COUNTS,
        stored: Some(|_| with_data(1)),
        call: |n| {
            call(
                "DELETE",
                item(""),
                format!("{{{}}}", joined(n, |i| format!(r#""k{i}":1"#))).into_bytes(),
            )
        },
    },
];

fn lines(n: usize, one: impl Fn(usize) -> String) -> String {
    (0..n).map(one).collect::<Vec<_>>().join("\n")
}

/// A list request with a selector.
fn list(parameter: &str, selector: &str) -> Call {
    let escape = |b: u8| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b',' => (b as char).to_string(),
        b => format!("%{b:02X}"),
    };
    let selector: String = selector.bytes().map(escape).collect();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?{parameter}={selector}");
    call("GET", path, Vec::new())
}
