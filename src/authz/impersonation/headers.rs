//! Parser of the `Impersonate-*` request headers. Entry point: [`requested_identity`]. Whether the caller may
//! impersonate that identity is checked by [`Impersonation`](super::Impersonation).

use crate::apimachinery::field::quote;
use crate::apimachinery::status::{Result, Status};
use crate::request::UserInfo;
use http::HeaderMap;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";

/// True for impersonation headers (names in lower case). They are never forwarded.
pub fn is_impersonation_header(name: &str) -> bool {
    matches!(name, USER | UID | GROUP) || name.starts_with(EXTRA)
}

/// The identity requested by the headers; `None` if impersonation is not requested.
///
/// # Errors
/// 400 if attributes are requested without a user name, or a value is not UTF-8.
pub fn requested_identity(headers: &HeaderMap) -> Result<Option<UserInfo>> {
    let mut user = UserInfo::default();
    let mut found_any = false;
    for (name, value) in headers {
        let name = name.as_str();
        if !is_impersonation_header(name) {
            continue;
        }
        let value = std::str::from_utf8(value.as_bytes())
            .map_err(|_| Status::bad_request(format!("the header {name} is not valid UTF-8")))?;
        match name {
            // As with Go's `Header.Get`, the first of several lines counts.
            USER => found_any |= set_once(&mut user.name, value, headers, USER),
            UID => found_any |= set_once(&mut user.uid, value, headers, UID),
            // An empty value counts: it may be refused later, but must not be taken for a request without
            // impersonation.
            GROUP => {
                found_any = true;
                user.groups.push(value.to_owned());
            }
            _ => {
                found_any = true;
                let key = &name[EXTRA.len()..];
                // Percent-decoding lets a key contain `/`, which a header name cannot. Invalid escapes are
                // kept, as upstream's `unescapeExtraKey` does.
                let key = crate::request::info::decode_path(key).map_or_else(|| key.to_owned(), |k| k.into_owned());
                user.extra.entry(key).or_default().push(value.to_owned());
            }
        }
    }
    if user.name.is_empty() && found_any {
        return Err(Status::bad_request(format!(
            "requested {} without impersonating a user name",
            go(&user)
        )));
    }
    Ok((!user.name.is_empty()).then_some(user))
}

/// Sets the field if `value` is that of the header's first line. True if the field is not empty.
fn set_once(field: &mut String, value: &str, headers: &HeaderMap, name: &str) -> bool {
    let first = headers.get(name).is_some_and(|v| v.as_bytes() == value.as_bytes());
    if first && field.is_empty() {
        value.clone_into(field);
    }
    !field.is_empty()
}

/// Formats the user like Go's `%#v`, which upstream prints in its error message.
fn go(user: &UserInfo) -> String {
    let strings = |list: &[String]| {
        let quoted: Vec<String> = list.iter().map(|s| quote(s)).collect();
        format!("[]string{{{}}}", quoted.join(", "))
    };
    let groups = if user.groups.is_empty() {
        "[]string(nil)".to_owned()
    } else {
        strings(&user.groups)
    };
    let extra = if user.extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let pairs: Vec<String> = user
            .extra
            .iter()
            .map(|(k, v)| format!("{}:{}", quote(k), strings(v)))
            .collect();
        format!("map[string][]string{{{}}}", pairs.join(", "))
    };
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{groups}, Extra:{extra}}}",
        quote(&user.name),
        quote(&user.uid)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn ask(pairs: &[(&str, &str)]) -> Result<Option<UserInfo>> {
        let mut h = HeaderMap::new();
        for (k, v) in pairs {
            h.append(HeaderName::from_bytes(k.as_bytes()).unwrap(), v.parse().unwrap());
        }
        requested_identity(&h)
    }

    #[test]
    fn headers_are_parsed_as_upstream() {
        let user = ask(&[
            ("Impersonate-User", "alice"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Extra-Acme%2Fthing", "z"),
            ("Impersonate-Uid", "7"),
        ]);
        let user = user.unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("alice", "7"));
        assert_eq!(user.groups, ["a", "b"]);
        assert_eq!(user.extra["acme/thing"], ["z"]);
        assert_eq!(ask(&[("Impersonate-User", "")]).unwrap(), None);
        assert_eq!(ask(&[("X-Remote-User", "a")]).unwrap(), None);
    }

    #[test]
    fn attributes_without_a_user_name_are_rejected() {
        let e = ask(&[("Impersonate-Group", "g"), ("Impersonate-Extra-X", "1")]).unwrap_err();
        assert_eq!(
            (e.code, e.message.as_str()),
            (
                400,
                r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string{"x":[]string{"1"}}} without impersonating a user name"#
            )
        );
        let e = ask(&[("Impersonate-User", ""), ("Impersonate-Uid", "u")]).unwrap_err();
        assert!(
            e.message
                .contains(r#"UID:"u", Groups:[]string(nil), Extra:map[string][]string(nil)}"#)
        );
    }
}
