//! Treatment of URLs.

use crate::client::Upload;
use crate::row::Expect::{Authority, Method, NotSent, Sent, SentBody, SentLength, Status, Target};
use crate::row::{Row, row};

pub(super) fn rows() -> Vec<Row> {
    vec![
        row("3.2.1a", "an escaped slash in the path is a slash at the backend")
            .ask("GET", "{base}/things/a%2Fb")
            .upstream()
            .expect([Status(200), Target("{base}/things/a/b")]),
        row(
            "3.2.1b",
            "unnecessary escapes in the path are removed, necessary ones are in upper case",
        )
        .ask("GET", "{base}/things/%41%7e%c3%a9%20")
        .expect([Target("{base}/things/A~%C3%A9%20")]),
        row("3.2.1c", "double slashes and a trailing slash are preserved")
            .ask("GET", "{base}//things//a/")
            .expect([Target("{base}//things//a/")]),
        row("3.2.1d", "bytes that Go escapes in paths are escaped")
            .ask("GET", "{base}/things/a(b)'c'!*")
            .upstream()
            .expect([Target("{base}/things/a%28b%29%27c%27%21%2A")]),
        row("3.2.1e", "bytes that are valid in a path are not escaped")
            .ask("GET", "{base}/things/a;b=c,d:e@f&g+h$i-j_k.l~m")
            .expect([Target("{base}/things/a;b=c,d:e@f&g+h$i-j_k.l~m")]),
        row("3.2.1f", "an escaped percent sign stays escaped once")
            .ask("GET", "{base}/things/a%2541")
            .expect([Target("{base}/things/a%2541")]),
        row(
            "3.2.2a",
            "the query is re-encoded: keys sorted, values of a key in order, a space as +, malformed pairs dropped",
        )
        .ask("GET", "{base}/things?b=2&a=1&a=0&c=x+y%20z&bad=%zz;k=v")
        .expect([Target("{base}/things?a=1&a=0&b=2&c=x+y+z")]),
        row("3.2.2b", "reserved bytes in the query are escaped in upper case")
            .ask("GET", "{base}/things?labelSelector=a%3db,c%21%2f&x=*()'!~")
            .expect([Target("{base}/things?labelSelector=a%3Db%2Cc%21%2F&x=%2A%28%29%27%21~")]),
        row("3.2.2c", "a key without a value gets an equals sign")
            .ask("GET", "{base}/things?flag&limit=5")
            .expect([Target("{base}/things?flag=&limit=5")]),
        row("3.2.2d", "an empty query leaves no question mark")
            .ask("GET", "{base}/things?")
            .expect([Target("{base}/things")]),
        row("3.2.2e", "pairs with a semicolon are dropped, the others are kept")
            .ask("GET", "{base}/things?a=1;b=2&c=3")
            .expect([Target("{base}/things?c=3")]),
        row("3.2.2f", "non-ASCII letters in the query are escaped")
            .ask("GET", "{base}/things?n=%c3%a9&%c3%a9=1")
            .expect([Target("{base}/things?n=%C3%A9&%C3%A9=1")]),
        row(
            "3.2.3a",
            "the authority is the backend's address, not the client's Host",
        )
        .with("X-Forwarded-Host", "evil.example")
        .expect([Authority("{host}"), Sent("x-forwarded-host", &["{host}"])]),
        row("3.2.3b", "the client's Host is not forwarded")
            .raw("GET {base}/things HTTP/1.1\r\nHost: evil.example\r\n{auth}{row}\r\n")
            .expect([Status(200), Authority("{host}")]),
        row("3.2.4a", "the method and the body are forwarded, with the length")
            .ask("POST", "{base}/things")
            .upload(Upload::Whole(b"hello".to_vec()))
            .expect([
                Method("POST"),
                SentBody(b"hello"),
                Sent("content-length", &["5"]),
                NotSent("transfer-encoding"),
            ]),
        row("3.2.4b", "PUT is forwarded with its Content-Type")
            .ask("PUT", "{base}/things/a")
            .with("Content-Type", "application/x-own; a=\"b\"")
            .upload(Upload::Whole(b"\x00\xff".to_vec()))
            .expect([
                Method("PUT"),
                SentBody(b"\x00\xff"),
                Sent("content-type", &["application/x-own; a=\"b\""]),
            ]),
        row("3.2.4c", "PATCH is forwarded")
            .ask("PATCH", "{base}/things/a")
            .with("Content-Type", "application/merge-patch+json")
            .upload(Upload::Whole(b"{}".to_vec()))
            .expect([Method("PATCH"), SentBody(b"{}")]),
        row("3.2.4d", "DELETE with a body is forwarded")
            .ask("DELETE", "{base}/things/a")
            .upload(Upload::Whole(b"{\"kind\":\"DeleteOptions\"}".to_vec()))
            .expect([Method("DELETE"), SentBody(b"{\"kind\":\"DeleteOptions\"}")]),
        row("3.2.4e", "unknown methods are forwarded")
            .ask("FROB", "{base}/things/a")
            .expect([Method("FROB"), Status(200)]),
        row("3.2.4f", "OPTIONS is forwarded")
            .ask("OPTIONS", "{base}/things")
            .expect([Method("OPTIONS"), Status(200)]),
        row("3.2.4g", "a Content-Length of zero means no body")
            .ask("POST", "{base}/things")
            .upload(Upload::Whole(vec![]))
            .expect([SentLength(0), NotSent("transfer-encoding")]),
        row("3.2.4h", "the proxy does not limit bodies")
            .ask("POST", "{base}/things")
            .upload(Upload::Whole(vec![b'x'; 5 << 20]))
            .expect([Status(200), SentLength(5 << 20)]),
    ]
}
