//! What filters and proxies do to the headers of a request or answer.

use http::HeaderMap;
use http::header::HeaderName;

/// Removes the headers whose names are `out`. One look at each name, where mostly nothing is to be removed.
pub fn remove_all(headers: &mut HeaderMap, out: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| out(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}
