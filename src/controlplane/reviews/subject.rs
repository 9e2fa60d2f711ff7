//! TokenReview and SelfSubjectReview (upstream's `pkg/registry/authentication`).

use super::ReviewDependencies;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::time;
use crate::apimachinery::value::{Map, Value};
use crate::authn::bearer::INVALID;
use crate::authn::{AuthenticationError, PresentedToken, TokenUser};
use crate::controlplane::fields::strings;
use crate::registry::resource::CreateHandler;
use crate::registry::strategy::Context;
use crate::request::UserInfo;
use crate::request::user::{AUTHENTICATED, UNAUTHENTICATED};
use async_trait::async_trait;
use std::sync::Arc;

pub(crate) struct TokenReview(pub ReviewDependencies);

/// Evaluates SelfSubjectReviews: returns the caller's own identity.
pub(crate) struct SelfSubjectReview;

/// Renders an `authentication.k8s.io/v1` UserInfo.
fn user_info(user: &UserInfo) -> Value {
    let mut m = Map::new();
    for (key, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            m.insert(key, text.as_str());
        }
    }
    if !user.groups.is_empty() {
        m.insert("groups", user.groups.clone());
    }
    if !user.extra.is_empty() {
        m.insert(
            "extra",
            user.extra.iter().map(|(k, v)| (k.as_str(), v.clone())).collect::<Map>(),
        );
    }
    Value::Object(m)
}

impl TokenReview {
    async fn authenticate(
        &self,
        token: &str,
        audiences: &[&str],
    ) -> std::result::Result<TokenUser, AuthenticationError> {
        // Upstream authenticates a fake request with this Authorization header, so the token is parsed as a
        // header is: it ends at the first space, and one of only spaces is missing.
        let word = token.trim_end().split(' ').next().unwrap_or_default();
        let audiences: Vec<String> = match audiences {
            [] => self.0.audiences.clone(),
            audiences => audiences.iter().map(|a| (*a).to_owned()).collect(),
        };
        // Without a token the fake request is anonymous, if such requests are accepted.
        if word.is_empty() && self.0.anonymous {
            return Ok(TokenUser {
                audiences,
                ..TokenUser::from(Arc::new(UserInfo::anonymous()))
            });
        }
        let presented = PresentedToken {
            token: word,
            audiences: &audiences,
        };
        match self.0.tokens.authenticate_token(presented).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(AuthenticationError(INVALID.to_owned())),
            Err(e) => Err(AuthenticationError(beside_loopback(&e.0))),
        }
    }
}

/// Enters the result into the status that the client has sent, of which upstream keeps what it does not set.
fn record(status: &mut Value, found: std::result::Result<TokenUser, AuthenticationError>) {
    match found {
        Ok(found) => {
            // Copied, because the authenticator's cache shares it.
            let mut user = (*found.user).clone();
            // Upstream wraps its authenticators to add this group (`NewAuthenticatedGroupAdder`).
            if !user.in_group(AUTHENTICATED) && !user.in_group(UNAUTHENTICATED) {
                user.groups.push(AUTHENTICATED.to_owned());
            }
            status.set(&["authenticated"], true);
            status.set(&["user"], user_info(&user));
            status.unset(&["audiences"]);
            if !found.audiences.is_empty() {
                status.set(&["audiences"], found.audiences);
            }
        }
        Err(why) => {
            status.unset(&["authenticated"]);
            status.set(&["error"], why.0);
            // A struct in Go, which is always written.
            if status.get("user").is_null() {
                status.set(&["user"], Value::object());
            }
        }
    }
}

/// Adds the error of upstream's loopback token authenticator, which precedes the others and rejects every
/// other token.
fn beside_loopback(error: &str) -> String {
    let listed = error.strip_prefix('[').and_then(|e| e.strip_suffix(']'));
    match listed.unwrap_or(error) {
        INVALID => INVALID.to_owned(),
        errors => format!("[{INVALID}, {errors}]"),
    }
}

#[async_trait]
impl CreateHandler for TokenReview {
    async fn answer(&self, _cx: &Context, mut object: Value) -> Result<Value> {
        let token = object.str_at(&["spec", "token"]).to_owned();
        if token.is_empty() {
            return Err(Status::bad_request(
                "token is required for TokenReview in authentication",
            ));
        }
        let found = self
            .authenticate(&token, &strings(object.at(&["spec", "audiences"])))
            .await;
        let mut status = object.get("status").clone();
        record(&mut status, found);
        object.set(&["status"], status);
        Ok(object)
    }
}

#[async_trait]
impl CreateHandler for SelfSubjectReview {
    async fn answer(&self, cx: &Context, _object: Value) -> Result<Value> {
        let mut answer = crate::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        answer.set(&["metadata", "creationTimestamp"], time::now());
        answer.set(&["status", "userInfo"], user_info(&cx.user));
        Ok(answer)
    }
}
