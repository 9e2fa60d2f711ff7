use super::*;
use crate::request::RequestInfo;

fn policy(rules: &str) -> Policy {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}");
    Policy::parse(text.as_bytes()).unwrap()
}

/// Parses `verb group/resource/subresource namespace name`, or `verb /path`.
fn info(text: &str) -> RequestInfo {
    let mut words = text.split(' ');
    let (verb, what) = (words.next().unwrap(), words.next().unwrap());
    if what.starts_with('/') {
        return RequestInfo {
            verb: verb.into(),
            path: what.into(),
            ..RequestInfo::default()
        };
    }
    let mut parts = what.split(':');
    RequestInfo {
        is_resource: true,
        verb: verb.into(),
        api_group: parts.next().unwrap().into(),
        resource: parts.next().unwrap().into(),
        subresource: parts.next().unwrap_or("").into(),
        namespace: words.next().unwrap_or("").into(),
        name: words.next().unwrap_or("").into(),
        ..RequestInfo::default()
    }
}

#[test]
fn rules_match_as_upstream() {
    let user = UserInfo::system("u", &["g", "h"]);
    for (rule, request, matches) in [
        ("users: [u]", "get :pods", true),
        ("users: ['*']", "get :pods", false),
        ("userGroups: [x, h]", "get /version", true),
        ("userGroups: [x]", "get /version", false),
        ("verbs: [get]", "get :pods", true),
        ("verbs: [list]", "get :pods", false),
        ("verbs: ['*']", "get :pods", false),
        ("namespaces: ['n']", "get :pods n", true),
        ("namespaces: ['n']", "get :pods m", false),
        ("namespaces: ['']", "get :nodes", true),
        ("namespaces: ['']", "get /version", false),
        ("resources: [{group: ''}]", "get :pods:log n", true),
        ("resources: [{group: ''}]", "get apps:deployments n", false),
        ("resources: [{group: '*'}]", "get apps:deployments n", true),
        (
            "resources: [{group: '*', resources: [deployments]}]",
            "get apps:deployments n",
            true,
        ),
        ("resources: [{resources: [pods]}]", "get :pods n", true),
        ("resources: [{resources: [pods]}]", "get :pods:log n", false),
        ("resources: [{resources: [pods/log]}]", "get :pods:log n", true),
        ("resources: [{resources: [pods/log]}]", "get :pods n", false),
        ("resources: [{resources: ['pods/*']}]", "get :pods:log n", true),
        ("resources: [{resources: ['pods/*']}]", "get :pods n", true),
        ("resources: [{resources: ['pods/*']}]", "get :nodes:log n", false),
        ("resources: [{resources: ['*']}]", "get :pods:log n", true),
        (
            "resources: [{resources: ['*/scale']}]",
            "get :replicationcontrollers:scale n",
            true,
        ),
        (
            "resources: [{resources: ['*/scale']}]",
            "get :replicationcontrollers n",
            false,
        ),
        (
            "resources: [{resources: [pods], resourceNames: [a]}]",
            "get :pods n a",
            true,
        ),
        (
            "resources: [{resources: [pods], resourceNames: [a]}]",
            "get :pods n b",
            false,
        ),
        (
            "resources: [{resources: [pods]}]\n  namespaces: ['n']",
            "get :pods m",
            false,
        ),
        ("nonResourceURLs: ['*']", "get /healthz", true),
        ("nonResourceURLs: [/healthz]", "get /healthz/etcd", false),
        ("nonResourceURLs: ['/healthz*']", "get /healthz/etcd", true),
        ("nonResourceURLs: ['*']", "get :pods n", false),
        ("resources: [{group: ''}]", "get /healthz", false),
    ] {
        let p = policy(&format!("- level: Metadata\n  {rule}\n"));
        let level = p.decide(Some(&user), &info(request)).level;
        assert_eq!(level == AuditLevel::Metadata, matches, "{rule} on {request}");
    }
}

#[test]
fn an_unauthenticated_request_matches_no_user_rule() {
    let p = policy("- {level: Request, users: [u]}\n- {level: Request, userGroups: [g]}\n- {level: Metadata}\n");
    assert_eq!(p.decide(None, &info("get :pods")).level, AuditLevel::Metadata);
}

#[test]
fn the_first_matching_rule_applies_and_no_match_is_not_recorded() {
    let p = policy("- {level: None, verbs: [watch]}\n- {level: Request, verbs: [watch, list]}\n");
    let user = UserInfo::anonymous();
    let level = |verb: &str| p.decide(Some(&user), &info(&format!("{verb} :pods"))).level;
    assert_eq!(level("watch"), AuditLevel::None);
    assert_eq!(level("list"), AuditLevel::Request);
    assert_eq!(level("get"), AuditLevel::None);
}

#[test]
fn omitted_stages_are_merged_and_managed_fields_overridden() {
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n\
                - {level: Request, verbs: [get], omitStages: [Panic], omitManagedFields: false}\n- level: Metadata\n";
    let p = Policy::parse(text.as_bytes()).unwrap();
    let first = p.decide(None, &info("get :pods"));
    assert!(first.omit_stages.has(Stage::RequestReceived) && first.omit_stages.has(Stage::Panic));
    assert!(!first.omit_stages.has(Stage::ResponseComplete) && !first.omit_managed_fields);
    assert!(p.decide(None, &info("list :pods")).omit_managed_fields);
}

#[test]
fn errors_name_the_line() {
    let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
    for (text, want) in [
        ("", "line 1: expected a mapping"),
        (
            "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\n",
            "line 1: apiVersion: expected kind Policy",
        ),
        (
            "apiVersion: audit.k8s.io/v1\nkind: Event\n",
            "line 2: kind: expected kind Policy",
        ),
        (
            &format!("{head}rules: []\n"),
            "line 3: rules: loaded illegal policy with 0 rules",
        ),
        (&format!("{head}rule: []\n"), "line 3: rule: unknown field"),
        (
            &format!("{head}rules:\n- level: Metadata\n  user: [a]\n"),
            "line 5: rules[0].user: unknown field",
        ),
        (
            &format!("{head}rules:\n- level: metadata\n"),
            "line 4: rules[0].level: Unsupported value: \"metadata\"",
        ),
        (
            &format!("{head}rules:\n- users: [a]\n"),
            "line 4: rules[0].level: Required value",
        ),
        (
            &format!("{head}rules:\n- level: 5\n"),
            "line 4: rules[0].level: expected text",
        ),
        (
            &format!("{head}rules:\n- level: None\n  users: a\n"),
            "line 5: rules[0].users: expected a list",
        ),
        (
            &format!("{head}rules:\n- level: None\n  verbs: [get, 1]\n"),
            "line 5: rules[0].verbs[1]: expected text",
        ),
        (
            &format!("{head}omitStages: [Begin]\n"),
            "line 3: omitStages[0]: Unsupported value: \"Begin\"",
        ),
        (
            &format!("{head}rules:\n- level: None\n  resources:\n  - resourceNames: [a]\n"),
            "line 6: rules[0].resources[0].resourceNames: using resourceNames requires at least one resource",
        ),
        (
            &format!("{head}rules:\n- level: None\n  nonResourceURLs: [healthz]\n"),
            "line 5: rules[0].nonResourceURLs[0]: non-resource URL rules must begin with a '/' character",
        ),
        (
            &format!("{head}rules:\n- level: None\n  nonResourceURLs: ['/é', '/a*é']\n"),
            "line 5: rules[0].nonResourceURLs[1]: non-resource URL wildcards '*' must be the final character",
        ),
        (
            &format!("{head}rules:\n- level: None\n  nonResourceURLs: ['/a*b']\n"),
            "wildcards '*' must be the final character",
        ),
        (
            &format!("{head}rules:\n- level: None\n  namespaces: [a]\n  nonResourceURLs: [/a]\n"),
            "line 6: rules[0].nonResourceURLs: rules cannot apply to both",
        ),
        (
            &format!("{head}rules:\n- level: None\n  level: None\n"),
            "line 5: key \"level\" already set in map",
        ),
        (&format!("{head}rules:\n- level: [\n"), "yaml: line"),
    ] {
        let error = Policy::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(want), "{text:?}: {error}");
    }
}
