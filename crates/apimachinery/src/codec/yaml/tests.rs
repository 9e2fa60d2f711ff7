use super::*;
use crate::json;
use proptest::prelude::*;

fn yaml(s: &str) -> Value {
    decode(s.as_bytes()).unwrap()
}

#[test]
fn scalars_resolve_by_yaml_1_1() {
    for (text, want) in [
        ("yes", json!(true)),
        ("y", json!(true)),
        ("Off", json!(false)),
        ("~", json!(null)),
        ("", json!(null)),
        ("'yes'", json!("yes")),
        ("0755", json!(493)),
        ("0x1F", json!(31)),
        ("0b101", json!(5)),
        ("-0b1", json!(-1)),
        ("0o17", json!(15)),
        ("1_000", json!(1000)),
        ("08", json!(8)),
        ("1e3", json!(1000)),
        ("1e999", json!("1e999")),
        (".5_0", json!(0.5)),
        ("._5", json!("._5")),
        ("1e+3", json!(1000)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("80.0", json!(80)),
        ("1.", json!(1)),
        ("1:20", json!("1:20")),
        ("2001-01-01", json!("2001-01-01")),
        ("100m", json!("100m")),
        ("!!str 5", json!("5")),
        ("! 5", json!("5")),
        ("!!binary aGk=", json!("hi")),
        ("-", json!([null])),
        ("0x", json!("0x")),
        ("+", json!("+")),
        ("18446744073709551615", json!(18446744073709551615u64)),
    ] {
        assert_eq!(yaml(text), want, "{text}");
    }
    assert!(decode(b".inf").is_err());
}

#[test]
fn integers_beyond_63_bits_keep_their_digits_as_strings() {
    let digits = |text: &str| with_digits(text.as_bytes(), &yaml(text));
    assert_eq!(
        digits("a: 9223372036854775809\nb: [0xffffffffffffffff, 1.5, +9223372036854775809]\nc: 7\n"),
        Some(json!({
            "a": "9223372036854775809", "b": ["18446744073709551615", 1.5, 9223372036854775808u64], "c": 7
        }))
    );
    // JSON is YAML.
    assert_eq!(
        digits(r#"{"a": 18446744073709551615}"#),
        Some(json!({"a": "18446744073709551615"}))
    );
    assert_eq!(digits("a: 9223372036854775807\nb: '9223372036854775809'\n"), None);
}

#[test]
fn anchors_merges_and_non_string_keys_decode() {
    assert_eq!(
        yaml("a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\nc: *x\n"),
        json!({"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}, "c": {"p": 1, "q": 2}})
    );
    assert_eq!(
        yaml("1: a\ntrue: b\n1.5: c\n? long\n: d\n"),
        json!({"1": "a", "true": "b", "1.5": "c", "long": "d"})
    );
    assert_eq!(yaml("a: 1\n---\nb: 2\n"), json!({"a": 1}));
    assert_eq!(yaml("# nothing\n"), Value::Null);
    assert_eq!(
        yaml("a: |\n  x\n  y\nb: >-\n  x\n  y\n"),
        json!({"a": "x\ny\n", "b": "x y"})
    );
    assert_eq!(yaml("{\"a\": 1.0, \"a\": 2.0}"), json!({"a": 2}));
    assert!(decode(b"[a]: 1").is_err() && decode(b"a: *none").is_err() && decode(b"a: [1").is_err());
}

#[test]
fn duplicate_keys_are_reported_with_their_line() {
    let (v, notes) = decode_with_duplicates(b"a: 1\nb:\n  x: 1\n  x: 2\n").unwrap();
    assert_eq!(v, json!({"a": 1, "b": {"x": 2}}));
    assert_eq!(notes, ["line 4: key \"x\" already set in map"]);
}

#[test]
fn alias_expansion_and_depth_are_limited() {
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for i in 1..9 {
        let refs = vec![format!("*a{}", i - 1); 9].join(",");
        bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
    }
    assert_eq!(
        decode(bomb.as_bytes()).unwrap_err().to_string(),
        "yaml: document contains excessive aliasing"
    );
    assert!(decode("[".repeat(5000).as_bytes()).is_err());
}

#[test]
fn output_matches_upstream() {
    let v = json!({"apiVersion": "v1", "data": {"a": "x\ny\n", "b": "true", "c": "1:20", "d": "- x", "e": "", "f": "a: b", "g": "it's", "h": "\u{1F600}", "i": "x\ny", "k": "url://x#y"},
        "items": [{"a": 1, "b": ["x", ["y"]]}, {}, []], "n": null, "z": 1.5});
    assert_eq!(
        to_string(&v),
        "apiVersion: v1\ndata:\n  a: |\n    x\n    y\n  b: \"true\"\n  c: \"1:20\"\n  d: '- x'\n  e: \"\"\n  f: 'a: b'\n  g: it's\n  h: \"\\U0001F600\"\n  i: |-\n    x\n    y\n  k: url://x#y\nitems:\n- a: 1\n  b:\n  - x\n  - - \"y\"\n- {}\n- []\n\"n\": null\nz: 1.5\n"
    );
    assert_eq!(yaml(&to_string(&v)), v);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1000i64..1000, 1u32..1000).prop_map(|(a, b)| super::number(a as f64 / f64::from(b))),
        "[ -~\n\té\u{85}\u{2028}\u{feff}😀]{0,12}".prop_map(Value::from),
        "[0-9a-fxobe+._:~-]{0,6}".prop_map(Value::from),
        "(yes|no|null|<<|---|\\.\\.\\.|=|on|- a|\\? b)".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec(("([ -~\n\té]{0,6}|[a-z]{130}|y|1|~)", inner), 0..4)
                .prop_map(|p| Value::Object(p.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn values_round_trip(v in any_value()) {
        let text = to_string(&v);
        prop_assert_eq!(decode(text.as_bytes()), Ok(v), "{}", text);
    }

    #[test]
    fn arbitrary_text_does_not_panic(s in "[-?:,\\[\\]{}#&*!|>'\"%@` a-c\n\\PC]{0,40}") {
        let _ = decode(s.as_bytes());
    }
}

#[test]
fn unreadable_bytes_are_refused_with_upstreams_message() {
    for (bytes, why) in [
        (&b"a: \xff"[..], "invalid leading UTF-8 octet"),
        (b"a: \xc3(", "invalid trailing UTF-8 octet"),
        (b"a: \xe2\x82", "incomplete UTF-8 octet sequence"),
        (b"a: \xc0\x80", "invalid length of a UTF-8 sequence"),
        (b"a: \xed\xa0\x80", "invalid Unicode character"),
        (b"a: \xf4\x90\x80\x80", "invalid Unicode character"),
        (b"a: \x7f", "control characters are not allowed"),
        (b"{\"a\": \"\x01\"}", "control characters are not allowed"),
        ("a: \u{ffff}".as_bytes(), "control characters are not allowed"),
        (br#"a: "\x""#, "did not find expected hexdecimal number"),
        (br#"a: "\ud800""#, "found invalid Unicode character escape code"),
    ] {
        let error = decode(bytes).unwrap_err().to_string();
        assert_eq!(error, format!("yaml: {why}"), "{bytes:?}");
    }
    let later = decode(b"a:\n  \"\\x\"").unwrap_err().to_string();
    assert_eq!(later, "yaml: line 2: did not find expected hexdecimal number");
    for fine in ["a: \u{85}", "a: \"b\u{feff}\"", "a: \"\u{2028}\"", "a: \tb"] {
        assert!(decode(fine.as_bytes()).is_ok(), "{fine:?}");
    }
}
