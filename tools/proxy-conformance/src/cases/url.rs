//! Treatment of URLs.

use crate::case::Expect::{Authority, Method, NotSent, Sent, SentBody, SentLength, Status, Target};
use crate::case::{Case, case};
use crate::client::RequestBody;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("3.2.1a", "an escaped slash in the path is a slash at the backend")
            .request("GET", "{base}/things/a%2Fb")
            .upstream()
            .expect([Status(200), Target("{base}/things/a/b")]),
        case(
            "3.2.1b",
            "unnecessary escapes in the path are removed, necessary ones are in upper case",
        )
        .request("GET", "{base}/things/%41%7e%c3%a9%20")
        .expect([Target("{base}/things/A~%C3%A9%20")]),
        case("3.2.1c", "double slashes and a trailing slash are preserved")
            .request("GET", "{base}//things//a/")
            .expect([Target("{base}//things//a/")]),
        case("3.2.1d", "bytes that Go escapes in paths are escaped")
            .request("GET", "{base}/things/a(b)'c'!*")
            .upstream()
            .expect([Target("{base}/things/a%28b%29%27c%27%21%2A")]),
        case("3.2.1e", "bytes that are valid in a path are not escaped")
            .request("GET", "{base}/things/a;b=c,d:e@f&g+h$i-j_k.l~m")
            .expect([Target("{base}/things/a;b=c,d:e@f&g+h$i-j_k.l~m")]),
        case("3.2.1f", "an escaped percent sign stays escaped once")
            .request("GET", "{base}/things/a%2541")
            .expect([Target("{base}/things/a%2541")]),
        case(
            "3.2.2a",
            "the query is re-encoded: keys sorted, values of a key in order, a space as +, malformed pairs dropped",
        )
        .request("GET", "{base}/things?b=2&a=1&a=0&c=x+y%20z&bad=%zz;k=v")
        .expect([Target("{base}/things?a=1&a=0&b=2&c=x+y+z")]),
        case("3.2.2b", "reserved bytes in the query are escaped in upper case")
            .request("GET", "{base}/things?labelSelector=a%3db,c%21%2f&x=*()'!~")
            .expect([Target("{base}/things?labelSelector=a%3Db%2Cc%21%2F&x=%2A%28%29%27%21~")]),
        case("3.2.2c", "a key without a value gets an equals sign")
            .request("GET", "{base}/things?flag&limit=5")
            .expect([Target("{base}/things?flag=&limit=5")]),
        case("3.2.2d", "an empty query leaves no question mark")
            .request("GET", "{base}/things?")
            .expect([Target("{base}/things")]),
        case("3.2.2e", "pairs with a semicolon are dropped, the others are kept")
            .request("GET", "{base}/things?a=1;b=2&c=3")
            .expect([Target("{base}/things?c=3")]),
        case("3.2.2f", "non-ASCII letters in the query are escaped")
            .request("GET", "{base}/things?n=%c3%a9&%c3%a9=1")
            .expect([Target("{base}/things?n=%C3%A9&%C3%A9=1")]),
        case(
            "3.2.3a",
            "the authority is the backend's address, not the client's Host",
        )
        .with("X-Forwarded-Host", "evil.example")
        .expect([Authority("{host}"), Sent("x-forwarded-host", &["{host}"])]),
        case("3.2.3b", "the client's Host is not forwarded")
            .raw("GET {base}/things HTTP/1.1\r\nHost: evil.example\r\n{auth}{case}\r\n")
            .expect([Status(200), Authority("{host}")]),
        case("3.2.4a", "the method and the body are forwarded, with the length")
            .request("POST", "{base}/things")
            .upload(RequestBody::Sized(b"hello".to_vec()))
            .expect([
                Method("POST"),
                SentBody(b"hello"),
                Sent("content-length", &["5"]),
                NotSent("transfer-encoding"),
            ]),
        case("3.2.4b", "PUT is forwarded with its Content-Type")
            .request("PUT", "{base}/things/a")
            .with("Content-Type", "application/x-own; a=\"b\"")
            .upload(RequestBody::Sized(b"\x00\xff".to_vec()))
            .expect([
                Method("PUT"),
                SentBody(b"\x00\xff"),
                Sent("content-type", &["application/x-own; a=\"b\""]),
            ]),
        case("3.2.4c", "PATCH is forwarded")
            .request("PATCH", "{base}/things/a")
            .with("Content-Type", "application/merge-patch+json")
            .upload(RequestBody::Sized(b"{}".to_vec()))
            .expect([Method("PATCH"), SentBody(b"{}")]),
        case("3.2.4d", "DELETE with a body is forwarded")
            .request("DELETE", "{base}/things/a")
            .upload(RequestBody::Sized(b"{\"kind\":\"DeleteOptions\"}".to_vec()))
            .expect([Method("DELETE"), SentBody(b"{\"kind\":\"DeleteOptions\"}")]),
        case("3.2.4e", "unknown methods are forwarded")
            .request("FROB", "{base}/things/a")
            .expect([Method("FROB"), Status(200)]),
        case("3.2.4f", "OPTIONS is forwarded")
            .request("OPTIONS", "{base}/things")
            .expect([Method("OPTIONS"), Status(200)]),
        case("3.2.4g", "a Content-Length of zero means no body")
            .request("POST", "{base}/things")
            .upload(RequestBody::Sized(vec![]))
            .expect([SentLength(0), NotSent("transfer-encoding")]),
        case("3.2.4h", "the proxy does not limit bodies")
            .request("POST", "{base}/things")
            .upload(RequestBody::Sized(vec![b'x'; 5 << 20]))
            .expect([Status(200), SentLength(5 << 20)]),
    ]
}
