//! SelfSubjectRulesReview: what may I do here?

use super::Judges;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::resource::Answer;
use crate::registry::strategy::Context;
use crate::request::UserInfo;
use async_trait::async_trait;

/// What somebody may do in a namespace, in the order it was found.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// `ResourceRule`s.
    pub resource: Vec<Value>,
    /// `NonResourceRule`s.
    pub non_resource: Vec<Value>,
    /// There may be more.
    pub incomplete: bool,
    /// Why, or empty.
    pub error: String,
}

/// Lists what somebody may do.
#[async_trait]
pub trait RulesSource: Send + Sync + 'static {
    /// The rules that hold for `user` in `namespace`.
    async fn rules_for(&self, user: &UserInfo, namespace: &str) -> Rules;
}

/// Answers SelfSubjectRulesReviews.
pub struct SelfSubjectRulesReview(pub Judges);

#[async_trait]
impl Answer for SelfSubjectRulesReview {
    async fn answer(&self, cx: &Context, object: Value) -> Result<Value> {
        let namespace = object.str_at(&["spec", "namespace"]);
        if namespace.is_empty() {
            return Err(Status::bad_request("no namespace on request"));
        }
        let rules = match &self.0.rules {
            Some(source) => source.rules_for(&cx.user, namespace).await,
            None => Rules {
                incomplete: true,
                error: "the authorizer does not support user rule resolution".to_owned(),
                ..Rules::default()
            },
        };
        let mut answer = crate::json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "metadata": {}, "spec": {},
            "status": {"incomplete": (rules.incomplete)},
        });
        answer.set(&["status", "resourceRules"], rules.resource);
        answer.set(&["status", "nonResourceRules"], rules.non_resource);
        if !rules.error.is_empty() {
            answer.set(&["status", "evaluationError"], rules.error);
        }
        Ok(answer)
    }
}
