//! TokenReview and SelfSubjectReview: who is this?

use super::Judges;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::time;
use crate::apimachinery::value::{Map, Value};
use crate::controlplane::fields::strings;
use crate::registry::resource::Answer;
use crate::registry::strategy::Context;
use crate::request::UserInfo;
use crate::request::user::{AUTHENTICATED, UNAUTHENTICATED};
use async_trait::async_trait;

/// What a token that nobody knows is told.
const INVALID: &str = "invalid bearer token";

/// Answers TokenReviews.
pub struct TokenReview(pub Judges);

/// Answers SelfSubjectReviews.
pub struct SelfSubjectReview;

/// `authentication.k8s.io/v1` UserInfo.
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
    /// The audiences both sides know; `None`: there is none.
    fn audiences(&self, asked: &[&str]) -> Option<Vec<String>> {
        let ours = &self.0.audiences;
        if asked.is_empty() || ours.is_empty() {
            return Some(ours.clone());
        }
        let both: Vec<String> = asked
            .iter()
            .filter(|a| ours.iter().any(|o| o == *a))
            .map(|a| (*a).to_owned())
            .collect();
        (!both.is_empty()).then_some(both)
    }

    async fn judge(&self, token: &str, asked: &[&str]) -> Value {
        let refused = |why: &str| crate::json!({"error": why, "user": {}});
        let user = match self.0.tokens.authenticate_token(token).await {
            Ok(Some(user)) => user,
            Ok(None) => return refused(INVALID),
            Err(e) => return refused(&e.0),
        };
        let Some(audiences) = self.audiences(asked) else {
            return refused(INVALID);
        };
        let mut user = (*user).clone();
        if !user.in_group(AUTHENTICATED) && !user.in_group(UNAUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        let mut status = crate::json!({"authenticated": true});
        status.set(&["user"], user_info(&user));
        if !audiences.is_empty() {
            status.set(&["audiences"], audiences);
        }
        status
    }
}

#[async_trait]
impl Answer for TokenReview {
    async fn answer(&self, _cx: &Context, mut object: Value) -> Result<Value> {
        let token = object.str_at(&["spec", "token"]).to_owned();
        if token.is_empty() {
            return Err(Status::bad_request(
                "token is required for TokenReview in authentication",
            ));
        }
        let status = self.judge(&token, &strings(object.at(&["spec", "audiences"]))).await;
        object.set(&["status"], status);
        Ok(object)
    }
}

#[async_trait]
impl Answer for SelfSubjectReview {
    async fn answer(&self, cx: &Context, _object: Value) -> Result<Value> {
        let mut answer = crate::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        answer.set(&["metadata", "creationTimestamp"], time::now());
        answer.set(&["status", "userInfo"], user_info(&cx.user));
        Ok(answer)
    }
}
