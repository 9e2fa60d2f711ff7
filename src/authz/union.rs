//! [`Union`], which chains authorizers, and the trivial authorizers.

use super::{Attributes, Authorizer, Decision, Rules, Verdict};
use crate::apimachinery::field::aggregate_texts;
use crate::request::UserInfo;
use async_trait::async_trait;
use std::sync::Arc;

/// Runs its members in order until one allows or denies. If none does, the reasons of all are joined by line
/// breaks.
pub struct Union(Vec<Arc<dyn Authorizer>>);

impl Union {
    /// A union that runs `members` in order.
    pub fn new(members: Vec<Arc<dyn Authorizer>>) -> Self {
        Self(members)
    }
}

#[async_trait]
impl Authorizer for Union {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        let mut sum = Sum::default();
        for member in &self.0 {
            // One after the other: a webhook must not see requests that an earlier member has decided.
            if let Some(verdict) = sum.add(member.authorize(attributes).await) {
                return verdict;
            }
        }
        sum.end()
    }

    fn authorize_sync(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        let mut sum = Sum::default();
        for member in &self.0 {
            // A member that has to wait ends the fast path, because skipping it could change the outcome.
            if let Some(verdict) = sum.add(member.authorize_sync(attributes)?) {
                return Some(verdict);
            }
        }
        Some(sum.end())
    }

    async fn rules_for(&self, user: &UserInfo, namespace: &str) -> Rules {
        let mut all = Rules::default();
        for member in &self.0 {
            all.extend(member.rules_for(user, namespace).await);
        }
        all
    }
}

/// Accumulates the reasons and errors of members without an opinion.
#[derive(Default)]
struct Sum {
    reasons: Vec<String>,
    errors: Vec<String>,
}

impl Sum {
    /// Adds a verdict. Returns it if it is final.
    fn add(&mut self, verdict: Verdict) -> Option<Verdict> {
        // Errors of earlier members are dropped here: an opinion is final, whatever else failed.
        if verdict.decision != Decision::NoOpinion {
            return Some(verdict);
        }
        if !verdict.reason.is_empty() {
            self.reasons.push(verdict.reason.into_owned());
        }
        self.errors.extend(verdict.error);
        None
    }

    fn end(self) -> Verdict {
        let mut verdict = Verdict::no_opinion(self.reasons.join("\n"));
        verdict.error = (!self.errors.is_empty()).then(|| aggregate_texts(self.errors));
        verdict
    }
}

/// `--authorization-mode=AlwaysAllow`.
pub struct AlwaysAllow;

#[async_trait]
impl Authorizer for AlwaysAllow {
    async fn authorize(&self, _: &Attributes<'_>) -> Verdict {
        Verdict::allow("")
    }

    fn authorize_sync(&self, _: &Attributes<'_>) -> Option<Verdict> {
        Some(Verdict::allow(""))
    }

    async fn rules_for(&self, _: &UserInfo, _: &str) -> Rules {
        Rules::all()
    }
}

/// `--authorization-mode=AlwaysDeny`.
pub struct AlwaysDeny;

#[async_trait]
impl Authorizer for AlwaysDeny {
    async fn authorize(&self, _: &Attributes<'_>) -> Verdict {
        // No opinion rather than a denial, as upstream's `alwaysDenyAuthorizer`: another mode in the list may
        // still allow.
        Verdict::no_opinion("Everything is forbidden.")
    }

    fn authorize_sync(&self, _: &Attributes<'_>) -> Option<Verdict> {
        Some(Verdict::no_opinion("Everything is forbidden."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestInfo;

    #[tokio::test]
    async fn the_first_opinion_wins_and_reasons_are_joined() {
        let user = UserInfo::anonymous();
        let info = RequestInfo::default();
        let attributes = Attributes::of(&user, &info);
        let deny: Arc<dyn Authorizer> = Arc::new(AlwaysDeny);
        let allow: Arc<dyn Authorizer> = Arc::new(AlwaysAllow);
        let v = Union::new(vec![deny.clone(), deny.clone()])
            .authorize(&attributes)
            .await;
        assert_eq!(
            v,
            Verdict::no_opinion("Everything is forbidden.\nEverything is forbidden.")
        );
        let both = Union::new(vec![deny.clone(), allow.clone()]);
        let v = both.authorize(&attributes).await;
        assert_eq!(
            (v.decision, both.authorize_sync(&attributes)),
            (Decision::Allow, Some(v))
        );
        // A member that has to wait is not skipped.
        let slow: Arc<dyn Authorizer> = crate::authz::rbac::Rbac::new();
        assert_eq!(
            Union::new(vec![deny, slow.clone(), allow.clone()]).authorize_sync(&attributes),
            None
        );
        assert!(Union::new(vec![allow, slow]).authorize_sync(&attributes).is_some());
    }
}
