//! Kubernetes' additions to the language: its libraries, list types, construction of objects, and costs.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::Mutex;
use torana_apimachinery::{Value, json};
use torana_cel::{
    Activation, Authorizer, Check, Decision, Environment, Fail, Field, ListType, ObjectType, Out, Schema, Type,
    Unusable, Val, Variable, escape,
};

fn field(name: &str, schema: Schema) -> Field {
    Field {
        name: escape(name).expect("a name").into(),
        key: name.into(),
        schema,
    }
}

fn text(max: u64) -> Schema {
    Schema::scalar(Type::String, max)
}

fn object(name: &str, fields: Vec<Field>) -> Schema {
    Schema::object(Arc::new(ObjectType::new(name, fields)))
}

fn environment() -> Environment {
    let pair = object("pair", vec![field("key", text(10)), field("value", text(10))]);
    let fields = vec![
        field("name", text(40)),
        field("replicas", Schema::scalar(Type::Int, 0)),
        field("a-b", text(10)),
        field(
            "set",
            Schema {
                list_type: ListType::Set,
                ..Schema::list(text(10), 5)
            },
        ),
        field(
            "pairs",
            Schema {
                list_type: ListType::Map(["key".into()].into()),
                ..Schema::list(pair, 5)
            },
        ),
        field("plain", Schema::list(text(10), 5)),
        field("labels", Schema::map(text(8), 4)),
    ];
    let mut env = Environment::default();
    env.declare("self", object("self", fields));
    env.declare("dyn_self", Schema::any());
    env
}

fn tree() -> Value {
    json!({"name": "web", "replicas": 2, "a-b": "x", "set": ["a", "b"], "plain": ["a", "b"], "labels": {"k": "v"},
           "pairs": [{"key": "x", "value": "1"}, {"key": "y", "value": "2"}]})
}

fn with<T>(env: &Environment, source: &str, use_it: impl FnOnce(Out<'_>, u64) -> T) -> T {
    let tree = tree();
    let program = env.compile(source).unwrap_or_else(|e| panic!("{source}: {e}"));
    let variable = |name| Variable {
        name,
        value: Val::of(&tree, env.variable(name).expect("declared")).expect("of the type"),
    };
    let outcome = program.evaluate(&[variable("self"), variable("dyn_self")], 1_000_000);
    use_it(outcome.value, outcome.cost)
}

fn shown(source: &str) -> String {
    with(&environment(), source, |value, _| match value {
        Ok(Val::String(s)) => s.to_string(),
        Ok(v) => v
            .to_tree()
            .map_or_else(|e| e.to_string(), |t| torana_apimachinery::codec::json::to_string(&t)),
        Err(e) => format!("error: {e}"),
    })
}

#[test]
fn libraries_evaluate_as_in_kubernetes() {
    for (source, wanted) in [
        ("format.dns1123Label().validate('web').hasValue()", "false"),
        (
            "format.named('dns1123Label').value().validate('Web').value().size()",
            "1",
        ),
        ("format.named('none').hasValue()", "false"),
        (
            "format.uuid().validate('x').value()[0]",
            "does not match the UUID format",
        ),
        ("semver('v1.02', true).minor()", "2"),
        ("isSemver('1.2')", "false"),
        ("semver(self.name)", "error: No Major.Minor.Patch elements found"),
        ("quantity('1500m').asApproximateFloat()", "1.5"),
        (
            "'%s has %d of %.1f%%'.format(['web', dyn(2), dyn(12.25)])",
            "web has 2 of 12.2%",
        ),
        ("'%x %X %o %b'.format([255, 255, 8, 5])", "ff FF 10 101"),
        ("'%s'.format([[1, 2]])", "[1, 2]"),
        (
            "'%d'.format([dyn('a')])",
            "error: error during formatting: decimal clause can only be used on integers, was given string",
        ),
        (
            "('%' + 's').format(['a', 'b'].filter(s, s > 'z'))",
            "error: index 0 out of range",
        ),
        ("timestamp('2024-07-01T12:00:00Z').getHours('Europe/Berlin')", "14"),
        (
            "timestamp('2024-07-01T12:00:00Z').getHours('Not/There')",
            "error: unknown time zone Not/There",
        ),
        ("string(ip('10.0.0.1'))", "10.0.0.1"),
        ("self.a__dash__b", "x"),
        ("dyn_self.none", "error: no such key: none"),
        ("dyn_self.name + 1", "error: no such overload"),
        ("dyn_self.name.startsWith(dyn_self.replicas)", "error: no such overload"),
        ("dyn_self.labels * 2", "error: no such overload: _*_"),
        ("type(self) == map", "true"),
        ("'name' in dyn(self) && !('none' in dyn(self))", "true"),
    ] {
        assert_eq!(shown(source), wanted, "{source}");
    }
}

#[test]
fn list_types_decide_equality_and_addition() {
    for (source, wanted) in [
        ("self.set == ['b', 'a']", "true"),
        ("self.plain == ['b', 'a']", "false"),
        ("self.set + ['b', 'c']", r#"["a","b","c"]"#),
        ("self.plain + ['b', 'c']", r#"["a","b","b","c"]"#),
        ("(self.set + ['c']) == ['c', 'b', 'a']", "true"),
        ("self.pairs == self.pairs", "true"),
        (
            "dyn(self.pairs) == [{'key': 'y', 'value': '2'}, {'key': 'x', 'value': '1'}]",
            "true",
        ),
        (
            "dyn(self.pairs) + [{'key': 'y', 'value': '3'}, {'key': 'z', 'value': '4'}]",
            r#"[{"key":"x","value":"1"},{"key":"y","value":"3"},{"key":"z","value":"4"}]"#,
        ),
    ] {
        assert_eq!(shown(source), wanted, "{source}");
    }
}

#[test]
fn expressions_construct_objects_and_patches() {
    let mut env = environment();
    let refused = env.compile("Object{}").expect_err("no policy").to_string();
    assert!(refused.contains("undeclared reference to 'Object'"), "{refused}");
    env.allow_construction();
    let tree = |source: &str| with(&env, source, |v, _| v.expect("a value").to_tree().expect("a tree"));
    assert_eq!(
        tree("Object{spec: Object.spec{replicas: self.replicas + 1, ?x: optional.none()}}"),
        json!({"spec": {"replicas": 3}})
    );
    assert_eq!(
        tree("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'x'}]"),
        json!([{"op": "add", "path": "/metadata/labels/a~1b", "value": "x"}])
    );
    let checked = |source: &str| {
        with(&env, source, |v, _| match v {
            Ok(Val::Record(record)) => record.check_names().map_err(|e| e.to_string()),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(checked("Object{spec: Object.spec{}}"), Ok(()));
    assert_eq!(
        checked("Object{spec: Object.spec.wrong{}}"),
        Err(r#"unexpected type name "Object.spec.wrong", expected "Object.spec", which matches field name path from root Object type"#.to_owned())
    );
    let unknown = env
        .compile("JSONPatch{operation: 'add'}")
        .expect_err("no such field")
        .to_string();
    let wanted = "1:20: expected type of field 'operation' is '' but provided type is 'string'";
    assert!(unknown.contains(wanted), "{unknown}");
}

/// Allows everything in namespace `a`, and records the checks.
#[derive(Default)]
struct Namespaces(Mutex<Vec<Check>>);

impl Authorizer for Namespaces {
    fn authorize(&self, check: &Check) -> Decision {
        self.0.lock().expect("no holder panics").push(check.clone());
        Decision {
            allowed: check.namespace == "a",
            reason: "by namespace".to_owned(),
            error: None,
        }
    }
}

#[test]
fn checks_reach_the_authorizer() {
    let mut env = Environment::default();
    env.declare("authorizer", Schema::scalar(Type::AUTHORIZER, 0));
    env.declare("authorizer.requestResource", Schema::scalar(Type::RESOURCE_CHECK, 0));
    let authorizer = Namespaces::default();
    let requested = Check {
        resource: "pods".to_owned(),
        namespace: "b".to_owned(),
        ..Check::default()
    };
    let source = "authorizer.group('apps').resource('deployments').namespace('a').check('create').allowed() \
                  && !authorizer.requestResource.check('update').allowed() \
                  && authorizer.serviceAccount('ns', 'sa').path('/healthz').check('get').reason() == 'by namespace'";
    let program = env.compile(source).expect("well typed");
    let variables = [
        Variable {
            name: "authorizer",
            value: Val::authorizer(&authorizer),
        },
        Variable {
            name: "authorizer.requestResource",
            value: Val::resource_check(&authorizer, requested),
        },
    ];
    let outcome = program.evaluate(&variables, 2_000_000);
    assert_eq!(outcome.value.expect("it evaluates").as_bool(), Some(true));
    assert!(outcome.cost > 3 * 350_000, "{}", outcome.cost);
    let asked = authorizer.0.lock().unwrap();
    let [first, second, third] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    assert_eq!(
        (&*first.group, &*first.resource, &*first.verb),
        ("apps", "deployments", "create")
    );
    assert_eq!((&*second.resource, &*second.verb), ("pods", "update"));
    assert_eq!(third.service_account, Some(("ns".to_owned(), "sa".to_owned())));
    assert_eq!(third.path.as_deref(), Some("/healthz"));
}

/// Counts how often it is asked.
struct Lazy(RefCell<u32>);

impl<'a> Activation<'a> for Lazy {
    fn variable(&self, name: &str) -> Option<Out<'a>> {
        *self.0.borrow_mut() += 1;
        match name {
            "variables.good" => Some(Ok(Val::Int(1))),
            _ => Some(Err(Fail::Error("it fails".into()))),
        }
    }
}

#[test]
fn variables_are_resolved_when_they_are_read() {
    let mut env = Environment::default();
    env.declare("variables.good", Schema::scalar(Type::Int, 0));
    env.declare("variables.bad", Schema::scalar(Type::Int, 0));
    let run = |source: &str| {
        let lazy = Lazy(RefCell::new(0));
        let program = env.compile(source).expect("well typed");
        let value = program.evaluate(&lazy, 1000).value.map(|v| v.as_bool());
        (value, *lazy.0.borrow())
    };
    assert_eq!(run("variables.good == 1 || variables.bad == 1"), (Ok(Some(true)), 1));
    assert_eq!(run("variables.good + variables.good == 2"), (Ok(Some(true)), 1));
    assert_eq!(run("variables.bad == 1").0, Err(Fail::Error("it fails".into())));
}

/// Expression, estimate, and cost.
#[test]
fn costs_are_those_of_cel_go_and_kubernetes() {
    let env = environment();
    let mut wrong = Vec::new();
    for (source, estimate, cost) in [
        // A constant list is folded when it is evaluated, but estimated.
        ("[1, 2, 3, 4, 5].sum()", 15, 5),
        ("[1.0, 2.0, 3.0, 4.0, 5.0].isSorted()", 15, 5),
        ("[false, true, false, true, false].max() || true", 15, 5),
        ("[1, 2, 3, 4, 5].indexOf(3)", 15, 5),
        (
            "'01234567890123456789012345678901234567890123456789'.indexOf('123')",
            5,
            5,
        ),
        ("url('https:://kubernetes.io/').getHost()", 4, 4),
        ("ip('192.168.0.1').family()", 3, 3),
        (
            "ip('2001:db8:3333:4444:5555:6666:7777:8888') == ip('192.168.0.1')",
            7,
            7,
        ),
        ("ip.isCanonical('2001:db8:3333:4444:5555:6666:7777:8888')", 8, 8),
        ("cidr('192.168.0.0/16').masked()", 3, 3),
        ("'01234567890123456789'.lowerAscii()", 2, 2),
        ("'01234567890123456789'.replace('0', 'x')", 4, 4),
        // Integers have no size in schemas, so that comparing them is estimated to cost nothing.
        ("self.replicas == 1", 2, 3),
        ("self.replicas > 1", 3, 3),
        ("self.name == 'web'", 3, 3),
        ("has(self.name)", 1, 1),
        ("self.name.size() > 2", 4, 4),
        ("self.set.all(x, x == 'a')", 2 + 1 + 5 * (2 + 1 + 1 + 1), 2 + 2 * 5 + 1),
        ("self.labels['k']", 3, 3),
        ("self.plain[0]", 3, 3),
        // The branches of a conditional are not charged for themselves.
        ("self.replicas > 1 ? self.name : 'x'", 5, 4),
        ("self.name in ['web', 'db']", 2 + 10 + 2, 2),
        ("self.name in self.plain", 2 + 2 + 5, 2 + 2 + 2),
    ] {
        let estimated = env.compile(source).expect(source).estimated_cost();
        let found = with(&env, source, |_, found| found);
        if (estimated, found) != (estimate, cost) {
            wrong.push(format!(
                "{source}: estimate {estimated}, not {estimate}; cost {found}, not {cost}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn hostile_expressions_stay_within_their_memory_limit() {
    let doubled = |step: &str, times: usize| format!("[{step}]{}", ".map(x, x + x)".repeat(times));
    let env = environment();
    for source in [
        doubled("[1]", 60),
        doubled("'0123456789'", 40),
        format!("lists.range(90000).map(i, 'x'.replace('x', '{}'))", "y".repeat(2_000)),
    ] {
        let ended = with(&env, &source, |value, _| matches!(value, Err(Fail::Cost)));
        assert!(ended, "{}", &source[..40]);
    }
    // Patterns whose programs are large, computed ones that differ, and long texts. The costs are low.
    let other = |part: &str| format!("lists.range(3000).all(i, !'a'.matches('{part}' + string(i)))");
    let text = format!("[{}].map(x, x.replace('x', '{}'))", "'xxxx'", "y".repeat(5_000));
    for source in [
        other(r"\\pL{20}"),
        format!("{text}.all(t, t.matches('[xy]{{1000}}z') == false) && {text}.all(t, !t.matches('[yz]{{1000}}x'))"),
    ] {
        let ended = with(&env, &source, |value, _| matches!(value, Err(Fail::Cost)));
        assert!(ended, "{}", &source[..40]);
    }
    let many = vec![r"'a'.matches('\\pL{20}')"; 200].join(" && ");
    let refused = env.compile(&many).expect_err("too large in all").to_string();
    assert!(refused.contains("expression too large"), "{refused}");
    // Values that share their parts are small, but their text or tree would not be.
    let shared = format!("[[1]]{}", ".map(x, [x, x])".repeat(60));
    let text = shown(&format!("'%s'.format([{shared}])"));
    assert_eq!(text, "error: error during formatting: the value is too large");
    assert_eq!(shown(&shared), "the value is too large");
}

#[test]
fn the_type_is_checked_before_constants() {
    let bool_of = |source: &str| environment().compile_typed(source, |of| *of == Type::Bool);
    assert!(bool_of("1 == 1").is_ok());
    assert!(matches!(bool_of("nope"), Err(Unusable::Compilation(_))));
    assert!(matches!(bool_of("int('x')"), Err(Unusable::Type(Type::Int))));
    assert!(matches!(bool_of("int('x') == 1"), Err(Unusable::Instantiation(_))));
}
