use super::*;
use crate::authz::Verdict;
use crate::request::RequestInfo;
use async_trait::async_trait;
use http::Method;

/// Allows the listed actions, given as `verb group/resource/subresource namespace name`.
struct Allows(Vec<&'static str>);

#[async_trait]
impl Authorizer for Allows {
    async fn authorize(&self, a: &Attributes<'_>) -> Verdict {
        let what = format!(
            "{} {}/{}/{} {} {}",
            a.verb, a.api_group, a.resource, a.subresource, a.namespace, a.name
        );
        if self.0.contains(&what.as_str()) || self.0.contains(&"*") {
            Verdict::allow("")
        } else {
            Verdict::no_opinion("")
        }
    }
}

async fn ask(i: &Impersonation, caller: &UserInfo, wanted: UserInfo) -> std::result::Result<Impersonated, String> {
    let info = RequestInfo::resolve(&Method::GET, &"/api/v1/namespaces/n/configmaps".parse().unwrap()).unwrap();
    let attributes = Attributes::of(caller, &info);
    i.check(&wanted, &attributes).await.map_err(|s| s.message)
}

fn named(name: &str) -> UserInfo {
    UserInfo::system(name, &[])
}

fn may(list: &[&'static str]) -> Impersonation {
    Impersonation::new(Arc::new(Allows(list.to_vec())))
}

#[tokio::test]
async fn without_permission_the_first_modes_error_is_returned() {
    let i = may(&[]);
    for (whom, verb) in [
        ("alice", "impersonate-on:user-info:list"),
        ("system:serviceaccount:n:bob", "impersonate-on:serviceaccount:list"),
        ("system:node:n1", "impersonate-on:arbitrary-node:list"),
        ("system:serviceaccount:bad", "impersonate-on:user-info:list"),
    ] {
        let e = ask(&i, &named("u"), named(whom)).await.unwrap_err();
        assert_eq!(
            e,
            format!(
                "configmaps is forbidden: User \"u\" cannot {verb} resource \"configmaps\" in API group \"\" in the namespace \"n\""
            )
        );
    }
    let with_group = UserInfo::system("system:serviceaccount:ns:bob", &["g"]);
    let e = ask(&i, &named("u"), with_group).await.unwrap_err();
    assert_eq!(
        e,
        r#"serviceaccounts "bob" is forbidden: User "u" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "ns""#
    );
}

#[tokio::test]
async fn legacy_permission_suffices_and_implied_groups_are_added() {
    let i = may(&["*"]);
    let root = named("root");
    let got = ask(&i, &root, named("alice")).await.unwrap();
    assert_eq!(got.user.groups, ["system:authenticated"]);
    let got = ask(&i, &root, named("system:serviceaccount:n:bob")).await.unwrap();
    assert_eq!(
        got.user.groups,
        [
            "system:serviceaccounts",
            "system:serviceaccounts:n",
            "system:authenticated"
        ]
    );
    let got = ask(&i, &root, named("system:anonymous")).await.unwrap();
    assert_eq!(got.user.groups, ["system:unauthenticated"]);
    let got = ask(&i, &root, UserInfo::system("a", &["system:unauthenticated"]))
        .await
        .unwrap();
    assert_eq!(got.user.groups, ["system:unauthenticated"]);
    let classic = may(&["impersonate /users/  alice", "impersonate /groups/  g"]);
    let got = ask(&classic, &named("u"), UserInfo::system("alice", &["g"]))
        .await
        .unwrap();
    assert_eq!((got.constraint, got.user.groups.len()), ("", 2));
    let e = ask(&classic, &named("u"), named("bob")).await.unwrap_err();
    assert!(
        e.starts_with(r#"users "bob" is forbidden"#),
        "the mode that worked last is tried first: {e}"
    );
}

#[tokio::test]
async fn constrained_modes_need_both_permissions() {
    let on = "impersonate-on:user-info:list /configmaps/ n ";
    let who = "impersonate:user-info authentication.k8s.io/users/  alice";
    assert!(ask(&may(&[on]), &named("u"), named("alice")).await.is_err());
    assert!(ask(&may(&[who]), &named("u"), named("alice")).await.is_err());
    let got = ask(&may(&[on, who]), &named("u"), named("alice")).await.unwrap();
    assert_eq!(got.constraint, "impersonate:user-info");
    let e = ask(
        &may(&[on, who]),
        &named("u"),
        UserInfo::system("alice", &["system:masters"]),
    )
    .await;
    assert!(
        e.unwrap_err()
            .ends_with("impersonating the system:masters group is not allowed")
    );
    let mut extra = named("alice");
    extra.extra.insert("plain".into(), vec!["v".into()]);
    let e = ask(&may(&[on, who]), &named("u"), extra).await.unwrap_err();
    assert!(e.contains("must be a domain-prefixed path"), "{e}");
}

#[tokio::test]
async fn an_associated_node_must_be_the_callers_own() {
    let i = may(&[
        "impersonate-on:associated-node:list /configmaps/ n ",
        "impersonate:associated-node authentication.k8s.io/nodes/  *",
    ]);
    let mut agent = named("system:serviceaccount:n:agent");
    agent.extra.insert(NODE_NAME.into(), vec!["n1".into()]);
    let got = ask(&i, &agent, named("system:node:n1")).await.unwrap();
    assert_eq!(got.user.groups, ["system:nodes", "system:authenticated"]);
    assert!(ask(&i, &agent, named("system:node:n2")).await.is_err());
    assert!(
        ask(&i, &named("system:serviceaccount:n:agent"), named("system:node:n1"))
            .await
            .is_err()
    );
}
