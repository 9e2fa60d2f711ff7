//! Expressions and their results.

mod properties;
mod unfit;

use super::*;
use torana_apimachinery::{Value, json};

fn env() -> Environment {
    let spec = ObjectType::new(
        "spec",
        vec![
            field("name", Schema::scalar(Type::String, 10)),
            field("replicas", Schema::scalar(Type::Int, 1)),
            field("tags", Schema::list(Schema::scalar(Type::String, 10), 5)),
            field("labels", Schema::map(Schema::scalar(Type::String, 10), 5)),
            field("since", Schema::scalar(Type::Timestamp, 20)),
        ],
    );
    let mut env = Environment::default();
    env.declare("self", Schema::object(Arc::new(spec)));
    env.declare("any", Schema::any());
    env
}

fn field(name: &str, schema: Schema) -> Field {
    Field {
        name: name.into(),
        key: name.into(),
        schema,
    }
}

fn object() -> Value {
    json!({"name": "web", "replicas": 3, "tags": ["a", "b"], "labels": {"app": "x"}, "since": "2024-02-29T12:30:15Z"})
}

/// The result as text: that of a string, or of the expression's value.
fn evaluate(source: &str) -> String {
    let env = env();
    let program = match env.compile(source) {
        Ok(program) => program,
        Err(issues) => return issues.to_string(),
    };
    let (tree, any) = (object(), json!({"a": {"b": [1, 2.5, null]}}));
    let value = |name, tree| Variable {
        name,
        value: Val::of(tree, env.variable(name).expect("declared")).expect("of the type"),
    };
    match program
        .evaluate(&[value("self", &tree), value("any", &any)], 1_000_000)
        .value
    {
        Ok(Val::Bool(b)) => b.to_string(),
        Ok(v) => library::format_value(&v),
        Err(Fail::Error(message)) => format!("error: {message}"),
        Err(Fail::Cost) => "cost".to_owned(),
    }
}

#[test]
fn expressions_evaluate_to_their_results() {
    for (source, wanted) in [
        ("1 + 2 * 3", "7"),
        ("-9223372036854775808 - 1", "error: integer overflow"),
        ("9223372036854775807 + 1", "error: integer overflow"),
        ("7 / 0", "error: division by zero"),
        ("-7 / 2", "-3"),
        ("-7 % 2", "-1"),
        ("0x10 == 16", "true"),
        ("1u < 2", "true"),
        ("dyn(1) == 1.0", "true"),
        ("dyn(1) == 1u", "true"),
        ("dyn('1') == 1", "false"),
        ("1.5 < 2", "true"),
        ("-1 < 1.0", "true"),
        ("1e3", "1000"),
        ("'a' + \"b\" + r'\\n' + '''c'''", "ab\\nc"),
        ("'\\u00e9\\x41\\101'", "éAA"),
        ("b'\\xff' == b'\\377'", "true"),
        ("size('é€') == 2", "true"),
        ("true || 1 / 0 > 0", "true"),
        ("1 / 0 > 0 || true", "true"),
        ("1 / 0 > 0 && false", "false"),
        ("1 / 0 > 0 && true", "error: division by zero"),
        ("false ? 1 / 0 : 2", "2"),
        ("self.name", "web"),
        ("has(self.name) && !has(any.x)", "true"),
        ("any.a.b[1]", "2.5"),
        ("any.a.b[2] == null", "true"),
        ("any.a.b[3]", "error: index out of bounds: 3"),
        ("any.x", "error: no such key: x"),
        ("self.labels.app + self.labels['app']", "xx"),
        ("self.labels['none']", "error: no such key: none"),
        ("'app' in self.labels && !('b' in ['a'])", "true"),
        ("self.tags.all(t, t.size() == 1)", "true"),
        ("self.tags.exists(t, t == 'b')", "true"),
        ("self.tags.exists_one(t, t > 'a')", "true"),
        ("self.tags.map(t, t + t).join(',')", "aa,bb"),
        ("self.tags.map(t, t == 'b', t + t).join(',')", "bb"),
        ("self.tags.filter(t, t != 'a').size()", "1"),
        ("[1, 0, 2].exists(x, 2 / x == 1)", "true"),
        ("[1, 0].all(x, 2 / x > 5)", "false"),
        ("['a', 'b'].all(i, v, i < 2 && v != 'c')", "true"),
        ("['a', 'b'].transformList(i, v, v + string(i)).join()", "a0b1"),
        ("{'a': 1}.transformMap(k, v, v + 1)['a']", "2"),
        ("['a'].transformMapEntry(i, v, {v: i})['a']", "0"),
        (
            "['a', 'a'].transformMapEntry(i, v, {v: i}).size()",
            "error: insert failed: key a already exists",
        ),
        ("any.?a.?x.orValue('none')", "none"),
        ("self.?name.optMap(n, n + '!').orValue('')", "web!"),
        ("optional.none().value()", "error: optional.none() dereference"),
        ("[1, 2][?5].hasValue()", "false"),
        ("{?'a': optional.none(), 'b': 1}.size()", "1"),
        // As in cel-go, the last one counts.
        ("{'a': 1, 'a': 2}['a'] + {'a': self.replicas, 'a': 2}['a']", "4"),
        ("self.since.getFullYear()", "2024"),
        ("self.since.getDayOfYear()", "59"),
        ("self.since.getHours('+02:00')", "14"),
        ("string(self.since + duration('1h30m'))", "2024-02-29T14:00:15Z"),
        ("string(duration('1.5s'))", "1.5s"),
        ("type(1) == int && type('') != type(1)", "true"),
        ("int('x')", "type conversion error from 'string' to 'int'"),
        ("int(self.name)", "error: type conversion error from 'string' to 'int'"),
        ("int(1e19)", "integer overflow"),
        ("double('2.5') * 2.0", "5"),
        ("'abc'.matches('^a.c$')", "true"),
        (r"'3'.matches(r'^\d$') && !'٣'.matches(r'^\d$')", "true"),
        (r"'a{x}'.matches(r'^a{x}$') && 'x'.matches(r'^\Qx\E$')", "true"),
        (
            "'a'.find(self.name + '**')",
            "error: Illegal regex: error parsing regexp: invalid nested repetition operator: `**`",
        ),
        ("'a1b22'.findAll('[0-9]+').join('-')", "1-22"),
        ("'hello'.substring(1, 3)", "el"),
        (
            "'hello'.substring(3, 1)",
            "error: invalid substring range. start: 3, end: 1",
        ),
        ("'hello'.charAt(9)", "error: index out of range: 9"),
        ("'a,b,c'.split(',', 2).join('|')", "a|b,c"),
        ("'abab'.replace('a', 'x', 1)", "xbab"),
        ("'abab'.lastIndexOf('ab')", "2"),
        ("'abab'.indexOf('b', 2)", "3"),
        ("[3, 1, 2].sort().isSorted()", "true"),
        ("[3, 1, 2].max() + [1, 2].sum() + [2].min()", "8"),
        ("['bb', 'a'].sortBy(s, s.size())[0]", "a"),
        ("[1, 2, 1].distinct().size()", "2"),
        ("[[1], [2]].flatten().size()", "2"),
        ("[1, 2, 3].slice(1, 3)[0]", "2"),
        ("sets.equivalent([1, 2, 2], [2, 1])", "true"),
        ("sets.intersects([1], [2])", "false"),
        ("quantity('1Gi').isGreaterThan(quantity('1G'))", "true"),
        ("quantity('1k') == quantity('1000')", "true"),
        ("quantity('1.5').asInteger()", "error: cannot convert value to integer"),
        ("sign(quantity('-1')) + quantity('2').add(3).asInteger()", "4"),
        ("isQuantity('zz')", "false"),
        ("url('https://a:80/p?k=1&k=2').getQuery()['k'].join()", "12"),
        ("url('https://[::1]:80/').getHostname() + url('/x').getScheme()", "::1"),
        (
            "url(':::').getScheme()",
            "error: URL parse error during conversion from string: parse \":::\": missing protocol scheme",
        ),
        ("ip('10.0.0.1').family() == 4 && ip('::1').isLoopback()", "true"),
        ("isIP('::ffff:1.2.3.4')", "false"),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3')", "true"),
        ("string(cidr('10.1.2.3/8').masked())", "10.0.0.0/8"),
        ("semver('1.2.3-rc.1').isLessThan(semver('1.2.3'))", "true"),
        ("isSemver('1.2')", "false"),
    ] {
        assert_eq!(evaluate(source), wanted, "{source}");
    }
}

#[test]
fn constant_templates_are_checked_when_compiled() {
    for (source, at, wanted) in [
        (
            "'%d'.format(['a'])",
            14,
            "error during formatting: decimal clause can only be used on integers, was given string",
        ),
        ("'%s %s'.format([1])", 15, "index 1 out of range"),
        (
            "'%s'.format([1, 2])",
            12,
            "too many arguments supplied to string.format (expected 1, got 2)",
        ),
        ("'%'.format([1])", 11, "unexpected end of string"),
        (
            "'%q'.format([1])",
            12,
            "could not parse formatting clause: unrecognized formatting clause \"q\"",
        ),
        (
            "'%x'.format([1.5])",
            14,
            "error during formatting: only integers, byte buffers, and strings can be formatted as hex, was given double",
        ),
        (
            "'%s'.format([[quantity('1')]])",
            23,
            "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given kubernetes.Quantity",
        ),
    ] {
        let error = env().compile(source).expect_err(source).to_string();
        let first = error.lines().next().unwrap_or_default();
        assert_eq!(first, format!("ERROR: <input>:1:{at}: {wanted}"), "{source}");
    }
    // Other templates and values are only checked when they are used.
    assert_eq!(evaluate("self.name.format([1]) == self.name"), "true");
    assert_eq!(
        evaluate("'%d'.format([dyn('a')])"),
        "error: error during formatting: decimal clause can only be used on integers, was given string"
    );
}

#[test]
fn errors_are_worded_and_placed_as_cel_go_does() {
    for (source, wanted) in [
        ("self.x", "ERROR: <input>:1:5: undefined field 'x'\n | self.x\n | ....^"),
        (
            "foo",
            "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo\n | ^",
        ),
        (
            "foo(1)",
            "ERROR: <input>:1:4: undeclared reference to 'foo' (in container '')\n | foo(1)\n | ...^",
        ),
        (
            "1 + 'a'",
            "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'\n | 1 + 'a'\n | ..^",
        ),
        (
            "self.replicas == null",
            "ERROR: <input>:1:15: found no matching overload for '_==_' applied to '(int, null)'\n | self.replicas == null\n | ..............^",
        ),
        (
            "'a'.size(1)",
            "ERROR: <input>:1:9: found no matching overload for 'size' applied to 'string.(int)'\n | 'a'.size(1)\n | ........^",
        ),
        (
            "[1, 'a']",
            "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^",
        ),
        (
            "1.x",
            "ERROR: <input>:1:2: Syntax error: mismatched input '.' expecting <EOF>\n | 1.x\n | .^",
        ),
        (
            "'é' + 1",
            "ERROR: <input>:1:5: found no matching overload for '_+_' applied to '(string, int)'\n | 'é' + 1\n | .\u{ff0e}..^",
        ),
        ("1.all(x, true)", "no such"),
        ("if", "ERROR: <input>:1:1: reserved identifier: if\n | if\n | ^"),
        (
            "duration('1d') == duration('1s')",
            "ERROR: <input>:1:10: invalid duration argument\n | duration('1d') == duration('1s')\n | .........^",
        ),
        (
            "(1).all(x, true)",
            "ERROR: <input>:1:2: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)\n | (1).all(x, true)\n | .^",
        ),
    ] {
        if wanted == "no such" || source == "1.x" {
            // The position of the syntax error depends on the number; only its presence matters.
            assert!(env().compile(source).is_err(), "{source}");
            continue;
        }
        assert_eq!(evaluate(source), wanted, "{source}");
    }
    let operand = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
    assert_eq!(
        env().compile("*").expect_err("no operands").to_string(),
        format!(
            "ERROR: <input>:1:1: Syntax error: mismatched input '*' expecting {operand}\n | *\n | ^\n\
             ERROR: <input>:1:2: Syntax error: mismatched input '<EOF>' expecting {operand}\n | *\n | .^"
        )
    );
    assert_eq!(
        env().compile("{{x}}").expect_err("no values").to_string(),
        "ERROR: <input>:1:4: Syntax error: mismatched input '}' expecting ':'\n | {{x}}\n | ...^\n\
         ERROR: <input>:1:5: Syntax error: mismatched input '}' expecting ':'\n | {{x}}\n | ....^"
    );
    let many = env().compile(&"*".repeat(2000)).expect_err("no operands").to_string();
    assert!(many.matches("ERROR").count() <= 101, "{}", many.len());
    let end = env().compile("1 +").expect_err("incomplete").to_string();
    assert!(
        end.starts_with("ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{',"),
        "{end}"
    );
}

/// cel-go's `internalIsAssignableNull` accepts null wherever an optional value is wanted, and an optional
/// list or map can be indexed, so that an index on null is an error of the evaluation only.
#[test]
fn scalars_cannot_be_indexed_or_selected_from() {
    let no_index = |types: &str| format!("found no matching overload for '_[_]' applied to '({types})'");
    let no_field = |of: &str| format!("type '{of}' does not support field selection");
    for (source, wanted) in [
        ("1[0]", no_index("int, int")),
        ("'abc'[0]", no_index("string, int")),
        ("true['a']", no_index("bool, string")),
        ("b'a'[0]", no_index("bytes, int")),
        ("timestamp('2024-01-01T00:00:00Z')[0]", no_index("timestamp, int")),
        ("ip('::1')[0]", no_index("net.IP, int")),
        ("int[0]", no_index("type(int), int")),
        ("[1]['a']", no_index("list(int), string")),
        ("{'a': 1}[0]", no_index("map(string, int), int")),
        ("self['name']", no_index("spec, string")),
        ("optional.of(1)[0]", no_index("optional_type(int), int")),
        (
            "1[?0]",
            "found no matching overload for '_[?_]' applied to '(int, int)'".to_owned(),
        ),
        ("null.a", no_field("null")),
        ("null.?a", no_field("null")),
        ("has(null.a)", no_field("null")),
        ("'abc'.a", no_field("string")),
        ("[1].a", no_field("list(int)")),
        ("ip('::1').a", no_field("net.IP")),
        ("optional.of(1).a", no_field("int")),
    ] {
        let issues = env().compile(source).expect_err(source).to_string();
        assert!(issues.contains(&wanted), "{source}: {issues}");
    }
    for (source, wanted) in [
        ("null[0]", "error: no such key: 0"),
        ("null['a']", "error: no such key: a"),
        ("null[?0].hasValue()", "false"),
        ("[null][0][0]", "error: no such key: 0"),
    ] {
        assert_eq!(evaluate(source), wanted, "{source}");
    }
}

#[test]
fn json_is_read_as_go_reads_it_and_its_keys_may_be_escaped() {
    let mut env = Environment::default();
    env.declare("claims", Schema::map(Schema::json(), u64::MAX));
    let mut names = Schema::list(Schema::scalar(Type::String, u64::MAX), u64::MAX);
    names.escaped_key = true;
    env.declare("extra", Schema::map(names, u64::MAX));
    let claims = json!({
        "n": 1,
        "kubernetes.io": {"pod-name": "p", "list": [{"a/b": 2, "__x": true}], "x__dot__y": 3, "if": 4, "a__b__c": 5, "___dot__": 6}
    });
    let extra = json!({"example.org/a": ["x"]});
    for (source, wanted) in [
        ("claims.n", "1"),
        ("claims.n + 1.0 == 2.0 && claims.n == 1", "true"),
        ("claims.n + 1 == 2", "no such overload"),
        ("claims.kubernetes__dot__io.pod__dash__name", "p"),
        ("claims['kubernetes.io'].?pod__dash__name.orValue('')", "p"),
        ("has(claims.kubernetes__dot__io.list[0].a__slash__b)", "true"),
        ("claims.kubernetes__dot__io.list[0].__underscores__x", "true"),
        ("claims.kubernetes__dot__io.x__dot__y", "no such key: x__dot__y"),
        ("claims.kubernetes__dot__io.x__underscores__dot__underscores__y", "3"),
        ("claims.kubernetes__dot__io.__if__", "4"),
        ("claims.kubernetes__dot__io.a__b__c", "5"),
        ("claims.kubernetes__dot__io['____dot__']", "no such key: ____dot__"),
        ("extra.example__dot__org__slash__a[0]", "x"),
        ("extra['example.org/a'].size()", "1"),
        (
            "claims + 1",
            "found no matching overload for '_+_' applied to '(map(string, any), int)'",
        ),
        (
            "claims.n.all(x, true)",
            "expression of type 'any' cannot be range of a comprehension",
        ),
        ("claims.n.m.all(x, true)", "no such key: m"),
    ] {
        let program = match env.compile(source) {
            Ok(program) => program,
            Err(issues) => {
                assert!(issues.to_string().contains(wanted), "{source}: {issues}");
                continue;
            }
        };
        let value = |name, tree| Variable {
            name,
            value: Val::of(tree, env.variable(name).expect("declared")).expect("an object"),
        };
        let outcome = program.evaluate(&[value("claims", &claims), value("extra", &extra)], 1_000);
        let shown = match outcome.value {
            Ok(v) => library::format_value(&v),
            Err(why) => why.to_string(),
        };
        assert!(shown.starts_with(wanted), "{source}: {shown}");
    }
}

#[test]
fn selected_fields_are_found_by_their_names() {
    for (source, found) in [
        ("claims.email", true),
        ("has(claims.email) && true", true),
        ("claims.?email.orValue('')", true),
        ("[{'a': [1].exists(x, claims.email == 'a')}]", true),
        ("'x' + string(claims.email.a)", true),
        ("claims['email']", false),
        ("claims.x.email + user.email", false),
        ("claims.emails", false),
        ("claims.email +", false),
    ] {
        assert_eq!(selects(source, "claims", "email"), found, "{source}");
    }
}

#[test]
fn cel_bind_works_only_if_enabled() {
    let mut env = Environment::default();
    let source = "cel.bind(x, 2 + 3, cel.bind(y, x * x, y - x)) == 20";
    let refused = env.compile(source).expect_err("no macro, and no function").to_string();
    assert!(refused.contains("undeclared reference to 'cel'"), "{refused}");
    env.allow_binding();
    let program = env.compile(source).expect("it is well typed");
    let value = program.evaluate(&[], 1_000).value.expect("it evaluates");
    assert_eq!(value.as_bool(), Some(true));
}

#[test]
fn size_and_depth_are_limited() {
    let long = env().compile(&"a".repeat(100_001)).expect_err("too long").to_string();
    assert_eq!(
        long,
        "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100001, limit 100000"
    );
    for deep in [
        "(".repeat(5_000),
        "[".repeat(5_000),
        format!("1{}", " + 1".repeat(5_000)),
        "!-".repeat(5_000),
    ] {
        assert!(env().compile(&deep).is_err());
    }
    let wide = vec!["true"; 10_000].join(" && ");
    assert_eq!(evaluate(&wide), "true", "a chain of && is as deep as its logarithm");
}

#[test]
fn cost_is_counted_and_limited() {
    let cost = |source: &str| {
        let (tree, env) = (object(), env());
        let value = Val::of(&tree, env.variable("self").expect("declared")).expect("of the type");
        let program = env.compile(source).expect("well typed");
        let outcome = program.evaluate(&[Variable { name: "self", value }], 1_000_000);
        (outcome.cost, program.estimated_cost())
    };
    assert_eq!(cost("true"), (0, 0));
    assert_eq!(cost("self.replicas > 1"), (3, 3));
    assert_eq!(cost("has(self.name)").0, 1);
    assert_eq!(cost("self.name == 'web'"), (3, 3));
    assert_eq!(cost("self.tags.all(t, t == 'a')").1, 2 + 1 + 5 * (2 + 3));
    let endless = "[0,1,2,3,4,5,6,7,8,9]";
    let nested = format!(
        "{endless}.all(a, {endless}.all(b, {endless}.all(c, {endless}.all(d, {endless}.all(e, {endless}.all(f, true))))))"
    );
    assert_eq!(evaluate(&nested), "cost");
}
