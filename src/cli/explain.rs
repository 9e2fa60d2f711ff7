//! `torana explain-access USER VERB RESOURCE [-n NAMESPACE]`: queries a running server for the rule that
//! allows an access, or for the rules that come closest to allowing it.

use super::QueryError;
use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use crate::client::Client;
use crate::controlplane::reviews::EXPLAIN;
use crate::json;
use clap::{Arg, ArgAction, ArgMatches};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::fmt::Write;
use std::path::PathBuf;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// A parsed `torana explain-access` command, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainAccess {
    kubeconfig: PathBuf,
    user: String,
    groups: Vec<String>,
    verb: String,
    /// `pods`, `deployments.apps`, `pods/log`, or a non-resource path.
    what: String,
    name: String,
    namespace: String,
}

/// The definition of the subcommand.
pub(super) fn command() -> clap::Command {
    let value = |name: &'static str, help: &'static str| Arg::new(name).required(true).help(help);
    clap::Command::new("explain-access")
        .about("Explain why a user may or may not do something")
        .arg(value(
            "USER",
            "User name; system:serviceaccount:NAMESPACE:NAME for service accounts",
        ))
        .arg(value("VERB", "get, list, watch, create, update, patch, delete, …"))
        .arg(value(
            "RESOURCE",
            "pods, deployments.apps, pods/log, or a path such as /metrics",
        ))
        .arg(
            Arg::new("namespace")
                .short('n')
                .long("namespace")
                .default_value("")
                .help("Namespace of the access; empty: cluster scope"),
        )
        .arg(
            Arg::new("name")
                .long("name")
                .default_value("")
                .help("Name of one object"),
        )
        .arg(
            Arg::new("group")
                .long("group")
                .action(ArgAction::Append)
                .help("Group of the user; may be repeated; defaults to the groups that every such user has"),
        )
        .arg(Arg::new("kubeconfig").long("kubeconfig").help(
            "Kubeconfig of a user who may create SubjectAccessReviews; defaults to $KUBECONFIG, \
                     then torana-data/admin.kubeconfig",
        ))
}

impl ExplainAccess {
    pub(super) fn read(matches: &ArgMatches) -> Self {
        let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
        let user = text("USER");
        let groups = match matches.get_many::<String>("group") {
            Some(given) => given.cloned().collect(),
            None => usual_groups(&user),
        };
        Self {
            kubeconfig: super::kubeconfig(matches),
            groups,
            verb: text("VERB"),
            what: text("RESOURCE"),
            name: text("name"),
            namespace: text("namespace"),
            user,
        }
    }

    fn review(&self) -> Value {
        let mut v = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "metadata": {"annotations": {}}, "spec": {"user": (self.user.as_str())}});
        // An empty annotation asks for the explanation; the server fills it in. kube-apiserver ignores it.
        v.set(&["metadata", "annotations", EXPLAIN], "");
        v.set(&["spec", "groups"], self.groups.clone());
        let verb = self.verb.as_str();
        if self.what.starts_with('/') {
            v.set(
                &["spec", "nonResourceAttributes"],
                json!({"path": (self.what.as_str()), "verb": verb}),
            );
            return v;
        }
        let (whole, subresource) = self.what.split_once('/').unwrap_or((&self.what, ""));
        // The first dot: resources contain none, groups may.
        let (resource, group) = whole.split_once('.').unwrap_or((whole, ""));
        let mut of = json!({"verb": verb, "resource": resource});
        for (key, value) in [
            ("group", group),
            ("subresource", subresource),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ] {
            if !value.is_empty() {
                of.set(&[key], value);
            }
        }
        v.set(&["spec", "resourceAttributes"], of);
        v
    }

    /// Queries the server and formats the result.
    ///
    /// # Errors
    /// `QueryError`: the server cannot be reached or rejects the request.
    pub fn run(&self) -> BoxFuture<'_, Result<String, QueryError>> {
        self.query().boxed()
    }

    async fn query(&self) -> Result<String, QueryError> {
        let config = super::client_config(&self.kubeconfig)?;
        let client = Client::try_new(&config)?;
        let answer = client.create(REVIEWS, &self.review()).await;
        Ok(self.render(&answer?))
    }

    fn render(&self, answer: &Value) -> String {
        let status = answer.get("status");
        let allowed = status.get("allowed").as_bool() == Some(true);
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{}: {} {} {}{} {}",
            if allowed { "allowed" } else { "not allowed" },
            self.user,
            self.verb,
            self.what,
            if self.name.is_empty() {
                String::new()
            } else {
                format!(" {}", self.name)
            },
            if self.what.starts_with('/') {
                "(a path)".to_owned()
            } else if self.namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in namespace {}", self.namespace)
            }
        );
        for (label, key) in [("reason", "reason"), ("evaluation error", "evaluationError")] {
            match status.str_at(&[key]) {
                "" => {}
                text => drop(writeln!(out, "{label}: {text}")),
            }
        }
        let why = answer.str_at(&["metadata", "annotations", EXPLAIN]);
        // An older server, or a kube-apiserver, leaves it empty: then only the decision is printed.
        let why = json::decode(why.as_bytes()).unwrap_or_default();
        let found = why.get("allowed");
        if !found.is_null() {
            let _ = writeln!(out, "by {}\n  {}", found.str_at(&["through"]), rule(found));
        }
        if allowed {
            return out;
        }
        let bindings = why.get("bindings").as_i64().unwrap_or(0);
        let _ = writeln!(
            out,
            "{bindings} bindings name the user or a group of [{}]",
            self.groups.join(" ")
        );
        // Such a binding grants nothing, which is easily overlooked.
        for text in why.get("dangling").items().iter().filter_map(Value::as_str) {
            let _ = writeln!(out, "a bound role is missing: {text}");
        }
        let closest = why.get("closest").items();
        if closest.is_empty() {
            out.push_str("none of their rules comes close\n");
        }
        for n in closest {
            let lacks: Vec<&str> = n.get("lacks").items().iter().filter_map(Value::as_str).collect();
            let _ = writeln!(
                out,
                "close, but for the {}: {}\n  {}",
                lacks.join(" and the "),
                n.str_at(&["through"]),
                rule(n)
            );
        }
        out
    }
}

fn rule(near: &Value) -> String {
    let number = near.get("number").as_i64().unwrap_or(0);
    format!("rules[{number}]: {}", json::to_string(near.get("rule")))
}

/// The groups that the authenticators give every user with this kind of name.
fn usual_groups(user: &str) -> Vec<String> {
    let mut groups = Vec::new();
    // The only user who is not in system:authenticated.
    if user == "system:anonymous" {
        return vec!["system:unauthenticated".to_owned()];
    }
    if let Some((namespace, _)) = user
        .strip_prefix("system:serviceaccount:")
        .and_then(|s| s.split_once(':'))
    {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    if user.starts_with("system:node:") {
        groups.push("system:nodes".to_owned());
    }
    groups.push("system:authenticated".to_owned());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> ExplainAccess {
        let args = ["explain-access"].iter().chain(args);
        ExplainAccess::read(&command().try_get_matches_from(args).unwrap())
    }

    #[test]
    fn arguments_become_a_subject_access_review() {
        let q = read(&["jane", "get", "deployments.apps/scale", "-n", "web", "--name", "d"]);
        let v = q.review();
        assert_eq!(
            v.at(&["spec", "resourceAttributes"]),
            &json!({"verb": "get", "resource": "deployments", "group": "apps", "subresource": "scale", "name": "d", "namespace": "web"})
        );
        assert_eq!(v.at(&["spec", "groups"]), &json!(["system:authenticated"]));
        let q = read(&["system:serviceaccount:n:bob", "get", "/metrics", "--group", "g"]);
        let v = q.review();
        assert_eq!(
            v.at(&["spec", "nonResourceAttributes"]),
            &json!({"path": "/metrics", "verb": "get"})
        );
        assert_eq!(v.at(&["spec", "groups"]), &json!(["g"]));
    }

    #[test]
    fn a_denial_is_explained_with_the_closest_rule() {
        let q = read(&["jane", "delete", "pods", "-n", "web"]);
        let mut v = json!({"status": {"allowed": false}});
        let why = json!({"bindings": 2, "closest": [{"through": "RoleBinding \"b/web\" of Role \"r\" to User \"jane\"", "number": 1,
            "rule": {"verbs": ["get"], "resources": ["pods"], "apiGroups": [""]}, "lacks": ["verb"]}]});
        v.set(&["metadata", "annotations", EXPLAIN], json::to_string(&why));
        let text = q.render(&v);
        assert!(
            text.starts_with("not allowed: jane delete pods in namespace web\n"),
            "{text}"
        );
        assert!(
            text.contains("close, but for the verb: RoleBinding \"b/web\""),
            "{text}"
        );
        assert!(text.contains("rules[1]: {"), "{text}");
    }
}
