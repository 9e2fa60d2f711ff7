//! Kubernetes' library of URLs: `url('https://…')`, `isURL` and the parts of a URL. Parsing is in `value::url`.

use super::{Body::Strict, Declaration};
use crate::value::url::{Url, bad_escape};
use crate::value::{Key, Out, Text, Val, error, no_overload};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const FUNCTIONS: &[Declaration] = &[
    ("url", Strict(url), &["(string) URL"]),
    ("isURL", Strict(is_url), &["(string) bool"]),
    (
        "getScheme",
        Strict(|a| part(a, |u| u.scheme.to_ascii_lowercase())),
        &["URL.() string"],
    ),
    ("getHost", Strict(|a| part(a, |u| u.host.clone())), &["URL.() string"]),
    (
        "getHostname",
        Strict(|a| part(a, |u| u.hostname().to_owned())),
        &["URL.() string"],
    ),
    (
        "getPort",
        Strict(|a| part(a, |u| u.port().to_owned())),
        &["URL.() string"],
    ),
    (
        "getEscapedPath",
        Strict(|a| part(a, |u| u.path.clone())),
        &["URL.() string"],
    ),
    ("getQuery", Strict(query), &["URL.() map(string, list(string))"]),
];

fn unescape(text: &str) -> Option<String> {
    if bad_escape(text).is_some() {
        return None;
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        out.push(match b {
            b'+' => b' ',
            b'%' => {
                // `bad_escape` has checked the digits, so the default is never used.
                let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16)).unwrap_or(0) as u8;
                digit(bytes.next()) << 4 | digit(bytes.next())
            }
            b => b,
        });
    }
    // Go strings may hold any bytes; ours replace those that are not UTF-8.
    Some(String::from_utf8_lossy(&out).into_owned())
}

fn url<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(s)] = args else { return no_overload() };
    match Url::parse(s) {
        Ok(url) => Ok(Val::Url(Arc::new(url))),
        Err(why) => error(format!("URL parse error during conversion from string: {why}")),
    }
}

fn is_url<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(s)] = args else { return no_overload() };
    Ok(Val::Bool(Url::parse(s).is_ok()))
}

fn part<'a>(args: &[Val<'a>], of: fn(&Url) -> String) -> Out<'a> {
    match args {
        [Val::Url(url)] => Ok(of(url).into()),
        _ => no_overload(),
    }
}

fn query<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::Url(url)] = args else { return no_overload() };
    let mut found: BTreeMap<String, Vec<Val<'a>>> = BTreeMap::new();
    // Go ignores pairs that contain a semicolon.
    for pair in url.query.split('&').filter(|p| !p.is_empty() && !p.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // Malformed escapes drop the pair, as Go's `Query` does.
        if let (Some(key), Some(value)) = (unescape(key), unescape(value)) {
            found.entry(key).or_default().push(value.into());
        }
    }
    let pair = |(k, v): (String, Vec<Val<'a>>)| (Key::String(Text::Shared(k.into())), v.into());
    Ok(found.into_iter().map(pair).collect::<BTreeMap<_, Val<'a>>>().into())
}
