//! [`Query`]: a query string parsed like Go's `net/url`. Pairs with `;` or an invalid escape are dropped; `+`
//! is a space.

use crate::apimachinery::field::quote;
use crate::apimachinery::status::{Result, Status};
use crate::request::info::pairs;
use std::borrow::Cow;

/// The decoded pairs in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a raw query string.
    pub(crate) fn parse(raw: &str) -> Self {
        let owned = |(k, v): (Cow<'_, str>, Cow<'_, str>)| (k.into_owned(), v.into_owned());
        Self(pairs(raw).map(owned).collect())
    }

    /// Parses the query of a request.
    pub(crate) fn of<B>(req: &http::Request<B>) -> Self {
        Self::parse(req.uri().query().unwrap_or(""))
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    /// The first value of a parameter, or `""`.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or("")
    }

    /// All values of a parameter.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        let hits = self.0.iter().filter(|(k, _)| k == name);
        hits.map(|(_, v)| v.clone()).collect()
    }

    /// A boolean parameter: anything but `false` and `0` is true, including the empty value.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|v| !(v == "0" || v.eq_ignore_ascii_case("false")))
    }

    /// An integer parameter.
    ///
    /// # Errors
    /// 400 with Go's message.
    pub(crate) fn int(&self, name: &str) -> Result<Option<i64>> {
        let Some(v) = self.get(name) else {
            return Ok(None);
        };
        // Rust and Go accept the same numbers; only the two error messages have to be told apart.
        let digits = v.strip_prefix(['-', '+']).unwrap_or(v);
        let why = if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            "invalid syntax"
        } else {
            "value out of range"
        };
        v.parse()
            .map(Some)
            .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {}: {why}", quote(v))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_pairs_are_dropped_and_the_first_value_wins() {
        let q = Query::parse("a=1;b=2&c=%zz&d=x+y&d=2&w=&n=%2B");
        assert_eq!(q.get("a"), None);
        assert_eq!(q.get("c"), None);
        assert_eq!(q.get("d"), Some("x y"));
        assert_eq!(q.flag("w"), Some(true));
        assert_eq!(q.get("n"), Some("+"));
    }

    #[test]
    fn integer_errors_match_go() {
        let e = Query::parse("limit=abc").int("limit").unwrap_err();
        assert_eq!(
            (e.code, e.message.as_str()),
            (400, "strconv.ParseInt: parsing \"abc\": invalid syntax")
        );
        let e = Query::parse("limit=99999999999999999999").int("limit").unwrap_err();
        assert!(e.message.ends_with("value out of range"));
        let e = Query::parse("limit=").int("limit").unwrap_err();
        assert_eq!(e.message, "strconv.ParseInt: parsing \"\": invalid syntax");
        assert_eq!(Query::parse("").int("limit").ok(), Some(None));
    }
}
