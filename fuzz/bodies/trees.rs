//! Bodies whose input selects a tree instead of being its text: mutated text rarely gets as far as the
//! directives of a patch or the elements of a field set.

use torana::api::apply_schema::ApplyType;
use torana::api::patch_schema::PatchType;
use torana::api::{self, TypeDef, decode};
use torana::apimachinery::apply::managed::Writer;
use torana::apimachinery::apply::{self, ApplyRequest, FieldSet};
use torana::apimachinery::codec::{cbor, json, yaml};
use torana::apimachinery::patch::{Decoding, json_patch::JsonPatch, merge, shown, strategic};
use torana::apimachinery::value::{Map, Value};

/// A sequence of choices: the input's bytes, then a pseudo-random sequence seeded by them.
struct Choices<'a> {
    data: &'a [u8],
    state: u64,
}

impl<'a> Choices<'a> {
    fn new(data: &'a [u8]) -> Self {
        let mix = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
        let state = data.iter().fold(0xcbf2_9ce4_8422_2325, mix);
        Self { data, state: state | 1 }
    }

    fn below(&mut self, n: usize) -> usize {
        if let [first, rest @ ..] = self.data {
            self.data = rest;
            return usize::from(*first) % n;
        }
        // xorshift64*
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    fn word(&mut self, words: &[&'static str]) -> &'static str {
        words[self.below(words.len())]
    }

    fn tree(&mut self, keys: &[&'static str], values: &[&'static str], depth: usize) -> Value {
        match self.below(if depth > 6 { 6 } else { 16 }) {
            0 => Value::Null,
            1 => Value::Bool(true),
            2 => Value::Int([0, 80, -1, i64::MAX][self.below(4)]),
            3 => Value::Float(1.5),
            4 | 5 => Value::from(self.word(values)),
            6..=9 => Value::Array((0..self.below(4)).map(|_| self.tree(keys, values, depth + 1)).collect()),
            _ => self.object(keys, values, depth),
        }
    }

    fn object(&mut self, keys: &[&'static str], values: &[&'static str], depth: usize) -> Value {
        let n = self.below(5);
        Value::Object(
            (0..n)
                .map(|_| (self.word(keys), self.tree(keys, values, depth + 1)))
                .collect::<Map>(),
        )
    }
}

const FIELDS: &[&str] = &[
    "spec",
    "metadata",
    "containers",
    "name",
    "image",
    "ports",
    "containerPort",
    "protocol",
    "env",
    "value",
    "volumes",
    "emptyDir",
    "configMap",
    "labels",
    "finalizers",
    "nodeSelector",
    "tolerations",
    "status",
    "conditions",
    "type",
    "x",
];

const DIRECTIVES: &[&str] = &[
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$setElementOrder/finalizers",
    "$setElementOrder/ports",
    "$deleteFromPrimitiveList/finalizers",
    "$setElementOrder/",
    "$deleteFromPrimitiveList/x",
    "$setElementOrder/volumes",
    "spec",
    "metadata",
    "containers",
    "name",
    "image",
    "ports",
    "containerPort",
    "volumes",
    "emptyDir",
    "configMap",
    "labels",
    "finalizers",
    "x",
];

const WORDS: &[&str] = &[
    "a", "b", "v", "delete", "replace", "merge", "emptyDir", "TCP", "80", "", "f:a",
];

const ELEMENTS: &[&str] = &[
    "f:spec",
    "f:metadata",
    "f:containers",
    "f:name",
    "f:image",
    "f:labels",
    "f:l",
    "f:finalizers",
    "f:volumes",
    "f:ports",
    ".",
    "k:{\"name\":\"a\"}",
    "k:{\"name\":\"b\"}",
    "k:{\"name\":null}",
    "k:{}",
    "k:{\"containerPort\":80,\"protocol\":\"TCP\"}",
    "k:{\"containerPort\":80.0,\"x\":[1]}",
    "v:\"a\"",
    "v:{}",
    "v:1",
    "i:0",
    "i:-1",
    "i:99999999999",
    "f:",
    "z:q",
];

fn pods() -> &'static TypeDef {
    api::by_gvk("", "v1", "Pod").expect("the table has it")
}

fn pod() -> Value {
    let mut pod = torana::json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "d", "labels": {"l": "1"}, "finalizers": ["a", "b"]},
        "spec": {"containers": [
            {"name": "a", "image": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}], "env": [{"name": "a", "value": "v"}]},
            {"name": "b", "image": "b"}],
            "volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {"a": "b"}}});
    decode::normalize(pods(), &mut pod).expect("a pod");
    pod
}

/// Every patch directive in every place: the patch applies or is refused.
pub(crate) fn patch_directives(data: &[u8]) {
    let Value::Object(patch) = Choices::new(data).object(DIRECTIVES, WORDS, 0) else {
        return;
    };
    let mut doc = pod();
    if strategic::apply(&mut doc, patch, PatchType::Def(pods())).is_ok() {
        let _ = decode::normalize(pods(), &mut doc);
    }
}

fn elements(c: &mut Choices<'_>, depth: usize) -> Value {
    let n = if depth > 6 { 0 } else { c.below(4) };
    Value::Object(
        (0..n)
            .map(|_| (c.word(ELEMENTS), elements(c, depth + 1)))
            .collect::<Map>(),
    )
}

fn entry(c: &mut Choices<'_>) -> Value {
    let fields = match c.below(8) {
        0 => c.tree(ELEMENTS, WORDS, 0),
        _ => elements(c, 0),
    };
    torana::json!({"manager": (c.word(&["m", "n", "kubectl", "ancient-changes", ""])),
        "operation": (c.word(&["Apply", "Update", "Apply", "Update", "Nope"])),
        "apiVersion": (c.word(&["v1", "v1", "v2", "apps/v1", ""])),
        "subresource": (c.word(&["", "", "status"])),
        "time": (c.word(&["2026-01-01T00:00:00Z", "x", ""])),
        "fieldsType": (c.word(&["FieldsV1", "FieldsV1", "FieldsV1", "V2"])), "fieldsV1": fields})
}

/// A decoded field set encodes to one that decodes to the same set.
pub(crate) fn field_set(data: &[u8]) {
    let mut c = Choices::new(data);
    let chosen = c.tree(ELEMENTS, WORDS, 0);
    for v in [json::decode(data).unwrap_or_default(), chosen, elements(&mut c, 0)] {
        if let Ok(set) = FieldSet::decode(&v) {
            let text = json::to_vec(&set.clone().encode());
            let again = FieldSet::decode(&json::decode(&text).expect("JSON")).expect("what we write, we read");
            // The empty set is encoded as a marker object and does not decode to an equal set.
            assert!(again == set || set.is_empty());
            set.for_each(&mut |path| assert!(!path.is_empty()));
        }
    }
}

/// Arbitrary managed fields: updates and applies succeed or fail with a status, and after a forced apply the
/// same apply changes nothing.
pub(crate) fn hostile_managers(data: &[u8]) {
    let mut c = Choices::new(data);
    let managers = (0..c.below(13)).map(|_| entry(&mut c)).collect::<Vec<_>>();
    let mut live = pod();
    live.set(&["metadata", "managedFields"], managers);
    if decode::normalize(pods(), &mut live).is_err() {
        return;
    }
    let writer = Writer {
        manager: c.word(&["m", "kubectl", "fuzz"]),
        subresource: "",
        api_version: "v1",
        now: "2026-02-01T00:00:00Z",
    };
    let reset = FieldSet::of_fields(&[&["status"]]);
    let mut new = live.clone();
    new.set(&["spec", "nodeName"], "n");
    if c.below(3) == 0 {
        let sent = (0..c.below(3)).map(|_| entry(&mut c)).collect::<Vec<_>>();
        new.set(&["metadata", "managedFields"], sent);
    }
    apply::update_managed_fields(ApplyType::Root(pods()), Some(&live), &mut new, &writer, &reset);

    let mut config = match c.below(3) {
        0 => torana::json!({"spec": {"containers": [{"name": "a", "image": "z"}]}}),
        1 => torana::json!({"metadata": {"labels": {"l": "2", "m": "3"}, "finalizers": ["c", "a"]}}),
        _ => c.object(FIELDS, WORDS, 0),
    };
    config.set(&["apiVersion"], "v1");
    config.set(&["kind"], "Pod");
    for force in [false, true] {
        let request = ApplyRequest {
            writer,
            force,
            reset: &reset,
        };
        let Ok(once) = apply::apply(ApplyType::Root(pods()), Some(&live), &config, &request) else {
            continue;
        };
        let mut object = once.object;
        // Without managed fields, the next apply attributes existing fields to `before-first-apply`.
        if object.at(&["metadata", "managedFields"]).is_null() {
            continue;
        }
        let written = object.clone();
        if decode::normalize(pods(), &mut object).is_err() || object != written {
            continue;
        }
        let twice = apply::apply(ApplyType::Root(pods()), Some(&object), &config, &request);
        assert_eq!(twice.map(|a| a.object), Ok(object), "{}", json::to_string(&config));
    }
}

/// A tree that its type accepts has no decoder error, and one with a decoder error is refused.
pub(crate) fn decoder_errors(data: &[u8]) {
    let mut c = Choices::new(data);
    let mut tree = pod();
    match c.below(2) {
        0 => tree = c.object(FIELDS, WORDS, 0),
        _ => {
            let path = [c.word(&["spec", "metadata"]), c.word(FIELDS)];
            tree.set(&path, c.tree(FIELDS, WORDS, 2));
        }
    }
    let text = json::to_vec(&tree);
    let error = decode::explain(pods(), &text);
    let refused = decode::normalize(pods(), &mut tree).is_err();
    assert!(
        refused || error.is_none(),
        "{error:?} {}",
        String::from_utf8_lossy(&text)
    );
    // Any bytes, which need not be JSON.
    let _ = decode::explain(pods(), data);
}

/// A tree of any shape through the codecs, and as a patch of each type. The text of a patched document, which errors
/// show, is that of the patched tree.
pub(crate) fn any_tree(data: &[u8]) {
    const KEYS: &[&str] = &[
        "op", "path", "from", "value", "a", "~1", "-", "yes", "1", "<<", "&a", "",
    ];
    const VALUES: &[&str] = &[
        "add",
        "remove",
        "move",
        "copy",
        "test",
        "/metadata/finalizers/-",
        "/spec/containers/0",
        "",
        "/",
        "/metadata/labels/l",
        "/spec/containers/01",
        "~",
        "on",
        "0x1f",
        "1e3",
        "- a",
        "a: b",
        "\u{85}",
        "|",
        "null",
    ];
    let mut c = Choices::new(data);
    let v = c.tree(KEYS, VALUES, 0);
    assert_eq!(json::decode(&json::to_vec(&v)).as_ref(), Ok(&v));
    assert_eq!(cbor::decode(&cbor::to_vec(&v)).as_ref(), Ok(&v));
    assert_eq!(yaml::decode(yaml::to_string(&v).as_bytes()).as_ref(), Ok(&v));
    let op = |c: &mut Choices<'_>| {
        let value = c.tree(KEYS, VALUES, 3);
        torana::json!({"op": (c.word(&VALUES[..6])), "path": (c.word(VALUES)), "from": (c.word(VALUES)), "value": value})
    };
    let ops: Vec<Value> = (0..c.below(5)).map(|_| op(&mut c)).collect();
    for patch in [&v, &Value::Array(ops)] {
        let (text, document) = (json::to_string(patch), json::to_string(&pod()));
        let same = |shown: Option<String>, tree: &Value| {
            let shown = shown.map(|text| json::decode(text.as_bytes()));
            assert_eq!(shown.as_ref(), Some(&Ok(tree.clone())), "{text}");
        };
        if let Ok(p) = JsonPatch::decode(text.as_bytes(), Decoding::Lenient)
            && let Ok(tree) = p.apply(pod())
        {
            same(shown::operated(&document, &text), &tree);
        }
        if let Ok((patch, _)) = merge::decode(text.as_bytes(), Decoding::Lenient) {
            let mut tree = pod();
            merge::apply(&mut tree, patch);
            if text.starts_with('{') {
                same(shown::merged(&document, &text), &tree);
            }
        }
    }
}
