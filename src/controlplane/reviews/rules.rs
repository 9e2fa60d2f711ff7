//! SelfSubjectRulesReview: lists the caller's rules in a namespace.

use super::ReviewDependencies;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::authz::rbac::PolicyRule;
use crate::registry::resource::CreateHandler;
use crate::registry::strategy::Context;
use async_trait::async_trait;

pub(crate) struct SelfSubjectRulesReview(pub ReviewDependencies);

fn resource_rule(rule: &PolicyRule) -> Option<Value> {
    let mut v = rule.to_value();
    // One rule may grant both; upstream lists the two parts apart.
    v.unset(&["nonResourceURLs"]);
    (!rule.resources.is_empty()).then_some(v)
}

fn non_resource_rule(rule: &PolicyRule) -> Option<Value> {
    let part = PolicyRule {
        verbs: rule.verbs.clone(),
        non_resource_urls: rule.non_resource_urls.clone(),
        ..PolicyRule::default()
    };
    (!rule.non_resource_urls.is_empty()).then(|| part.to_value())
}

#[async_trait]
impl CreateHandler for SelfSubjectRulesReview {
    async fn answer(&self, cx: &Context, object: Value) -> Result<Value> {
        let namespace = object.str_at(&["spec", "namespace"]);
        if namespace.is_empty() {
            return Err(Status::bad_request("no namespace on request"));
        }
        let found = self.0.authorizer.rules_for(&cx.user, namespace).await;
        // A new object: upstream returns nothing of the request, not even its spec.
        let mut answer = crate::json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "metadata": {}, "spec": {},
            "status": {"incomplete": (found.incomplete)},
        });
        let resources: Vec<Value> = found.rules.iter().filter_map(resource_rule).collect();
        let paths: Vec<Value> = found.rules.iter().filter_map(non_resource_rule).collect();
        answer.set(&["status", "resourceRules"], resources);
        answer.set(&["status", "nonResourceRules"], paths);
        let error = found.error();
        if !error.is_empty() {
            answer.set(&["status", "evaluationError"], error);
        }
        Ok(answer)
    }
}
