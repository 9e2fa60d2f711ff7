use super::*;
use crate::json;

/// Decodes a message one level deep into `(field number, content)` pairs.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn number(bytes: &mut &[u8]) -> u64 {
        let (mut n, mut shift) = (0, 0);
        loop {
            let b = bytes[0];
            *bytes = &bytes[1..];
            n |= u64::from(b & 0x7f) << shift;
            shift += 7;
            if b < 0x80 {
                return n;
            }
        }
    }
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let tag = number(&mut bytes);
        let content = match tag & 7 {
            0 => number(&mut bytes).to_le_bytes().to_vec(),
            wire => {
                let len = if wire == 1 { 8 } else { number(&mut bytes) as usize };
                let (content, rest) = bytes.split_at(len);
                bytes = rest;
                content.to_vec()
            }
        };
        out.push((tag >> 3, content));
    }
    out
}

/// The content reached by following `path`, whose fields must each occur exactly once.
fn at(bytes: &[u8], path: &[u64]) -> Vec<u8> {
    path.iter().fold(bytes.to_vec(), |b, n| {
        let mut found: Vec<_> = fields(&b).into_iter().filter(|f| f.0 == *n).collect();
        assert_eq!(found.len(), 1, "field {n} of {path:?}");
        found.remove(0).1
    })
}

fn text(bytes: &[u8], path: &[u64]) -> String {
    String::from_utf8(at(bytes, path)).unwrap()
}

#[test]
fn schemas_are_named_fields_with_yaml_extensions() {
    let document = json!({"definitions": {"a.Kind": {
        "type": "object",
        "required": ["x"],
        "properties": {"x-y": {"$ref": "#/definitions/b", "description": "refers"}},
        "additionalProperties": {"type": "string"},
        "x-kubernetes-group-version-kind": [{"group": "", "kind": "Kind", "version": "v1"}]}}});
    let out = encode(&document, Dialect::V2);
    assert_eq!(text(&out, &[9, 1, 1]), "a.Kind");
    let schema = at(&out, &[9, 1, 2]);
    assert_eq!(text(&schema, &[22, 1]), "object");
    assert_eq!(text(&schema, &[19]), "x");
    assert_eq!(
        text(&schema, &[25, 1, 1]),
        "x-y",
        "a property starting with x- is not an extension"
    );
    assert_eq!(text(&schema, &[25, 1, 2, 1]), "#/definitions/b");
    assert_eq!(text(&schema, &[21, 1, 22, 1]), "string");
    assert_eq!(text(&schema, &[31, 1]), "x-kubernetes-group-version-kind");
    assert_eq!(
        text(&schema, &[31, 2, 2]),
        "- group: \"\"\n  kind: Kind\n  version: v1\n"
    );
}

#[test]
fn parameters_and_responses_select_the_right_oneof_field() {
    let document = json!({"paths": {"/a": {
        "get": {"responses": {"200": {"description": "OK", "schema": {"type": "string"}}}},
        "parameters": [
            {"in": "body", "name": "b", "schema": {"$ref": "#/definitions/x"}},
            {"in": "query", "name": "q", "type": "integer", "uniqueItems": true},
            {"in": "path", "name": "p", "type": "string", "required": true},
            {"$ref": "#/parameters/z"}]}}});
    let out = encode(&document, Dialect::V2);
    assert_eq!(text(&out, &[8, 2, 1]), "/a");
    let item = at(&out, &[8, 2, 2]);
    assert_eq!(text(&item, &[2, 9, 1, 1]), "200");
    assert_eq!(text(&item, &[2, 9, 1, 2, 1, 2, 1, 22, 1]), "string");
    let p: Vec<_> = fields(&item).into_iter().filter(|f| f.0 == 9).map(|f| f.1).collect();
    assert_eq!(text(&p[0], &[1, 1, 5, 1]), "#/definitions/x");
    assert_eq!(text(&p[1], &[1, 2, 3, 6]), "integer");
    assert_eq!(at(&p[1], &[1, 2, 3, 20])[0], 1);
    assert_eq!(text(&p[2], &[1, 2, 4, 5]), "string");
    assert_eq!(text(&p[3], &[2, 1]), "#/parameters/z");
}

#[test]
fn v3_defaults_are_limited_to_scalars() {
    let one = |default: Value| {
        let mut schema = json!({"type": "object"});
        schema.set(&["default"], default);
        let mut document = Value::object();
        document.set(&["components", "schemas", "k"], schema);
        let out = encode(&document, Dialect::V3);
        fields(&at(&out, &[5, 1, 1, 2, 1]))
            .into_iter()
            .find(|f| f.0 == 33)
            .map(|f| fields(&f.1))
    };
    assert_eq!(one(json!(false)).unwrap()[0].0, 2, "zero values are written in a oneof");
    assert_eq!(one(json!("a")).unwrap(), [(3, b"a".to_vec())]);
    assert_eq!(one(json!(2)).unwrap(), [(1, 2f64.to_le_bytes().to_vec())]);
    assert_eq!(one(json!({})), None);
}

proptest::proptest! {
    #[test]
    fn nested_messages_are_length_prefixed(texts in proptest::collection::vec(".{0,300}", 0..20)) {
        let mut m = Map::new();
        for t in &texts {
            m.insert(t.as_str(), json!({"description": (t.as_str())}));
        }
        let mut document = Value::object();
        document.set(&["definitions"], m.clone());
        let out = encode(&document, Dialect::V2);
        let read: Vec<_> = fields(&at(&out, &[9])).into_iter().map(|f| fields(&f.1)).collect();
        proptest::prop_assert_eq!(read.len(), m.len());
        for (named, key) in read.iter().zip(m.keys()) {
            proptest::prop_assert_eq!(&named[0].1[..], key.as_bytes());
        }
    }
}
