//! The result of a TokenReview.

use super::AuthenticationError;
use super::jwt::texts;
use crate::apimachinery::Value;
use crate::request::UserInfo;

/// The user in the status of a review; `None` if the reviewer does not recognise the token.
///
/// # Errors
/// The error that the reviewer reports.
pub(super) fn user(status: &Value) -> Result<Option<UserInfo>, AuthenticationError> {
    if status.get("authenticated").as_bool() != Some(true) {
        // As upstream, the error counts only if the token is not authenticated.
        return match status.str_at(&["error"]) {
            "" => Ok(None),
            error => Err(AuthenticationError::new(error)),
        };
    }
    let reported = status.get("user");
    let extra = reported.get("extra").as_object();
    Ok(Some(UserInfo {
        name: reported.str_at(&["username"]).to_owned(),
        uid: reported.str_at(&["uid"]).to_owned(),
        groups: texts(reported.get("groups")),
        extra: extra
            .into_iter()
            .flat_map(|m| m.iter())
            .map(|(k, v)| (k.to_owned(), texts(v)))
            .collect(),
    }))
}
