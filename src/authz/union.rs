//! Several authorizers as one, and the trivial ones.

use super::{Attributes, Authorizer, Decision, Rules, Verdict};
use crate::request::UserInfo;
use async_trait::async_trait;
use std::sync::Arc;

/// Asked in order; the first Allow or Deny ends it. Nobody's opinion is a no with everybody's reasons, a line each.
pub struct Union(Vec<Arc<dyn Authorizer>>);

impl Union {
    /// A union in the order given.
    pub fn new(members: Vec<Arc<dyn Authorizer>>) -> Self {
        Self(members)
    }
}

#[async_trait]
impl Authorizer for Union {
    async fn authorize(&self, asked: &Attributes<'_>) -> Verdict {
        let (mut reasons, mut errors): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for member in &self.0 {
            let verdict = member.authorize(asked).await;
            if verdict.decision != Decision::NoOpinion {
                return verdict;
            }
            if !verdict.reason.is_empty() {
                reasons.push(verdict.reason.into_owned());
            }
            errors.extend(verdict.error);
        }
        let mut verdict = Verdict::no_opinion(reasons.join("\n"));
        verdict.error = match errors.len() {
            0 => None,
            1 => errors.pop(),
            _ => Some(format!("[{}]", errors.join(", "))),
        };
        verdict
    }

    async fn rules_for(&self, user: &UserInfo, namespace: &str) -> Rules {
        let mut all = Rules::default();
        for member in &self.0 {
            all.extend(member.rules_for(user, namespace).await);
        }
        all
    }
}

/// `--authorization-mode=AlwaysAllow`.
pub struct AlwaysAllow;

#[async_trait]
impl Authorizer for AlwaysAllow {
    async fn authorize(&self, _: &Attributes<'_>) -> Verdict {
        Verdict::allow("")
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
        Verdict::no_opinion("Everything is forbidden.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestInfo;

    #[tokio::test]
    async fn the_first_opinion_counts_and_reasons_add_up() {
        let user = UserInfo::anonymous();
        let info = RequestInfo::default();
        let asked = Attributes::of(&user, &info);
        let deny: Arc<dyn Authorizer> = Arc::new(AlwaysDeny);
        let allow: Arc<dyn Authorizer> = Arc::new(AlwaysAllow);
        let v = Union::new(vec![deny.clone(), deny.clone()]).authorize(&asked).await;
        assert_eq!(
            v,
            Verdict::no_opinion("Everything is forbidden.\nEverything is forbidden.")
        );
        let v = Union::new(vec![deny, allow]).authorize(&asked).await;
        assert_eq!(v.decision, Decision::Allow);
    }
}
