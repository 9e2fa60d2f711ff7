//! Bodies that are expensive to decode: YAML, JSON, CBOR, protobuf, and HTTP framing.

use super::{CONFIG_MAPS, PODS, config_map, joined};
use crate::attackers::Cases;
use crate::scale::Scale;
use crate::wire::Request;
use std::fmt::Write as _;

fn yaml(text: impl Into<Vec<u8>>) -> Request {
    Request::new("POST", CONFIG_MAPS).body("application/yaml", text)
}

fn json(text: impl Into<Vec<u8>>) -> Request {
    Request::post(CONFIG_MAPS, text)
}

const HEAD: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\n";

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    aliases(cases, scale);
    yaml_shapes(cases, scale);
    json_shapes(cases, scale);
    binary_shapes(cases, scale);
    media_types(cases, scale);
}

fn aliases(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(100_000, 4);
    cases.request("yaml: 100,000 aliases of a string of 100 KB", move || {
        let list = "*a,".repeat(n);
        yaml(format!("{HEAD}x: &a {}\ny: [{list}]\n", "s".repeat(100_000)))
    });
    cases.request("yaml: aliases of aliases, ten levels of ten", || {
        let mut text = format!("{HEAD}l0: &l0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..10 {
            let list = format!("*l{},", i - 1).repeat(10);
            let _ = writeln!(text, "l{i}: &l{i} [{list}]");
        }
        yaml(text)
    });
    cases.request("yaml: merge keys doubled thirty times", || {
        let mut text = format!("{HEAD}m0: &m0 {{a: b}}\n");
        for i in 1..30 {
            let _ = writeln!(text, "m{i}: &m{i} {{<<: [*m{0}, *m{0}], k{i}: v}}", i - 1);
        }
        yaml(text)
    });
    let n = scale.reduced(2_000, 2);
    cases.request("yaml: a merged map of 2,000 keys, 2,000 times", move || {
        let map = joined(n, |i| format!("k{i}: v"));
        let uses = joined(n, |_| "{<<: *m}".into());
        yaml(format!("{HEAD}m: &m {{{map}}}\nu: [{uses}]\n"))
    });
    let n = scale.size(100_000);
    cases.request("yaml: 100,000 anchors", move || {
        let list = joined(n, |i| format!("&a{i} x"));
        yaml(format!("{HEAD}x: [{list}]\n"))
    });
    cases.request("yaml: an alias of itself", || yaml(format!("{HEAD}x: &a [*a, *a]\n")));
    let n = scale.size(20_000);
    cases.request("yaml: an alias as a key, 20,000 times", move || {
        let list = "{*a : x},".repeat(n);
        yaml(format!("{HEAD}x: &a {}\ny: [{list}]\n", "k".repeat(10_000)))
    });
}

fn yaml_shapes(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(400_000);
    cases.request("yaml: 400,000 open brackets", move || {
        yaml(format!("{HEAD}x: {}", "[".repeat(n)))
    });
    cases.request("yaml: 400,000 open braces", move || {
        yaml(format!("{HEAD}x: {}", "{a: ".repeat(n / 2)))
    });
    cases.request("yaml: 400,000 dashes in a line", move || {
        yaml(format!("{HEAD}x:\n{}", "- ".repeat(n / 2)))
    });
    cases.request("yaml: block maps that indent to a depth of 1,500", || {
        let mut text = HEAD.to_owned();
        for i in 0..1_500 {
            let _ = writeln!(text, "{}k:", " ".repeat(i));
        }
        yaml(text)
    });
    cases.request("yaml: 400,000 question marks", move || {
        yaml(format!("{HEAD}x:\n{}", "? ".repeat(n / 2)))
    });
    cases.request("yaml: a plain scalar of 200,000 lines", move || {
        yaml(format!("{HEAD}data:\n  x: {}", "a\n     ".repeat(n / 2)))
    });
    cases.request("yaml: a double-quoted string of 700,000 escapes", move || {
        yaml(format!("{HEAD}data:\n  x: \"{}\"\n", "\\x41".repeat(n)))
    });
    cases.request("yaml: 700,000 tiny items", move || {
        yaml(format!("{HEAD}x: [{}]\n", "a,".repeat(n * 2)))
    });
    cases.request("yaml: 100,000 documents", move || {
        yaml(format!("{HEAD}{}", "---\na: b\n".repeat(n / 4)))
    });
    cases.request("yaml: 100,000 tags and directives", move || {
        yaml(format!(
            "%TAG ! tag:x,2000:\n---\n{HEAD}x: [{}]\n",
            "!!str a,".repeat(n / 4)
        ))
    });
    cases.request("yaml: 400,000 comments", move || {
        yaml(format!("{HEAD}{}", "#\n".repeat(n)))
    });
    cases.request("yaml: a block scalar of 2 MB of empty lines", move || {
        yaml(format!("{HEAD}data:\n  x: |\n{}", "\n".repeat(n * 5)))
    });
    cases.request("yaml: the same key 100,000 times", move || {
        yaml(format!("{HEAD}data:\n{}", "  k: v\n".repeat(n / 4)))
    });
    cases.request("yaml: numbers in base 60 and of a million digits", move || {
        yaml(format!(
            "{HEAD}x: {}\ny: {}\n",
            "1:".repeat(n / 2) + "1",
            "9".repeat(n * 2)
        ))
    });
}

fn json_shapes(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(1_000_000);
    let within = |members: String| json(config_map("json", "", &members));
    cases.request("json: an array nested a million times", move || {
        within(format!(r#""x":{}"#, "[".repeat(n)))
    });
    cases.request("json: objects nested 300,000 times", move || {
        within(format!(
            r#""x":{}1{}"#,
            r#"{"a":"#.repeat(n * 3 / 10),
            "}".repeat(n * 3 / 10)
        ))
    });
    cases.request("json: a million empty objects", move || {
        within(format!(r#""x":[{}]"#, joined(n, |_| "{}".into())))
    });
    cases.request("json: a million nulls in a known list", move || {
        let nulls = joined(n / 2, |_| "null".into());
        json(config_map("json", &format!(r#""finalizers":[{nulls}]"#), ""))
    });
    cases.request("json: a number of three million digits", move || {
        within(format!(r#""x":{}"#, "9".repeat(n * 29 / 10)))
    });
    cases.request("json: 100,000 numbers with exponents of 300", move || {
        within(format!(r#""x":[{}]"#, joined(n / 10, |i| format!("{i}e30{}", i % 8))))
    });
    cases.request("json: 100,000 numbers of 30 digits", move || {
        within(format!(r#""x":[{}]"#, joined(n / 12, |i| format!("0.{i:030}"))))
    });
    cases.request("json: a quantity of a million digits", move || {
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"q"}},"spec":{{"containers":[{{"name":"a","image":"b","resources":{{"limits":{{"cpu":"{}"}}}}}}]}}}}"#,
            "9".repeat(n)
        );
        Request::post(PODS, body)
    });
    cases.request("json: a quantity with an exponent of nine digits", || {
        let body = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"q"},"spec":{"containers":[{"name":"a","image":"b","resources":{"limits":{"cpu":"1e999999999","memory":"1e-999999999"}}}]}}"#;
        Request::post(PODS, body)
    });
    cases.request("json: the same key 200,000 times", move || {
        json(config_map(
            "json",
            "",
            &format!(r#""data":{{{}}}"#, joined(n / 5, |_| r#""k":"v""#.into())),
        ))
    });
    for level in ["Strict", "Warn", "Ignore"] {
        cases.request(format!("json: 100,000 unknown fields, {level}"), move || {
            let fields = joined(n / 10, |i| format!(r#""u{i}":1"#));
            let mut request = json(config_map("json", "", &fields));
            request.path += &format!("?fieldValidation={level}");
            request
        });
        cases.request(format!("json: 100,000 duplicate fields, {level}"), move || {
            let fields = joined(n / 10, |i| format!(r#""k{}":"v""#, i / 2));
            let mut request = json(config_map("json", "", &format!(r#""data":{{{fields}}}"#)));
            request.path += &format!("?fieldValidation={level}");
            request
        });
    }
    cases.request("json: a string of 3 MB", move || {
        json(config_map(
            "json",
            "",
            &format!(r#""data":{{"k":"{}"}}"#, "s".repeat(n * 29 / 10)),
        ))
    });
    cases.request("json: 400,000 escaped characters", move || {
        json(config_map(
            "json",
            "",
            &format!(r#""data":{{"k":"{}"}}"#, "\\u00e9".repeat(n * 4 / 10)),
        ))
    });
    cases.request("json: 3 MB of keys of a map that do not parse", move || {
        let keys = joined(n / 10, |i| format!(r#""!{i}":"v""#));
        json(config_map("json", "", &format!(r#""data":{{{keys}}}"#)))
    });
    cases.request("json: invalid UTF-8 in 3 MB", move || {
        let mut text = config_map("json", "", r#""data":{"k":"#).into_bytes();
        text.truncate(text.len() - 1);
        text.push(b'"');
        text.extend(std::iter::repeat_n(0xff, n * 2));
        json(text)
    });
    cases.request("json: lone surrogates", move || {
        json(config_map(
            "json",
            "",
            &format!(r#""data":{{"k":"{}"}}"#, "\\ud800".repeat(n * 4 / 10)),
        ))
    });
    cases.request("json: 2 MB of white space", move || {
        json(format!("{}{{}}", " \n".repeat(n)))
    });
    cases.request("json: 4 MB, more than is read", || json("x".repeat(4 << 20)));
    cases.at_once(
        "json: sixteen strings of 3 MB at once",
        if scale.full { 16 } else { 4 },
        || {
            json(config_map(
                "json",
                "",
                &format!(r#""data":{{"k":"{}"}}"#, "s".repeat(2_900_000)),
            ))
        },
    );
    cases.at_once(
        "json: sixteen bodies of a million nodes at once",
        if scale.full { 16 } else { 4 },
        move || within(format!(r#""x":[{}]"#, joined(n * 9 / 10, |_| "{}".into()))),
    );
}

fn cbor(body: Vec<u8>) -> Request {
    Request::new("POST", CONFIG_MAPS).body("application/cbor", body)
}

fn protobuf(body: Vec<u8>) -> Request {
    let mut bytes = b"k8s\0".to_vec();
    bytes.extend(body);
    Request::new("POST", CONFIG_MAPS).body("application/vnd.kubernetes.protobuf", bytes)
}

/// Encodes a bytes field.
pub(super) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut n = bytes.len();
    while n > 127 {
        out.push((n % 128) as u8 | 128);
        n /= 128;
    }
    out.push(n as u8);
    out.extend_from_slice(bytes);
    out
}

/// Wraps a core/v1 object in the protobuf envelope `runtime.Unknown`.
fn unknown(kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
    [field(1, &meta), field(2, raw)].concat()
}

fn binary_shapes(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(1_000_000);
    let magic = [0xd9, 0xd9, 0xf7];
    cases.request("cbor: arrays nested a million times", move || {
        cbor([&magic[..], &vec![0x81; n]].concat())
    });
    cases.request("cbor: a map that says it has 2^60 entries", move || {
        cbor([&magic[..], &[0xbb, 0x10, 0, 0, 0, 0, 0, 0, 0]].concat())
    });
    cases.request("cbor: an array of three million zeros", move || {
        cbor([&magic[..], &[0x9f], &vec![0; n * 29 / 10], &[0xff]].concat())
    });

    cases.request("protobuf: messages nested 100,000 times", move || {
        let mut bytes = Vec::new();
        for _ in 0..(n / 2_000).max(200) {
            bytes = field(1, &bytes);
        }
        protobuf(unknown("ConfigMap", &bytes))
    });
    cases.request("protobuf: 300,000 entries of a map with one key", move || {
        let entry = field(2, &[field(1, b"k"), field(2, b"v")].concat());
        let raw = [field(1, &field(1, b"pb")), entry.repeat(n * 3 / 10)].concat();
        protobuf(unknown("ConfigMap", &raw))
    });
    cases.request("protobuf: 200,000 entries of a map in falling order", move || {
        let mut raw = field(1, &field(1, b"pb"));
        for i in (0..n / 5).rev() {
            raw.extend(field(
                2,
                &[field(1, format!("k{i:06}").as_bytes()), field(2, b"v")].concat(),
            ));
        }
        protobuf(unknown("ConfigMap", &raw))
    });
    cases.request("protobuf: metadata a million times", move || {
        protobuf(unknown("ConfigMap", &field(1, b"").repeat(n)))
    });
    cases.request("protobuf: a million unknown fields", move || {
        protobuf(unknown("ConfigMap", &[0xf8, 0x07, 0x01].repeat(n * 9 / 10)))
    });
    cases.request("protobuf: a length of 2^63", move || {
        protobuf(vec![0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f])
    });
    cases.request("protobuf: finalizers, a million of them empty", move || {
        let metadata = [field(1, b"pb"), field(14, b"").repeat(n)].concat();
        protobuf(unknown("ConfigMap", &field(1, &metadata)))
    });
    cases.request("protobuf: groups that never end", move || {
        protobuf(unknown("ConfigMap", &vec![0x0b; n]))
    });
}

fn media_types(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(1 << 20);
    cases.request("media type: 100,000 parameters", move || {
        let kind = format!("application/json{}", ";a=b".repeat(n / 12));
        Request::new("POST", CONFIG_MAPS).body(&kind, "{}")
    });
    cases.request("media type: said to be gzip", || {
        json(config_map("gzip", "", "")).header("Content-Encoding", "gzip")
    });
    cases.request("media type: charset of a megabyte", move || {
        let kind = format!("application/json;charset=\"{}\"", "x".repeat(n / 4));
        Request::new("POST", CONFIG_MAPS).body(&kind, "{}")
    });
}
