use super::*;
use crate::codec::json;
use crate::codec::json::projection::{self, Mask};
use crate::json;
use proptest::prelude::*;

fn object() -> Value {
    json!({
        "spec": {"replicas": 3, "ratio": 2.5, "on": true, "none": null, "empty": [], "text": "ab",
                 "a.b": {"c/d": 7}, "nums": [0, 1, 2, 3, 4]},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "n": 1},
            {"type": "Synced", "status": "False", "n": 2},
            {"reason": "x"}]},
    })
}

/// The values that a path leads to, or the error.
fn found(path: &str) -> Result<Value, String> {
    let path = JsonPath::parse(path).map_err(|e| e.to_string())?;
    let object = object();
    let found = path.find(&object).map_err(|e| e.to_string())?;
    let one = |f: &Found<'_>| match f {
        Found::Byte(b) => Value::from(i64::from(*b)),
        f => f.value().cloned().unwrap_or_default(),
    };
    Ok(Value::Array(found.iter().map(one).collect()))
}

#[test]
fn paths_lead_to_the_values_upstream_finds() {
    for (path, want) in [
        (".spec.replicas", json!([3])),
        ("$.spec.replicas", json!([3])),
        ("@.spec['replicas']", json!([3])),
        (".spec.a\\.b.c/d", json!([7])),
        (".spec['a\\.b']['c/d']", json!([7])),
        // A dot in quotes separates, unless it is escaped.
        (".spec['a.b']", json!([])),
        (".spec.none", json!([null])),
        (".spec.none.x", json!([])),
        (".spec.replicas.x", json!([])),
        (".missing.x", json!([])),
        (".spec.nums[1]", json!([1])),
        (".spec.nums[-1]", json!([4])),
        (".spec.nums[-2:]", json!([3, 4])),
        (".spec.nums[1:3]", json!([1, 2])),
        (".spec.nums[:2]", json!([0, 1])),
        (".spec.nums[::2]", json!([0, 2, 4])),
        (".spec.nums[2:2]", json!([])),
        (".spec.nums[]", json!([0])),
        (".spec.nums[*]", json!([0, 1, 2, 3, 4])),
        (".spec.nums[1, -1]", json!([1, 4])),
        (".spec.nums[0,2:4]", json!([0, 2, 3])),
        (".spec['replicas','on']", json!([3, true])),
        (".spec.empty[:]", json!([])),
        (".spec.text.*", json!([97, 98])),
        (".spec.none[0]", json!([])),
        (".status.conditions[*].type", json!(["Ready", "Synced"])),
        (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
        (".status.conditions[?(@.type=='Synced')].status", json!(["False"])),
        (".status.conditions[?(@.type!=\"Ready\")].status", json!(["False"])),
        (".status.conditions[?(@.n>=2)].type", json!(["Synced"])),
        (".status.conditions[?(@.n < 2)].type", json!(["Ready"])),
        (".status.conditions[?(@.n<=2)].type", json!(["Ready", "Synced"])),
        (".status.conditions[?(@.n>1)].type", json!(["Synced"])),
        (".status.conditions[?(@.reason)].reason", json!(["x"])),
        (".status.conditions[?(@.reason=='\\x78')].reason", json!(["x"])),
        // A side that fails has the value at which it failed, so that the item "exists".
        (".status.conditions[?(@.type[0])].type", json!(["Ready", "Synced"])),
        ("..reason", json!(["x"])),
        ("..conditions[0].type", json!(["Ready"])),
        ("", json!([(object())])),
        (".spec.replicas 5", json!([5])),
        (".spec.nums[*] 'x'", json!(["x"])),
        (".spec.nums[*] true", json!([true, true, true, true, true])),
        (".spec.on}{.spec.ratio", json!([true])),
    ] {
        assert_eq!(found(path), Ok(want), "{path}");
    }
}

#[test]
fn errors_are_worded_like_upstream() {
    for (path, want) in [
        (".spec.nums[", "unterminated array"),
        (".spec.nums[1", "unterminated array"),
        (".a[x]", "invalid array index x"),
        (".a[1:2:3:4]", "invalid array index 1:2:3:4"),
        (".a[-]", "array index - is not a number"),
        (
            ".a[99999999999999999999]",
            "array index 99999999999999999999 is not a number",
        ),
        (".a[?(@.x==1)", "unclosed array expect ]"),
        (".a[?(@.x==1", "unterminated filter"),
        (".a[?(@.x==')]", "unterminated filter"),
        ("....a", "invalid multiple recursive descent"),
        ("..*", "unrecognized character in action: U+002A '*'"),
        (".a\tb", "unrecognized character in action: U+0009"),
        (".a\nb", "unclosed action"),
        (".a 'x", "unterminated quoted string"),
        (".a '\\q'", "unquote string '\\q' error invalid syntax"),
        (".a -", "cannot parse number -"),
        (".a[?(@.x==)]", "unrecognized character in action: U+003D '='"),
        (".spec.replicas[0]", "int64 is not array or slice"),
        (".spec[*]", "map[string]interface {} is not array or slice"),
        (".spec.nums[5]", "array index out of bounds: index 5, length 5"),
        (".spec.nums[-6]", "array index out of bounds: index -1, length 5"),
        (".spec.nums[1:9]", "array index out of bounds: index 8, length 5"),
        (".spec.nums[3:1]", "starting index 3 is greater than ending index 1"),
        (".spec.nums[0:2:-1]", "step must be > 0"),
        (
            ".spec[?(@.a)]",
            "map[a.b:map[c/d:7] empty:[] none:<nil> nums:[0 1 2 3 4] on:true ratio:2.5 replicas:3 text:ab] \
                           is not array or slice and cannot be filtered",
        ),
        (".status.conditions[?(@.type>1)]", "incompatible types for comparison"),
        (
            ".status.conditions[?(@.type=~1)]",
            "unrecognized character in action: U+007E '~'",
        ),
        (".status.conditions[?(@.type=!1)]", "unrecognized filter operator =!"),
        (".status.conditions[?(@=='x')]", "invalid type for comparison"),
        (".status[?(@.x)]x", "unrecognized identifier x"),
        (".spec.nums[?(@.*==1)] range", "unrecognized identifier range"),
    ] {
        match found(path) {
            Err(e) if path.starts_with(".status[") => assert!(e.contains("cannot be filtered"), "{e}"),
            Err(e) => assert_eq!(e, want, "{path}"),
            Ok(v) => panic!("{path} leads to {v:?}"),
        }
    }
}

#[test]
fn repeated_descent_ends_at_the_limit() {
    let mut deep = json!(1);
    for _ in 0..60 {
        let mut outer = Value::object();
        outer.set(&["a"], deep.clone());
        outer.set(&["b"], json!("text"));
        deep = outer;
    }
    let path = JsonPath::parse("..a..a..a..a..a..a..a..a..a").expect("a path");
    assert_eq!(path.find(&deep), Err(Error("too many values to visit".to_owned())));
    let unions = JsonPath::parse(&format!(".n{}", "[:,:]".repeat(64))).expect("a path");
    let mut lists = json!([1]);
    for _ in 0..64 {
        lists = Value::Array(vec![lists]);
    }
    let mut object = Value::object();
    object.set(&["n"], lists);
    assert_eq!(unions.find(&object), Err(Error("too many values to visit".to_owned())));
}

#[test]
fn masks_select_the_parts_that_a_path_reads() {
    let mask = |path: &str| {
        let mut mask = Mask::default();
        JsonPath::parse(path).expect("a path").add_reads(&mut mask);
        mask
    };
    for (path, want) in [
        (".spec.replicas", Mask::of(&["spec.replicas"])),
        (
            ".status.conditions[?(@.type==\"Ready\")].status",
            Mask::of(&["status.conditions.{type,status}"]),
        ),
        (".spec.nums[1:]", Mask::of(&["spec.nums"])),
        (".spec..x", Mask::of(&["spec"])),
        (".spec.a\\\"b", Mask::of(&["spec"])),
        ("..x", Mask::Whole),
        (&".a".repeat(100_000), Mask::of(&["a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a"])),
    ] {
        assert_eq!(mask(path), want, "{path}");
    }
}

/// Paths made of pieces that fit together often enough.
fn paths() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        ".spec",
        ".status",
        ".conditions",
        ".nums",
        ".type",
        ".n",
        ".a\\.b",
        "[0]",
        "[-1]",
        "[1:]",
        "[*]",
        "[?(@.n>1)]",
        "[?(@.type=='Ready')]",
        "[?(@.x)]",
        "[?(@[0])]",
        "['spec','status']",
        "[0,1]",
        "..",
        ".*",
        "..n",
        " 'x'",
        " 1",
        "}{",
        "}x{",
        ".none",
        "[?(@.n==@.n)]",
        ".text",
    ]);
    prop::collection::vec(piece, 1..6).prop_map(|all| all.concat())
}

proptest! {
    /// The values do not depend on whether the object was decoded whole.
    #[test]
    fn a_masked_object_yields_the_same_values(text in paths()) {
        let Ok(path) = JsonPath::parse(&text) else { return Ok(()) };
        let object = object();
        let mut mask = Mask::default();
        path.add_reads(&mut mask);
        let part = projection::read(&json::to_vec(&object), &mask).expect("our own encoding");
        let of = |v| path.find(v).ok().map(|all| format!("{all:?}"));
        prop_assert_eq!(of(&object), of(&part), "{}", text);
        let first = path.first(&object).ok().flatten().map(|f| format!("{f:?}"));
        let all = path.find(&object).ok().and_then(|all| all.first().map(|f| format!("{f:?}")));
        prop_assert_eq!(first, all);
    }
}
