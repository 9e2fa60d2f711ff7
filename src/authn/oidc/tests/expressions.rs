//! CEL expressions: errors of files, mapping of claims, and the limit of what a reactor thread evaluates.

use super::super::claims;
use super::super::expressions::Failure;
use super::*;
use crate::request::UserInfo;
use crate::tasks::compute::{self, ComputePool};
use crate::telemetry::Telemetry;
use torana_cel::Budget;

/// A file with one provider, whose rules and mappings these lines are.
fn file(lines: &str) -> String {
    let lines = lines.trim_matches('\n').replace('\n', "\n  ");
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n\
         - issuer: {{url: 'https://idp', audiences: [a]}}\n  {lines}\n"
    )
}

fn refusal(lines: &str) -> String {
    Configuration::parse(&file(lines), &[]).unwrap_err().to_string()
}

fn issuer(lines: &str) -> JwtIssuer {
    let parsed = Configuration::parse(&file(lines), &[]);
    parsed.unwrap_or_else(|e| panic!("{lines}: {e}")).issuers.remove(0)
}

/// The mappings besides a valid user name.
fn mapping(rest: &str) -> String {
    format!("claimMappings:\n  username: {{expression: claims.sub}}\n{rest}")
}

#[test]
fn errors_have_upstreams_messages_and_paths() {
    let undeclared = "\"foo.bar\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo.bar\n | ^";
    let claim_rules = |rules: &str| format!("claimValidationRules: {rules}\n{}", mapping(""));
    let user_rules = |rules: &str| format!("userValidationRules: {rules}\n{}", mapping(""));
    let extra = |extra: &str| mapping(&format!("  extra: {extra}"));
    for (lines, errors) in [
        // Rules on claims.
        (
            claim_rules("[{expression: foo.bar}]"),
            vec![format!("claimValidationRules[0].expression: Invalid value: {undeclared}")],
        ),
        (
            claim_rules("[{expression: claims.admin}, {expression: \"claims.?v.orValue(true)\"}, {expression: '1'}]"),
            vec![
                "claimValidationRules[0].expression: Invalid value: \"claims.admin\": must evaluate to bool".into(),
                "claimValidationRules[1].expression: Invalid value: \"claims.?v.orValue(true)\": must evaluate to bool".into(),
                "claimValidationRules[2].expression: Invalid value: \"1\": must evaluate to bool".into(),
            ],
        ),
        (
            claim_rules("[{claim: c, expression: 'true'}, {expression: 'true', requiredValue: v}, {expression: 'true'}]"),
            vec![
                "claimValidationRules[0]: Invalid value: \"c\": claim and expression can't both be set".into(),
                "claimValidationRules[1].requiredValue: Invalid value: \"v\": may not be specified when expression is set".into(),
                "claimValidationRules[2].expression: Duplicate value: \"true\"".into(),
            ],
        ),
        (
            claim_rules("[{expression: \"user.username == ''\"}]"),
            vec![
                "claimValidationRules[0].expression: Invalid value: \"user.username == ''\": compilation failed: ERROR: <input>:1:1: \
                 undeclared reference to 'user' (in container '')\n | user.username == ''\n | ^"
                    .into(),
            ],
        ),
        // Rules on the user.
        (
            user_rules("[{message: m}, {expression: user.username}, {expression: \"user.nothere == ''\"}]"),
            vec![
                "userValidationRules[0].expression: Required value".into(),
                "userValidationRules[1].expression: Invalid value: \"user.username\": must evaluate to bool".into(),
                "userValidationRules[2].expression: Invalid value: \"user.nothere == ''\": compilation failed: ERROR: <input>:1:5: \
                 undefined field 'nothere'\n | user.nothere == ''\n | ....^"
                    .into(),
            ],
        ),
        (
            user_rules("[{expression: user.uid == ''}, {expression: user.uid == ''}]"),
            vec!["userValidationRules[1].expression: Duplicate value: \"user.uid == ''\"".into()],
        ),
        // Mappings.
        (
            "claimMappings:\n  username: {expression: claims.sub, prefix: 'p:'}\n  groups: {claim: g, expression: claims.g}\n  \
             uid: {claim: u, expression: claims.u}"
                .into(),
            vec![
                "claimMappings.username.prefix: Invalid value: \"p:\": may not be specified when expression is set".into(),
                "claimMappings.groups: Invalid value: \"\": claim and expression can't both be set".into(),
                "claimMappings.uid: Invalid value: \"\": claim and expression can't both be set".into(),
            ],
        ),
        (
            "claimMappings:\n  username: {expression: foo.bar}\n  groups: {expression: foo.bar}\n  uid: {expression: foo.bar}".into(),
            ["username", "groups", "uid"]
                .map(|at| format!("claimMappings.{at}.expression: Invalid value: {undeclared}"))
                .to_vec(),
        ),
        (
            mapping("  uid: {expression: 'claims + 1'}"),
            vec![
                "claimMappings.uid.expression: Invalid value: \"claims + 1\": compilation failed: ERROR: <input>:1:8: found no \
                 matching overload for '_+_' applied to '(map(string, any), int)'\n | claims + 1\n | .......^"
                    .into(),
            ],
        ),
        // Extra information.
        (
            extra("[{key: '', valueExpression: claims.a}, {key: foo, valueExpression: claims.a}]"),
            vec![
                "claimMappings.extra[0].key: Required value".into(),
                "claimMappings.extra[1].key: Invalid value: \"foo\": must be a domain-prefixed path (such as \"acme.io/foo\")".into(),
            ],
        ),
        (
            extra("[{key: x.k8s.io/a, valueExpression: claims.a}, {key: kubernetes.io/a, valueExpression: claims.a}]"),
            ["extra[0].key: Invalid value: \"x.k8s.io/a\"", "extra[1].key: Invalid value: \"kubernetes.io/a\""]
                .map(|at| {
                    format!("claimMappings.{at}: k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use")
                })
                .to_vec(),
        ),
        (
            extra("[{key: example.org/A}, {key: example.org/A}, {key: my-k8s.io/a, valueExpression: foo.bar}]"),
            vec![
                "claimMappings.extra[0].key: Invalid value: \"example.org/A\": must be lowercase".into(),
                "claimMappings.extra[0].valueExpression: Required value".into(),
                "claimMappings.extra[1].key: Invalid value: \"example.org/A\": must be lowercase".into(),
                "claimMappings.extra[1].key: Duplicate value: \"example.org/A\"".into(),
                format!("claimMappings.extra[2].valueExpression: Invalid value: {undeclared}"),
            ],
        ),
    ] {
        // An error that occurs twice is reported once.
        let mut errors: Vec<String> = errors.iter().map(|e| format!("jwt[0].{e}")).collect();
        let mut seen = std::collections::HashSet::new();
        errors.retain(|e| seen.insert(e.clone()));
        let wanted = match errors.as_slice() {
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        assert_eq!(refusal(&lines), wanted);
    }
}

#[test]
fn a_file_is_checked_in_upstreams_order() {
    let lines = "userValidationRules: [{}]\nclaimMappings: {username: {expression: '('}}\nclaimValidationRules: [{}]";
    let message = refusal(lines);
    let places: Vec<usize> = [
        "claimValidationRules[0]",
        "claimMappings.username",
        "userValidationRules[0]",
    ]
    .iter()
    .map(|at| message.find(at).unwrap_or_else(|| panic!("{at} in {message}")))
    .collect();
    assert!(places.is_sorted(), "{message}");
}

#[test]
fn an_email_address_used_as_name_must_be_verified() {
    let with = |name: &str, rest: &str| {
        let name = crate::apimachinery::field::quote(name);
        Configuration::parse(
            &file(&format!("claimMappings:\n  username: {{expression: {name}}}\n{rest}")),
            &[],
        )
    };
    let extra = "  extra: [{key: example.org/a, valueExpression: 'claims.?email_verified'}]";
    let rule = "claimValidationRules: [{expression: 'claims.?email_verified.orValue(true) == true'}]";
    let user = "userValidationRules: [{expression: \"user.username != 'email_verified'\"}]";
    for (name, rest, fine) in [
        ("claims.email", "", false),
        ("claims.?email", "", false),
        ("{claims.?email: 'a'}", "", false),
        ("['a'].map(i, i + claims.email)", "", false),
        ("['a', string(claims.email)].join(' ')", user, false),
        ("claims.email", extra, true),
        ("claims.email", rule, true),
        (
            "claims.?email_verified.orValue(false) ? claims.email : claims.sub",
            "",
            true,
        ),
        // By name only.
        ("claims['email']", "", true),
        ("claims.email_", "", true),
        ("claims.a.email", "", true),
    ] {
        let parsed = with(name, rest).map_err(|e| e.to_string());
        let why = format!(
            "jwt[0].claimMappings.username.expression: Invalid value: {}: claims.email_verified must be used in \
             claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when \
             claims.email is used in claimMappings.username.expression",
            crate::apimachinery::field::quote(name)
        );
        assert_eq!(parsed.err(), (!fine).then_some(why), "{name} {rest}");
    }
}

fn map(lines: &str, claims: &Value) -> Result<UserInfo, String> {
    claims::user(&issuer(lines), claims, Budget::full()).map_err(|failure| match failure {
        Failure::Refused(why) => why,
        Failure::Costly => unreachable!("the full budget suffices"),
    })
}

fn claims_of_a_pod() -> Value {
    json!({
        "sub": "jane", "jti": "7", "n": 3, "list": ["a", "", "b"], "mixed": ["a", 1], "nothing": null, "empty": "", "yes": true,
        "roles": "x,y", "more": "z", "nested": {"a.b": [{"c-d": "deep"}]},
        "kubernetes.io": {"namespace": "ns", "pod": {"name": "p", "uid": "u1"}, "warnafter": 1_700_081_020}
    })
}

#[test]
fn claims_map_to_the_user() {
    let lines = "
claimValidationRules:
- expression: has(claims.kubernetes__dot__io.pod.uid) && claims['kubernetes.io'].pod.name == 'p'
- expression: \"claims[?'kubernetes.io']['node']['ip'].orValue(true)== true\"
claimMappings:
  username: {expression: \"'sa:' + claims.kubernetes__dot__io.namespace\"}
  groups: {expression: \"(claims.roles.split(',') + [claims.more]).map(r, 'g:' + r)\"}
  uid: {expression: 'claims.nested.a__dot__b[0].c__dash__d'}
  extra:
  - {key: example.org/after, valueExpression: string(int(claims.kubernetes__dot__io.warnafter))}
  - {key: example.org/list, valueExpression: claims.list}
  - {key: example.org/nothing, valueExpression: claims.nothing}
  - {key: example.org/empty, valueExpression: claims.empty}
  - {key: example.org/gone, valueExpression: \"claims.?gone.orValue('')\"}
  - {key: example.org/none, valueExpression: '[]'}
userValidationRules:
- expression: user.username.startsWith('sa:') && user.uid == 'deep' && 'g:z' in user.groups && user.groups.size() == 3
- expression: user.extra.example__dot__org__slash__list == ['a', 'b'] && user.extra['example.org/after'][0] == '1700081020'
- expression: \"user.extra[?'example.org/nothing'].orValue([]) == [] && !has(user.extra.example__dot__org__slash__none)\"
- expression: user.extra.size() == 3
";
    let user = map(lines, &claims_of_a_pod()).unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("sa:ns", "deep"));
    assert_eq!(user.groups, ["g:x", "g:y", "g:z"]);
    let extra: Vec<(String, String)> = user.extra.into_iter().map(|(k, v)| (k, v.join(" "))).collect();
    let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
    assert_eq!(
        extra,
        [
            pair("authentication.kubernetes.io/credential-id", "JTI=7"),
            pair("example.org/after", "1700081020"),
            pair("example.org/list", "a b"),
        ]
    );
    // Absent fields are empty rather than missing.
    let rules =
        "userValidationRules: [{expression: \"user.uid == '' && user.groups == [] && !('a' in user.extra)\"}]\n";
    let claims = json!({"sub": " ", "groups": null});
    let user = map(
        &format!("{rules}{}", mapping("  groups: {expression: claims.groups}")),
        &claims,
    )
    .unwrap();
    assert_eq!((user.name.as_str(), user.groups.len()), (" ", 0));
}

#[test]
fn result_type_errors_have_upstreams_messages() {
    let name = |expression: &str| format!("claimMappings:\n  username: {{expression: {expression}}}");
    let groups = |expression: &str| mapping(&format!("  groups: {{expression: {expression}}}"));
    let extra = |a: &str, b: &str| {
        let entry = |key: &str, e: &str| format!("  - {{key: example.org/{key}, valueExpression: {e}}}");
        mapping(&format!("  extra:\n{}\n{}", entry("a", a), entry("b", b)))
    };
    let rules = |kind: &str, a: &str, b: &str| {
        format!(
            "{kind}: [{{expression: {a}, message: first}}, {{expression: {b}, message: second}}]\n{}",
            mapping("")
        )
    };
    let strings = "expression must return a string or a list of strings";
    for (lines, wanted) in [
        (
            name("claims.gone"),
            "oidc: error evaluating username claim expression: expression 'claims.gone' resulted in error: no such key: gone".into(),
        ),
        (
            name("claims.n"),
            "oidc: error evaluating username claim expression: username claim expression must return a string".into(),
        ),
        (name("claims.empty"), "oidc: empty username via CEL expression is not allowed".into()),
        (
            name("claims.sub + claims.n"),
            "oidc: error evaluating username claim expression: expression 'claims.sub + claims.n' resulted in error: no such overload"
                .into(),
        ),
        (groups("claims.mixed"), format!("oidc: error evaluating group claim expression: {strings}")),
        (groups("claims.nested"), format!("oidc: error evaluating group claim expression: {strings}")),
        (groups("claims.yes"), format!("oidc: error evaluating group claim expression: {strings}")),
        (groups("claims.?sub"), format!("oidc: error evaluating group claim expression: {strings}")),
        (
            groups("claims.nested.x"),
            "oidc: error evaluating group claim expression: expression 'claims.nested.x' resulted in error: no such key: x".into(),
        ),
        (
            mapping("  uid: {expression: claims.list}"),
            "oidc: error evaluating uid claim expression: uid claim expression must return a string".into(),
        ),
        (
            mapping("  uid: {expression: claims.gone}"),
            "oidc: error evaluating uid claim expression: expression 'claims.gone' resulted in error: no such key: gone".into(),
        ),
        (
            extra("claims.n", "claims.sub"),
            format!("oidc: error evaluating extra claim expression: claims.n: {strings}"),
        ),
        // All are evaluated before a result is looked at.
        (
            extra("claims.n", "claims.gone"),
            "expression 'claims.gone' resulted in error: no such key: gone".into(),
        ),
        (
            rules("claimValidationRules", "claims.n == 3", "claims.sub == 'joe'"),
            "oidc: error evaluating claim validation expression: validation expression 'claims.sub == 'joe'' failed: second".into(),
        ),
        (
            rules("claimValidationRules", "claims.sub == 'joe'", "claims.gone == 'x'"),
            "oidc: error evaluating claim validation expression: expression 'claims.gone == 'x'' resulted in error: no such key: gone"
                .into(),
        ),
        (
            rules("userValidationRules", "user.username == 'jane'", "\"!user.username.startsWith('j')\""),
            "oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith('j')' failed: second"
                .into(),
        ),
        (
            rules("userValidationRules", "\"user.extra['x'][0] == 'a'\"", "'true'"),
            "oidc: error evaluating user info validation rule: expression 'user.extra['x'][0] == 'a'' resulted in error: no such key: x"
                .into(),
        ),
        // Required claims come before conditions.
        (
            rules("claimValidationRules", "claims.sub == 'joe'", "'true'").replace("[{exp", "[{claim: hd}, {exp"),
            "oidc: required claim hd not present in ID token".into(),
        ),
    ] {
        let got = map(&lines, &claims_of_a_pod()).map_err(|why| why.replace(" failed: first", ""));
        assert!(got.as_ref().is_err_and(|got| got.starts_with(&wanted)), "{lines}\n{got:?}\n{wanted}");
    }
}

#[test]
fn the_documented_example_is_valid() {
    let page = include_str!("../../../../docs/authentication.md");
    let (_, example) = page.split_once("An example:\n\n").unwrap();
    let lines: Vec<&str> = example.lines().map_while(|line| line.strip_prefix("    ")).collect();
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    let config = Configuration::parse(&format!("{head}{}", lines.join("\n")), &[]).unwrap();
    let claims = json!({"email": "j@x", "email_verified": true, "roles": "dev,ops", "tenant": "t"});
    let user = claims::user(&config.issuers[0], &claims, Budget::quick()).unwrap();
    assert_eq!(
        (user.name.as_str(), user.groups.join(" ")),
        ("j@x", "idp:dev idp:ops".into())
    );
    assert_eq!(user.extra["example.org/tenant"], ["t"]);
}

/// Expressions that upstream refuses although they are well-typed (`docs/wire/differences.md`).
#[test]
fn claims_are_a_map_like_any_other() {
    let uid = "[string('sub' in claims), string(claims.size()), string(claims.exists(c, c == 'jti'))].join(' ')";
    let lines = mapping(&format!(
        "  uid: {{expression: \"{uid}\"}}\n  groups: {{expression: \"claims.roles.split(',')\"}}"
    ));
    let user = map(&lines, &claims_of_a_pod()).unwrap();
    assert_eq!(
        (user.uid.as_str(), user.groups.join(" ")),
        ("true 12 true", "x y".into())
    );
}

#[test]
fn numbers_are_floats_as_in_go() {
    let whole = mapping("  uid: {expression: 'string(claims.n) + string(type(claims.n) == double)'}");
    assert_eq!(map(&whole, &claims_of_a_pod()).unwrap().uid, "3true");
}

/// Costs more than a reactor thread may spend, and less than the limit.
const EXPENSIVE: &str = "lists.range(30).all(x, lists.range(30).all(y, x + y >= 0))";
const ENDLESS: &str = "lists.range(2000).all(x, lists.range(2000).all(y, x + y >= 0))";

#[tokio::test]
async fn expensive_expressions_are_evaluated_on_the_pool_and_end_at_upstreams_limit() {
    let (idp, tasks, key) = (idp().await, TaskGroup::new("test"), ec());
    idp.publish(&[&key]);
    let metrics = Telemetry::new();
    let pool = ComputePool::start(compute::Config::default(), metrics.compute.clone()).unwrap();
    let endless_error = format!(
        "oidc: error evaluating claim validation expression: expression '{ENDLESS}' resulted in error: operation cancelled: actual \
         cost limit exceeded"
    );
    for (condition, wanted) in [
        ("true", Ok("jane")),
        (EXPENSIVE, Ok("jane")),
        (ENDLESS, Err(endless_error)),
    ] {
        let rule = format!("claimValidationRules: [{{expression: '{condition}'}}]\n{}", mapping(""));
        let issuer = JwtIssuer {
            url: idp.url.clone(),
            ca_pem: Some(idp.ca.clone()),
            audiences: vec!["kubernetes".into()],
            ..issuer(&rule)
        };
        let quick = claims::user(&issuer, &idp.claims(), Budget::quick());
        assert_eq!(
            quick.is_err_and(|e| e == Failure::Costly),
            condition != "true",
            "{condition}"
        );
        let tokens = idp.authenticators(issuer, &tasks).await.with_pool(pool.clone());
        let got = ask(&tokens, &key.sign(&idp.claims()).unwrap()).await;
        assert_eq!(
            got.map(|found| found.unwrap().user.name.clone()),
            wanted.map(str::to_owned)
        );
    }
}

#[test]
fn many_cheap_expressions_are_expensive_together() {
    let rules = |n: usize| {
        let rules: Vec<String> = (0..n).map(|i| format!("{{expression: 'claims.n != {i}.5'}}")).collect();
        issuer(&format!(
            "claimValidationRules: [{}]\n{}",
            rules.join(", "),
            mapping("")
        ))
    };
    let claims = claims_of_a_pod();
    assert!(claims::user(&rules(20), &claims, Budget::quick()).is_ok());
    assert_eq!(
        claims::user(&rules(1000), &claims, Budget::quick()),
        Err(Failure::Costly)
    );
    assert!(claims::user(&rules(1000), &claims, Budget::full()).is_ok());
}

#[test]
fn configurations_with_equal_expressions_are_equal() {
    let lines = mapping("  groups: {expression: claims.g}");
    assert_eq!(issuer(&lines), issuer(&lines));
    assert_ne!(issuer(&lines), issuer(&mapping("  groups: {expression: claims.h}")));
}
