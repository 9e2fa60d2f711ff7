use super::*;

#[test]
fn formats_accept_valid_and_reject_invalid_strings() {
    let table: &[(&str, &[&str], &[&str])] = &[
        (
            "date-time",
            &[
                "2020-01-02T03:04:05Z",
                "2020-01-02t03:04:05.5+01:00",
                "2020-01-02T03:04:05z",
            ],
            &[
                "2020-01-02",
                "2020-01-02T03:04:60Z",
                "2020-02-30T00:00:00Z",
                "",
                "2020-01-02T24:00:00Z",
                "2020-01-02T03:04:05",
            ],
        ),
        (
            "date",
            &["2020-02-29", "0000-01-01"],
            &["2021-02-29", "2020-2-9", "+020-01-02", "2020-13-01"],
        ),
        ("ipv4", &["1.2.3.4", "010.0.0.1"], &["1.2.3", "::1", "256.1.1.1"]),
        ("ipv6", &["::1", "::ffff:1.2.3.4"], &["1.2.3.4", "g::"]),
        ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33"]),
        (
            "uuid",
            &[
                "7f3e0b9a-0d0a-4a2c-9b0e-000000000000",
                "7F3E0B9A0D0A4A2C9B0E000000000000",
            ],
            &["z", "7f3e0b9a-0d0a"],
        ),
        (
            "uuid4",
            &["7f3e0b9a-0d0a-4a2c-9b0e-000000000000"],
            &["7f3e0b9a-0d0a-3a2c-9b0e-000000000000"],
        ),
        (
            "uuid3",
            &["7f3e0b9a-0d0a-3a2c-0b0e-000000000000"],
            &["7f3e0b9a-0d0a-4a2c-9b0e-000000000000"],
        ),
        ("byte", &["QQ==", "QR==", "QUJD"], &["", "Q", "QQ=", "Q_==", "===="]),
        (
            "uri",
            &[
                "http://x/y",
                "/a",
                "http://x/a b",
                "mailto:a",
                "*",
                "https://u:p@[::1]:80/x?y z",
            ],
            &["a", "http://x y", "", "http://x/%zz", ":x", "http://x:a", "1a://b"],
        ),
        (
            "email",
            &["a@b.c", "A <a@b>", "\"a b\"@c", "a@[1.2.3.4]"],
            &["a", "a@", "@b", "<a@b"],
        ),
        (
            "duration",
            &["1h30m", "3 days 2h", "1.5s", "0", "-1m", "2 weeks", "about 5 min"],
            &["", "h", "1", "1x", "1 x"],
        ),
        (
            "mac",
            &["01:23:45:67:89:ab", "0123.4567.89ab", "01-23-45-67-89-ab"],
            &["01:23", "01:23:45:67:89:zz"],
        ),
        (
            "hostname",
            &["a", "example.com", "a-b.example.com", "日本.jp"],
            &["", "-a.com", "a.c", "a_b.com", "a.b1"],
        ),
        (
            "isbn",
            &["0321751043", "978-0321751041", "080442957X"],
            &["0321751044", "978", "X804429570"],
        ),
        ("isbn10", &["0-321-75104-3"], &["978-0321751041"]),
        ("isbn13", &["978 0321751041"], &["0321751043", "9780321751042"]),
        (
            "creditcard",
            &["4111 1111 1111 1111", "378282246310005", "6011000990139424"],
            &["4111111111111112", "1", ""],
        ),
        ("ssn", &["111-11-1111", "111 11 1111"], &["111111111", "111-11-111"]),
        ("hexcolor", &["#FFF", "ffffff"], &["#ff", "#ggg", ""]),
        (
            "rgbcolor",
            &["rgb(0,128, 255)", "rgb( 1 ,2,3)"],
            &["rgb(256,0,0)", "rgb(01,0,0)", "rgb(1,2)", "RGB(1,2,3)"],
        ),
        (
            "bsonobjectid",
            &["507f1f77bcf86cd799439011"],
            &["507f1f77bcf86cd79943901", "x"],
        ),
        ("k8s-short-name", &["a-b"], &["a.b", "A", ""]),
        ("k8s-long-name", &["a-b.c"], &["A.b", "a..b"]),
        ("password", &["", "x"], &[]),
    ];
    for (name, good, bad) in table {
        let format = FormatCheck::parse(Formats::Strings, name).unwrap();
        good.iter().for_each(|s| assert!(format.matches(s), "{name} {s:?}"));
        bad.iter().for_each(|s| assert!(!format.matches(s), "{name} {s:?}"));
    }
}

#[test]
fn a_type_has_its_own_formats() {
    assert!(Formats::of_name("integer").contain("int32") && !Formats::of_name("integer").contain("float"));
    assert!(Formats::of_name("string").contain("datetime") && Formats::of_name("").contain("date-time"));
    assert!(!Formats::of_name("string").contain("int32") && !Formats::of_name("object").contain("uri"));
    assert!(Formats::of_name("number").contain("double") && !Formats::of_name("odd").contain("uri"));
}

#[test]
fn urls_of_approvals_have_a_scheme_and_a_host() {
    assert!(is_absolute_url("https://github.com/x") && !is_absolute_url("/x") && !is_absolute_url("github.com/x"));
    assert!(!is_absolute_url("https:///x"));
}
