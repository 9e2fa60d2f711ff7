use super::*;
use crate::codec::json::to_vec;
use crate::json;
use proptest::prelude::*;

#[test]
fn masks_select_members_through_lists() {
    let v = json!({"metadata": {"name": "a\"\u{e9}", "labels": {"x": "y", "m": 1}, "more": [1, [2, {"}": "]"}]]},
        "spec": {"list": [{"a": 1, "b": {"c": []}}, {"b": 2.5}, "scalar", null], "flag": true, "n": -7},
        "data": {"one": "\\", "two": {"x": "{"}}});
    let read = |paths: &[&str]| read(&to_vec(&v), &Mask::of(paths));
    assert_eq!(
        read(&["metadata.name", "metadata.labels", "spec.list.a", "spec.n", "nowhere"]),
        Ok(json!({"metadata": {"name": "a\"\u{e9}", "labels": {"x": "y", "m": 1}},
            "spec": {"list": [{"a": 1}, {}, "scalar", null], "n": -7}}))
    );
    assert_eq!(
        read(&["data.#", "spec.list.#", "metadata.more"]),
        Ok(
            json!({"data": {"one": null, "two": null}, "spec": {"list": [null, null, null, null]},
            "metadata": {"more": [1, [2, {"}": "]"}]]}})
        )
    );
    // A member selected as a whole stays whole, whatever paths below it are added.
    assert_eq!(Mask::of(&["a.b", "a"]), Mask::of(&["a", "a.b"]));
}

#[test]
fn truncated_documents_are_unexpected_encodings() {
    let bytes = to_vec(&json!({"a": [{"b": "c\\\"d"}], "e": {"f": null}}));
    for mask in [Mask::Whole, Mask::Count, Mask::of(&["a.b"]), Mask::of(&[])] {
        assert!(read(&bytes, &mask).is_ok());
        for n in 0..bytes.len() {
            assert_eq!(read(&bytes[..n], &mask), Err(UnexpectedEncoding), "{n} bytes");
        }
    }
}

#[test]
fn malformed_lists_are_unexpected_encodings() {
    for bytes in ["[}", "[,}", "[1,,", "{\"a\":[}"] {
        for mask in [Mask::Whole, Mask::Count] {
            assert_eq!(
                read(bytes.as_bytes(), &mask),
                Err(UnexpectedEncoding),
                "{bytes} {mask:?}"
            );
        }
    }
    assert_eq!(Cursor::at(b"}", 0).skip(), Err(UnexpectedEncoding));
}

#[test]
fn parts_are_located_by_member_and_item() {
    use Step::{Item, Member};
    let json = br#"{"a":[{"b":1},{"b":{"c":[]}},2],"d":null}"#;
    let at = |path: &[Step<'_>]| locate(json, path).unwrap().map(|range| &json[range]);
    assert_eq!(at(&[]), Some(&json[..]));
    assert_eq!(at(&[Member("a"), Item(1), Member("b")]), Some(&br#"{"c":[]}"#[..]));
    assert_eq!(at(&[Member("a"), Item(2)]), Some(&b"2"[..]));
    assert_eq!(at(&[Member("d")]), Some(&b"null"[..]));
    for none in [
        &[Member("x")][..],
        &[Item(0)],
        &[Member("a"), Item(3)],
        &[Member("d"), Member("x")],
        &[Member("a"), Item(1), Member("b"), Member("c"), Item(0)],
    ] {
        assert_eq!(at(none), None, "{none:?}");
    }
    assert_eq!(locate(b"{\"a\":[1,", &[Member("a"), Item(1)]), Err(UnexpectedEncoding));
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::Float),
        "[a-z\"\\\\{}\\[\\],:<\u{e9}\u{2028}\n]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            proptest::collection::vec(("[a-c\"\\\\{]{1,9}", inner), 0..5)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

#[test]
fn members_are_found_in_masks_of_any_size() {
    for count in [FEW_MEMBERS - 1, FEW_MEMBERS, FEW_MEMBERS + 1, 1_000] {
        let names: Vec<String> = (0..count).map(|i| format!("m{}", i * 7 % 1_009)).collect();
        let mut mask = Mask::default();
        for name in &names {
            mask.add(&format!("{name}.a"));
        }
        for name in &names {
            mask.add(&format!("{name}.b"));
        }
        let object = |members: &str| -> Value {
            let of = |name: &String| format!(r#""{name}":{members}"#);
            let all: Vec<String> = names.iter().map(of).collect();
            decode(format!("{{{}}}", all.join(",")).as_bytes()).unwrap()
        };
        let mut given = object(r#"{"a":1,"b":2,"c":3}"#);
        given.set(&["other"], 1);
        assert_eq!(read(&to_vec(&given), &mask), Ok(object(r#"{"a":1,"b":2}"#)), "{count}");
    }
}

proptest! {
    #[test]
    fn masked_parts_equal_the_decoded_document(v in tree(), name in "[a-c]{1,2}") {
        let bytes = to_vec(&v);
        // Floats without a fraction are printed, and decoded again, as integers.
        let decoded = decode(&bytes).unwrap();
        prop_assert_eq!(read(&bytes, &Mask::Whole), Ok(decoded.clone()));
        let mut cursor = Cursor::at(&bytes, 0);
        prop_assert_eq!(cursor.skip(), Ok(()));
        prop_assert_eq!(cursor.offset(), bytes.len());
        if let Value::Object(_) = decoded {
            let part = read(&bytes, &Mask::of(&[&name])).unwrap();
            prop_assert_eq!(part.get(&name), decoded.get(&name));
            let count = read(&bytes, &Mask::Count).unwrap();
            prop_assert_eq!(count.as_object().map(Map::len), decoded.as_object().map(Map::len));
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'"'), Just(b'{'), Just(b'['), Just(b'\\'), Just(b'}'), Just(b']'), Just(b','), Just(b':')], 0..40)) {
        for mask in [Mask::Whole, Mask::Count, Mask::of(&["a"])] {
            let _ = read(&bytes, &mask);
        }
    }
}
