//! authentication.k8s.io/v1 and authorization.k8s.io/v1: create-only review resources, evaluated and never
//! stored.

use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::reviews::{
    self, LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectReview, SelfSubjectRulesReview,
    SubjectAccessReview, TokenReview,
};
use crate::registry::resource::Resource;
use std::sync::Arc;

const AUTHENTICATION: GroupVersionBuilder = GroupVersionBuilder {
    group: "authentication.k8s.io",
    version: "v1",
};
const AUTHORIZATION: GroupVersionBuilder = GroupVersionBuilder {
    group: "authorization.k8s.io",
    version: "v1",
};

/// The resources of authentication.k8s.io/v1.
pub(crate) fn authentication(review_dependencies: &reviews::ReviewDependencies) -> Vec<Resource> {
    vec![
        AUTHENTICATION
            .review("selfsubjectreviews", "SelfSubjectReview", Arc::new(SelfSubjectReview))
            .build(),
        AUTHENTICATION
            .review(
                "tokenreviews",
                "TokenReview",
                Arc::new(TokenReview(review_dependencies.clone())),
            )
            .build(),
    ]
}

/// The resources of authorization.k8s.io/v1.
pub(crate) fn authorization(review_dependencies: &reviews::ReviewDependencies) -> Vec<Resource> {
    vec![
        AUTHORIZATION
            .review(
                "localsubjectaccessreviews",
                "LocalSubjectAccessReview",
                Arc::new(LocalSubjectAccessReview(review_dependencies.clone())),
            )
            .namespaced()
            .build(),
        AUTHORIZATION
            .review(
                "selfsubjectaccessreviews",
                "SelfSubjectAccessReview",
                Arc::new(SelfSubjectAccessReview(review_dependencies.clone())),
            )
            .build(),
        AUTHORIZATION
            .review(
                "selfsubjectrulesreviews",
                "SelfSubjectRulesReview",
                Arc::new(SelfSubjectRulesReview(review_dependencies.clone())),
            )
            .build(),
        AUTHORIZATION
            .review(
                "subjectaccessreviews",
                "SubjectAccessReview",
                Arc::new(SubjectAccessReview(review_dependencies.clone())),
            )
            .build(),
    ]
}
