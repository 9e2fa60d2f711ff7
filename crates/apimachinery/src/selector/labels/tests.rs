use super::*;
use proptest::prelude::*;

fn matches(selector: &str, labels: &[(&str, &'static str)]) -> bool {
    LabelSelector::parse(selector)
        .unwrap()
        .matches(&|k| labels.iter().find(|(x, _)| *x == k).map(|(_, v)| *v))
}

#[test]
fn operators_match_like_upstream() {
    let l = [("a", "b"), ("n", "5"), ("in", "notin"), ("e", "")];
    for yes in [
        "",
        "a=b",
        "a==b",
        "a!=c",
        "x!=c",
        "a in (b,c)",
        "a notin (c)",
        "x notin (c)",
        "a",
        "!x",
        "n>4",
        "n<6",
        "in in (notin)",
        "in=notin",
        "e=",
        "e in ()",
        "e in (,q)",
        "a = b , n",
        "a=b,e",
    ] {
        assert!(matches(yes, &l), "{yes}");
    }
    for no in [
        "a=c",
        "a!=b",
        "x=",
        "a in (c)",
        "a notin (b)",
        "x",
        "!a",
        "n>5",
        "a>1",
        "x<9",
        "a=b,x",
    ] {
        assert!(!matches(no, &l), "{no}");
    }
}

#[test]
fn parse_errors_match_upstream() {
    for (text, want) in [
        (
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        (
            "a in (b,",
            "unable to parse requirement: found '', expected: ',', or identifier",
        ),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("a,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
    ] {
        assert_eq!(LabelSelector::parse(text).unwrap_err().to_string(), want, "{text}");
    }
    let e = LabelSelector::parse("k=1;b").unwrap_err().to_string();
    assert!(
        e.starts_with("unable to parse requirement: values[0][k]: Invalid value: \"1;b\": a valid label must be "),
        "{e}"
    );
    let e = LabelSelector::parse("UPPER/x").unwrap_err().to_string();
    assert!(
        e.starts_with("unable to parse requirement: <nil>: Invalid value: \"UPPER/x\": prefix part "),
        "{e}"
    );
}

#[test]
fn null_object_selects_nothing_and_empty_object_everything() {
    assert!(!LabelSelector::from_object(&Value::Null).unwrap().matches(&|_| None));
    assert!(LabelSelector::from_object(&Value::object()).unwrap().is_everything());
    let s = crate::json!({"matchLabels": {"b": "c"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}]});
    assert_eq!(LabelSelector::from_object(&s).unwrap().to_string(), "a in (x,y),b=c");
    assert_eq!(
        LabelSelector::parse("b in (c),a").unwrap().requires_exact("b"),
        Some("c")
    );
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let word = "[a-z][a-z0-9]{0,3}";
    (word, 0..7usize, proptest::collection::vec(word, 1..4), any::<i64>()).prop_map(|(key, op, values, n)| {
        let values: Vec<Str> = values.into_iter().map(Str::from).collect();
        let one = vec![values[0].clone()];
        let (op, values) = match op {
            0 => (Operator::In, values),
            1 => (Operator::NotIn, values),
            2 => (Operator::Equals, one),
            3 => (Operator::NotEquals, one),
            4 => (Operator::Exists, vec![]),
            5 => (Operator::DoesNotExist, vec![]),
            _ => (
                Operator::GreaterThan,
                vec![Str::from(n.unsigned_abs().min(1 << 60).to_string())],
            ),
        };
        Requirement::try_new(&key, op, values).unwrap()
    })
}

#[test]
fn a_nul_ends_the_selector_or_the_token_before_it() {
    let parsed = |text: &str| {
        LabelSelector::parse(text)
            .map(|s| s.to_string())
            .map_err(|e| e.to_string())
    };
    assert_eq!(parsed("\0=!"), Ok(String::new()));
    assert_eq!(
        parsed("a=b, \0 c"),
        Err("found '', expected: identifier after ','".to_owned())
    );
    assert_eq!(parsed("a\0in\0(\0b\0,c)\0,\0d"), Ok("a in (b,c),d".to_owned()));
    assert_eq!(
        parsed("a in (b);\0"),
        Err("found ';', expected: ',' or 'end of string'".to_owned())
    );
}

proptest! {
    #[test]
    fn display_round_trips(r in proptest::collection::vec(requirement(), 0..5)) {
        let s = LabelSelector::of(r);
        prop_assert_eq!(LabelSelector::parse(&s.to_string()).unwrap(), s);
    }

    #[test]
    fn arbitrary_text_does_not_panic(s in "[a-z=!(), <>\\PC]{0,20}") {
        let _ = LabelSelector::parse(&s);
    }

    /// Each operator and its opposite partition all label values.
    #[test]
    fn exactly_one_of_opposite_requirements_matches(r in requirement(), value in proptest::option::of("[a-z][a-z0-9]{0,3}")) {
        let opposite = match r.operator() {
            Operator::In => Operator::NotIn,
            Operator::NotIn => Operator::In,
            Operator::Equals => Operator::NotEquals,
            Operator::NotEquals => Operator::Equals,
            Operator::Exists => Operator::DoesNotExist,
            Operator::DoesNotExist => Operator::Exists,
            _ => return Ok(()),
        };
        let values = r.values().map(Str::from).collect();
        let other = Requirement::try_new(r.key(), opposite, values).unwrap();
        prop_assert!(r.matches(value.as_deref()) != other.matches(value.as_deref()));
    }
}
