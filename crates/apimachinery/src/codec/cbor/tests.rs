use super::*;
use crate::codec::hex;
use crate::json;
use crate::value::Map;
use proptest::prelude::*;

fn shown(bytes: &[u8]) -> String {
    hex(bytes)
}

#[test]
fn strings_encode_as_bytes_and_shorter_keys_sort_first() {
    let value = json!({"b": 1, "aa": "x", "a": [true, null, (-1), 1.5, 300]});
    assert_eq!(
        shown(&to_vec(&value)),
        "d9d9f7a3416185f5f620f93e0019012c4162014261614178"
    );
}

#[test]
fn events_encode_as_one_self_described_item() {
    let bytes = event("ADDED", &json!({}));
    assert_eq!(shown(&bytes), "d9d9f7a24474797065454144444544466f626a656374a0");
    assert_eq!(decode(&bytes).unwrap(), json!({"type": "ADDED", "object": {}}));
}

#[test]
fn floats_use_the_shortest_exact_encoding() {
    for (f, text) in [
        (0.0, "f90000"),
        (-0.0, "f98000"),
        (65504.0, "f97bff"),
        (65536.0, "fa47800000"),
        (2f64.powi(-24), "f90001"),
        (1.5, "f93e00"),
        (100_000.5, "fa47c35040"),
        (0.1, "fb3fb999999999999a"),
    ] {
        let mut out = Vec::new();
        float(&mut out, f);
        assert_eq!(shown(&out), text);
    }
}

#[test]
fn text_indefinite_lengths_and_tags_decode() {
    let bytes = b"\xd9\xd9\xf7\xbf\x61a\x7f\x61x\x61y\xff\x41b\x9f\x01\xff\x41c\xd6\x42hi\xff";
    assert_eq!(decode(bytes).unwrap(), json!({"a": "xy", "b": [1], "c": "aGk="}));
}

#[test]
fn unsupported_cbor_is_rejected() {
    for (bytes, why) in [
        (&b"\xa2\x41a\x01\x41a\x02"[..], "duplicate map key"),
        (b"\xf9\x7e\x00", "NaN"),
        (b"\xc2\x41\x01", "bignums"),
        (b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff", "overflows"),
        (b"\x01\x01", "extraneous"),
        (b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff", "EOF"),
        (b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff", "EOF"),
        (b"\xa1\x01\x02", "map key"),
        (b"\xff", "break"),
        (b"\x62\xc3\x28", "UTF-8"),
        (b"", "EOF"),
    ] {
        let error = decode(bytes).unwrap_err().to_string();
        assert!(error.contains(why), "expected {why:?} in {error:?}");
    }
    assert_eq!(decode(&[0x81; 100_000]), Err(Error::TooDeep));
}

fn trees() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Value::Float),
        ".*".prop_map(|s| Value::String(s.into())),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((".{0,12}", inner), 0..6).prop_map(|pairs| {
                Value::Object(Map::from_pairs(pairs.into_iter().map(|(k, v)| (k.into(), v)).collect()))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn values_round_trip(value in trees()) {
        prop_assert_eq!(decode(&to_vec(&value)).unwrap(), value);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(value) = decode(&bytes) {
            prop_assert_eq!(decode(&to_vec(&value)).unwrap(), value);
        }
    }
}
