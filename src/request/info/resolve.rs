//! Resolution of method, path and query into a [`RequestInfo`].

use super::{RequestInfo, query};
use crate::apimachinery::value::Str;
use http::{Method, Uri};
use std::fmt;

/// Maximum number of parameters in a query. Every handler decodes them all, on a reactor.
const MAX_PARAMETERS: usize = 1_000;

/// Why a request line cannot be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// The path contains an invalid percent escape.
    BadEscape,
    /// More than [`MAX_PARAMETERS`] parameters.
    TooManyParameters,
    /// `watch` or `proxy` directly after the version, with no resource behind it.
    PrefixVerbWithoutResource,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadEscape => "invalid URL escape",
            Self::TooManyParameters => "the query has more than 1000 parameters",
            Self::PrefixVerbWithoutResource => "unable to determine kind and namespace from url",
        })
    }
}

impl std::error::Error for ResolveError {}

impl RequestInfo {
    /// Resolves a request line.
    ///
    /// # Errors
    /// A [`ResolveError`] if the path is malformed.
    pub fn resolve(method: &Method, uri: &Uri) -> Result<Self, ResolveError> {
        let path = query::decode_path(uri.path()).ok_or(ResolveError::BadEscape)?;
        let raw_query = uri.query().unwrap_or("");
        // Counted before any parameter is decoded, so that a refused query costs one pass over its bytes.
        if raw_query.bytes().filter(|b| *b == b'&').count() >= MAX_PARAMETERS {
            return Err(ResolveError::TooManyParameters);
        }
        let mut info = Self::default();
        // Like upstream, the legacy `/watch/` and `/proxy/` prefixes fix the verb and ignore the query
        // altogether.
        let resource = info.read_path(method, &path)?;
        info.path = path.into();
        if resource == Some(PathVerb::FromMethod) {
            info.read_query(raw_query);
        }
        Ok(info)
    }

    fn read_path(&mut self, method: &Method, path: &str) -> Result<Option<PathVerb>, ResolveError> {
        // As upstream's `splitPath`: slashes at both ends do not count, empty segments in between do.
        let trimmed = path.trim_matches('/');
        let mut rest = query::segments(trimmed);
        let (first, second, third) = (rest.next(), rest.next(), rest.next());
        let (Some(prefix @ ("api" | "apis")), Some(second), Some(third)) = (first, second, third) else {
            self.verb = non_resource_verb(method);
            return Ok(None);
        };
        self.api_prefix = prefix.into();
        let mut head = Some(third);
        // `/apis/<group>/<version>` is discovery; only a further segment names a resource.
        if prefix == "apis" {
            head = rest.next();
            if head.is_none() {
                self.verb = non_resource_verb(method);
                return Ok(None);
            }
            self.api_group = second.into();
            self.api_version = third.into();
        } else {
            self.api_version = second.into();
        }
        self.is_resource = true;

        let mut how = PathVerb::FromMethod;
        if let Some(special @ ("watch" | "proxy")) = head {
            head = rest.next();
            if head.is_none() {
                return Err(ResolveError::PrefixVerbWithoutResource);
            }
            self.verb = special.into();
            how = PathVerb::FromPath;
        } else {
            self.verb = resource_verb(method).into();
        }
        self.read_parts(head, rest);
        if how == PathVerb::FromMethod && self.name.is_empty() && self.verb == "delete" {
            self.verb = "deletecollection".into();
        }
        Ok(Some(how))
    }

    /// Splits the segments into namespace, resource, name and subresource. `namespaces/<ns>` is a prefix,
    /// except where the namespace itself is the object: at the end of the path, or before its subresources
    /// `status` and `finalize`.
    fn read_parts<'a>(&mut self, head: Option<&'a str>, mut rest: impl Iterator<Item = &'a str>) {
        let Some(first) = head else { return };
        // Resource, name and subresource: more are rare.
        let mut parts = Vec::with_capacity(3);
        if first == "namespaces" {
            let namespace = rest.next();
            let third = rest.next();
            self.namespace = namespace.unwrap_or("").into();
            if third.is_none_or(|t| matches!(t, "status" | "finalize")) {
                parts.push(first.into());
                parts.extend(namespace.map(Str::from));
            }
            parts.extend(third.map(Str::from));
        } else {
            parts.push(first.into());
        }
        parts.extend(rest.map(Str::from));
        let at = |i: usize| parts.get(i).cloned().unwrap_or_default();
        self.resource = at(0);
        self.name = at(1);
        // Everything behind a proxied object's name is the path to proxy to, not a subresource.
        if self.verb != "proxy" {
            self.subresource = at(2);
        }
        self.parts = parts;
    }

    fn read_query(&mut self, raw: &str) {
        // `get` without a name is a list, or a watch if the query asks for one.
        let collection_read = self.name.is_empty() && self.verb == "get";
        if collection_read {
            self.verb = "list".into();
        }
        if raw.is_empty() {
            return;
        }
        if collection_read {
            // Upstream decodes ListOptions as a whole. If a number does not parse, only `watch` still takes
            // effect.
            let mut decodable = true;
            let (mut watch, mut limit, mut timeout, mut field) = (None, None, None, None);
            for (key, value) in query::pairs(raw) {
                // One pass for all four keys, since each lookup would decode the query again.
                let slot = match &*key {
                    "watch" => &mut watch,
                    "limit" => &mut limit,
                    "timeoutSeconds" => &mut timeout,
                    "fieldSelector" => &mut field,
                    _ => continue,
                };
                // The first value wins, as in Go's `url.Values.Get`.
                slot.get_or_insert(value);
            }
            for number in [limit, timeout].into_iter().flatten() {
                decodable &= number.parse::<i64>().is_ok();
            }
            // Upstream's conversion of query values to bool: anything but "false" and "0" is true, even "".
            if watch.is_some_and(|w| !(w.eq_ignore_ascii_case("false") || w == "0")) {
                self.verb = "watch".into();
            }
            if let Some(name) = field.as_deref().filter(|_| decodable).and_then(exact_name) {
                self.name = name.into();
            }
        }
        if matches!(self.verb.as_str(), "list" | "watch" | "deletecollection") {
            self.field_selector = owned_first(raw, "fieldSelector");
            self.label_selector = owned_first(raw, "labelSelector");
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PathVerb {
    FromMethod,
    FromPath,
}

fn owned_first(raw: &str, key: &str) -> Str {
    query::first_value(raw, key).map(Str::from).unwrap_or_default()
}

fn non_resource_verb(method: &Method) -> Str {
    match *method {
        Method::GET => "get".into(),
        _ => method.as_str().to_ascii_lowercase().into(),
    }
}

fn resource_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        // As upstream, a resource request with another method has an empty verb.
        _ => "",
    }
}

/// The name pinned by `metadata.name=` in a field selector, provided it is a valid path segment.
fn exact_name(selector: &str) -> Option<String> {
    let mut found = None;
    for term in split_terms(selector) {
        if term.is_empty() {
            continue;
        }
        let (key, value) = term.split_once('=')?;
        if key.ends_with('!') {
            continue;
        }
        if key == "metadata.name" && found.is_none() {
            // An invalid escape makes the whole selector invalid, so no name is taken from it.
            found = Some(unescape_value(value.strip_prefix('=').unwrap_or(value))?);
        }
    }
    // The name ends up in the authorization of the request, so it must be one that a path could contain.
    found.filter(|n| n != "." && n != ".." && !n.contains(['/', '%']))
}

/// Splits at commas that are not escaped with a backslash.
fn split_terms(selector: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    selector.split(move |c| {
        let split = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        split
    })
}

fn unescape_value(value: &str) -> Option<String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|c| matches!(c, '\\' | ',' | '='))?),
            ',' | '=' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}
