//! What filters and proxies do to the headers of a request or answer.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use time::OffsetDateTime;

/// Removes the headers whose names are `out`. One look at each name, where mostly nothing is to be removed.
pub fn remove_all(headers: &mut HeaderMap, out: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| out(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// A moment as headers write it (RFC 9110, 5.6.7), in the years that this form can write.
pub fn date(moment: OffsetDateTime) -> Option<HeaderValue> {
    let format = time::macros::format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    HeaderValue::try_from(moment.format(format).ok()?).ok()
}
