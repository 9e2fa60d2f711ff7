//! Mapping of verified claims to a user.

use super::configuration::JwtIssuer;
use crate::apimachinery::field::quote;
use crate::apimachinery::value::Value;
use crate::authn::AuthenticationError;
use crate::authn::x509::CREDENTIAL_ID;
use crate::request::UserInfo;

fn refused<T>(why: String) -> Result<T, AuthenticationError> {
    Err(AuthenticationError(format!("oidc: {why}")))
}

/// A claim that must be a string.
fn text<'a>(claims: &'a Value, claim: &str, role: &str) -> Result<&'a str, AuthenticationError> {
    match claims.get(claim) {
        Value::Null => refused(format!("parse {role} claims {}: claim not present", quote(claim))),
        v => match v.as_str() {
            Some(text) => Ok(text),
            None => refused(format!("parse {role} claims {}: the claim is no string", quote(claim))),
        },
    }
}

fn user_name(issuer: &JwtIssuer, claims: &Value) -> Result<String, AuthenticationError> {
    let (claim, prefix) = (&issuer.username.claim, &issuer.username.prefix);
    let name = text(claims, claim, "username")?;
    if claim == "email" {
        match claims.get("email_verified") {
            Value::Null => {}
            v => match v.as_bool() {
                Some(true) => {}
                Some(false) => return refused(format!("email not verified (email={})", quote(name))),
                None => return refused("parse 'email_verified' claim: the claim is no boolean".to_owned()),
            },
        }
    }
    if name.is_empty() {
        return refused("the username claim is empty".to_owned());
    }
    Ok(format!("{prefix}{name}"))
}

fn groups(issuer: &JwtIssuer, claims: &Value) -> Result<Vec<String>, AuthenticationError> {
    let Some(mapping) = &issuer.groups else {
        return Ok(Vec::new());
    };
    let wrong = || {
        format!(
            "parse groups claim {}: neither a string nor a list of strings",
            quote(&mapping.claim)
        )
    };
    let names: Vec<&str> = match claims.get(&mapping.claim) {
        Value::Null => Vec::new(),
        Value::String(one) => vec![one],
        Value::Array(list) => {
            let names: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            match names {
                Some(names) => names,
                None => return refused(wrong()),
            }
        }
        _ => return refused(wrong()),
    };
    Ok(names.into_iter().map(|n| format!("{}{n}", mapping.prefix)).collect())
}

/// Builds the user from verified claims.
pub(super) fn user(issuer: &JwtIssuer, claims: &Value) -> Result<UserInfo, AuthenticationError> {
    let mut user = UserInfo {
        name: user_name(issuer, claims)?,
        groups: groups(issuer, claims)?,
        ..UserInfo::default()
    };
    if let Some(claim) = &issuer.uid {
        text(claims, claim, "uid")?.clone_into(&mut user.uid);
    }
    match claims.get("jti").as_str() {
        None | Some("") => {}
        Some(id) => {
            user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
    }
    for (claim, want) in &issuer.required {
        let got = match claims.get(claim) {
            Value::Null => return refused(format!("required claim {claim} not present in ID token")),
            v => v.as_str(),
        };
        let Some(got) = got else {
            return refused(format!("parse claim {claim}: the claim is no string"));
        };
        if got != want {
            return refused(format!(
                "required claim {claim} value does not match. Got = {got}, want = {want}"
            ));
        }
    }
    Ok(user)
}
