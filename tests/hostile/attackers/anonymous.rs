//! Requests without credentials, or with made-up ones.

use super::Cases;
use crate::scale::Scale;
use crate::wire::Request;

const CONFIG_MAPS: &str = "/api/v1/namespaces/evil/configmaps";

pub(super) fn requests(cases: &mut Cases, scale: &Scale) {
    heads(cases, scale);
    tokens(cases, scale);
    bodies(cases, scale);
    upgrades(cases, scale);
}

fn heads(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(1 << 20);
    cases.add("head: 1,000 headers", |scene| {
        let mut request = Request::get("/version");
        for i in 0..1_000 {
            request = request.header(&format!("X-H{i}"), "v");
        }
        scene.send(&request);
    });
    cases.add("head: 20,000 headers", |scene| {
        let text = format!("GET /version HTTP/1.1\r\nHost: a\r\n{}\r\n", "a: b\r\n".repeat(20_000));
        scene.send_raw(text.as_bytes());
    });
    cases.request("head: a header of a megabyte", move || {
        Request::get("/version").header("X-Long", "v".repeat(n))
    });
    cases.request("head: a header's name of 60 KB", || {
        Request::get("/version").header(&"x".repeat(60_000), "v")
    });
    cases.request("head: a path of a megabyte", move || {
        Request::get(format!("/{}", "p".repeat(n)))
    });
    cases.request("head: a method of 60 KB", || {
        Request::new(&"M".repeat(60_000), "/version")
    });
    cases.request("head: 500,000 Connection tokens", move || {
        Request::get("/version").header("Connection", "a,".repeat(n / 3))
    });
    cases.request("head: 100,000 forwarded addresses", move || {
        Request::get("/version").header("X-Forwarded-For", "10.0.0.1, ".repeat(n / 12))
    });
    cases.add("head: 900 X-Remote-Group headers", |scene| {
        let mut request = Request::get("/api/v1/secrets").header("X-Remote-User", "admin");
        for _ in 0..900 {
            request = request.header("X-Remote-Group", "system:masters");
        }
        if let Some(answer) = scene.send(&request) {
            scene.expect(answer.code == 403, || format!("it is refused, not {}", answer.code));
        }
    });
    for (name, text) in [
        (
            "two lengths",
            "POST /version HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        ),
        (
            "a length and chunks",
            "POST /version HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "a negative length",
            "POST /version HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        ),
        (
            "a length beyond 64 bits",
            "POST /version HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        ),
        ("a bare carriage return", "GET /version HTTP/1.1\rHost: a\r\r"),
        ("folded lines", "GET /version HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n"),
        ("a space before the colon", "GET /version HTTP/1.1\r\nHost : a\r\n\r\n"),
        ("no host", "GET /version HTTP/1.1\r\n\r\n"),
        ("HTTP/0.9", "GET /version\r\n\r\n"),
        ("HTTP/3.0", "GET /version HTTP/3.0\r\nHost: a\r\n\r\n"),
        (
            "an absolute target",
            "GET http://127.0.0.1:1/version HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        ("an asterisk", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("NUL in a header", "GET /version HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"),
        (
            "the preface of HTTP/2",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\0\0\0\0\0\0",
        ),
        (
            "nothing but line ends",
            "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET /version HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
    ] {
        cases.add(format!("head: {name}"), move |scene| {
            let mut io = scene.connect();
            if let Some(io) = &mut io {
                let _ = std::io::Write::write_all(io, text.as_bytes());
                let _ = std::io::Write::flush(io);
            }
            // Some end only with the deadline for a head; keep probing meanwhile.
            scene.hold();
        });
    }
}

fn tokens(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(1_000_000);
    let with = |token: String| Request::get("/api").header("Authorization", format!("Bearer {token}"));
    let encoded = |json: &str| {
        use base64::Engine;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json)
    };
    cases.request("token: 900 KB", move || with("t".repeat(n * 9 / 10)));
    cases.request("token: 900,000 dots", move || with(".".repeat(n * 9 / 10)));
    cases.request("token: claims of 500 KB", move || {
        let claims = format!(
            r#"{{"iss":"https://kubernetes.default.svc.cluster.local","sub":"{}"}}"#,
            "s".repeat(n / 2)
        );
        with(format!("{}.{}.AAAA", encoded(r#"{"alg":"RS256"}"#), encoded(&claims)))
    });
    cases.request("token: claims nested 200,000 deep", move || {
        let claims = format!(
            r#"{{"iss":"https://kubernetes.default.svc.cluster.local","a":{}"#,
            "[".repeat(n / 5)
        );
        with(format!("{}.{}.AAAA", encoded(r#"{"alg":"RS256"}"#), encoded(&claims)))
    });
    cases.request("token: 50,000 audiences", move || {
        let audiences = super::writers::joined(n / 20, |i| format!(r#""a{i}""#));
        let claims =
            format!(r#"{{"iss":"https://kubernetes.default.svc.cluster.local","aud":[{audiences}],"exp":1e400}}"#);
        with(format!("{}.{}.AAAA", encoded(r#"{"alg":"RS256"}"#), encoded(&claims)))
    });
    cases.request("token: alg none", move || {
        let claims = r#"{"iss":"https://kubernetes.default.svc.cluster.local","sub":"system:serviceaccount:kube-system:default"}"#;
        with(format!("{}.{}.", encoded(r#"{"alg":"none"}"#), encoded(claims)))
    });
    cases.request("token: a header of 300 KB with keys of its own", move || {
        let head = format!(
            r#"{{"alg":"RS256","jwk":{{"n":"{}"}},"x5c":["{}"]}}"#,
            "A".repeat(n / 7),
            "A".repeat(n / 7)
        );
        with(format!(
            "{}.{}.AAAA",
            encoded(&head),
            encoded(r#"{"iss":"https://kubernetes.default.svc.cluster.local"}"#)
        ))
    });
    cases.add("token: 500 different ones", move |scene| {
        let requests: Vec<_> = (0..n / 2_000)
            .map(|i| {
                let claims = format!(r#"{{"iss":"https://kubernetes.default.svc.cluster.local","sub":"s{i}"}}"#);
                with(format!("{}.{}.AAAA", encoded(r#"{"alg":"RS256"}"#), encoded(&claims)))
            })
            .collect();
        scene.send_in_sequence(&requests);
    });
    cases.add("token: in 900 headers", |scene| {
        let mut request = Request::get("/api");
        for i in 0..900 {
            request = request.header("Authorization", format!("Bearer t{i}"));
        }
        scene.send(&request);
    });
    cases.request("token: in the protocol of a WebSocket", move || {
        let protocols = "base64url.bearer.authorization.k8s.io.dA,".repeat(n / 50);
        upgrade("/api/v1/watch/pods", "websocket").header("Sec-WebSocket-Protocol", protocols)
    });
    cases.request("token: basic, of 500 KB", move || {
        Request::get("/api").header("Authorization", format!("Basic {}", "A".repeat(n / 2)))
    });
}

fn bodies(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(1 << 20);
    cases.at_once("body: 3 MB sent to be refused, sixteen at once", 16, || {
        Request::post(CONFIG_MAPS, vec![b' '; 3 << 20])
    });
    cases.at_once("body: a token review of a megabyte, eight at once", 8, move || {
        let review = format!(
            r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{{"token":"{}"}}}}"#,
            "t".repeat(n)
        );
        Request::post("/apis/authentication.k8s.io/v1/tokenreviews", review)
    });
    let chunked = |path: &str, body: &[u8]| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    };
    let mut raw = |name: &str, body: Vec<u8>| {
        cases.add(format!("chunks: {name}"), move |scene| {
            scene.send_raw(&chunked(CONFIG_MAPS, &body));
        });
    };
    raw(
        "of one byte, 200,000 of them",
        [b"1\r\na\r\n".repeat(n / 5), b"0\r\n\r\n".to_vec()].concat(),
    );
    raw(
        "with extensions of 500 KB",
        [b"1;".to_vec(), vec![b'x'; n / 2], b"\r\na\r\n0\r\n\r\n".to_vec()].concat(),
    );
    raw(
        "with 100,000 small extensions",
        [b"1;a=b\r\nx\r\n".repeat(n / 10), b"0\r\n\r\n".to_vec()].concat(),
    );
    raw(
        "with trailers of 500 KB",
        [b"0\r\n".to_vec(), b"a: b\r\n".repeat(n / 12), b"\r\n".to_vec()].concat(),
    );
    raw(
        "of a size beyond 64 bits",
        b"fffffffffffffffffff\r\na\r\n0\r\n\r\n".to_vec(),
    );
    raw("of a size that is no number", b"zz\r\na\r\n0\r\n\r\n".to_vec());
    raw("of a negative size", b"-1\r\na\r\n0\r\n\r\n".to_vec());
    raw("without their line ends", b"1\r\nab0\r\n\r\n".to_vec());
    raw(
        "of sizes with a megabyte of zeros",
        [vec![b'0'; n], b"1\r\na\r\n0\r\n\r\n".to_vec()].concat(),
    );
    cases.add("body: waits for 100 Continue and never sends, 50 times", |scene| {
        let mut open = Vec::new();
        for _ in 0..50 {
            let Some(mut io) = scene.connect() else { break };
            let head = format!(
                "POST {CONFIG_MAPS} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n"
            );
            let _ = std::io::Write::write_all(&mut io, head.as_bytes());
            open.push(io);
        }
        scene.hold();
    });
    cases.add("body: one byte of it and no more, 50 times", |scene| {
        let mut open = Vec::new();
        for _ in 0..50 {
            let Some(mut io) = scene.connect() else { break };
            let head = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n{";
            let _ = std::io::Write::write_all(&mut io, head.as_bytes());
            open.push(io);
        }
        scene.hold();
    });
}

pub(super) fn upgrade(path: &str, to: &str) -> Request {
    Request::get(path)
        .header("Connection", "Upgrade")
        .header("Upgrade", to)
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
}

fn upgrades(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(100, 10);
    cases.request("upgrade: to h2c", || {
        upgrade("/version", "h2c").header("HTTP2-Settings", "AAMAAABkAAQAAP__")
    });
    cases.request("upgrade: to a list of 5,000 protocols", || {
        upgrade("/version", &"a/1,".repeat(5_000))
    });
    cases.request("upgrade: of a health check to SPDY", || upgrade("/livez", "SPDY/3.1"));
    cases.add("method: CONNECT, TRACE and unknown ones", |scene| {
        for text in [
            "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n",
            "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
            "BREW /coffee HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            let answer = scene.send_raw(text.as_bytes());
            let refused = answer.is_none_or(|a| a.code >= 300);
            scene.expect(refused, || format!("{text:?} is refused"));
        }
    });
    cases.add(
        "path: every health check and document, a hundred times each",
        move |scene| {
            for path in [
                "/livez?verbose",
                "/readyz?verbose&exclude=etcd",
                "/version",
                "/openapi/v2",
                "/openapi/v3",
                "/apis",
            ] {
                scene.send_in_sequence(&vec![Request::get(path); n]);
            }
        },
    );
    cases.add("path: a health check that excludes 50,000 names", |scene| {
        scene.send(&Request::get(format!("/readyz?{}", "exclude=a&".repeat(50_000))));
    });
}
