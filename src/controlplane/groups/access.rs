//! authentication.k8s.io/v1 and authorization.k8s.io/v1: create-only review resources, evaluated and never stored.

use crate::controlplane::reviews::{
    self, LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectReview, SelfSubjectRulesReview,
    SubjectAccessReview, TokenReview,
};
use crate::controlplane::table::Group;
use crate::registry::resource::Resource;
use std::sync::Arc;

const AUTHENTICATION: Group = Group {
    group: "authentication.k8s.io",
    version: "v1",
};
const AUTHORIZATION: Group = Group {
    group: "authorization.k8s.io",
    version: "v1",
};

/// The resources of authentication.k8s.io/v1.
pub fn authentication(judges: &reviews::Judges) -> Vec<Resource> {
    vec![
        AUTHENTICATION
            .review("selfsubjectreviews", "SelfSubjectReview", Arc::new(SelfSubjectReview))
            .done(),
        AUTHENTICATION
            .review("tokenreviews", "TokenReview", Arc::new(TokenReview(judges.clone())))
            .done(),
    ]
}

/// The resources of authorization.k8s.io/v1.
pub fn authorization(judges: &reviews::Judges) -> Vec<Resource> {
    vec![
        AUTHORIZATION
            .review(
                "localsubjectaccessreviews",
                "LocalSubjectAccessReview",
                Arc::new(LocalSubjectAccessReview(judges.clone())),
            )
            .namespaced()
            .done(),
        AUTHORIZATION
            .review(
                "selfsubjectaccessreviews",
                "SelfSubjectAccessReview",
                Arc::new(SelfSubjectAccessReview(judges.clone())),
            )
            .done(),
        AUTHORIZATION
            .review(
                "selfsubjectrulesreviews",
                "SelfSubjectRulesReview",
                Arc::new(SelfSubjectRulesReview(judges.clone())),
            )
            .done(),
        AUTHORIZATION
            .review(
                "subjectaccessreviews",
                "SubjectAccessReview",
                Arc::new(SubjectAccessReview(judges.clone())),
            )
            .done(),
    ]
}
