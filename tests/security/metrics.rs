//! Authentication, impersonation and authorization metrics in `/metrics`.

use crate::support::Gateway;
use crate::wire::Caller;

/// The value of a series, or 0 if it is absent.
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|v| v.trim().parse().ok()).unwrap_or(0.0)
}

#[test]
fn authentication_and_authorization_are_counted() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "t-mail,jane@example.org,u1\nt-admin,admin,u2,system:masters\n").expect("it is written");
    let flag = format!("--token-auth-file={}", tokens.display());
    let g = Gateway::start_with(dir.path(), &[&flag]);
    g.kubectl(&["create", "serviceaccount", "robot"]);
    let robot = g.kubectl(&["create", "token", "robot"]);
    let before = g.curl(&["/metrics"]).expect("they are served");

    let caller = &mut Caller::of(&g, None);
    assert!(caller.whoami_with_token("t-mail").is_ok());
    assert!(caller.whoami_with_token(robot.trim()).is_ok());
    assert!(caller.whoami_with_token("unheard-of").is_err());
    let admin = ("Authorization", "Bearer t-admin");
    assert!(caller.whoami(&[admin, ("Impersonate-User", "jane")]).is_ok());
    let mail = ("Authorization", "Bearer t-mail");
    assert!(caller.whoami(&[mail, ("Impersonate-User", "jane")]).is_err());

    let after = g.curl(&["/metrics"]).expect("they are served");
    let grown = |series: &str| value(&after, series) - value(&before, series);
    for (series, by) in [
        ("authenticated_user_requests{username=\"email_id\"}", 2.0),
        ("authenticated_user_requests{username=\"admin\"}", 1.0),
        ("authentication_attempts{result=\"error\"}", 1.0),
        ("authentication_duration_seconds_count{result=\"error\"}", 1.0),
        ("serviceaccount_valid_tokens_total", 1.0),
        ("serviceaccount_stale_tokens_total", 0.0),
        (
            "apiserver_impersonation_attempts_total{decision=\"allowed\",mode=\"user-info\"}",
            1.0,
        ),
        (
            "apiserver_impersonation_attempts_total{decision=\"denied\",mode=\"\"}",
            1.0,
        ),
        (
            "apiserver_impersonation_attempts_duration_seconds_count{decision=\"denied\",mode=\"\"}",
            1.0,
        ),
        (
            "apiserver_impersonation_authorization_attempts_total{decision=\"denied\",mode=\"user-info\"}",
            1.0,
        ),
        (
            "apiserver_impersonation_authorization_attempts_total{decision=\"denied\",mode=\"legacy\"}",
            1.0,
        ),
        (
            "apiserver_impersonation_authorization_attempts_duration_seconds_count{decision=\"allowed\",mode=\"user-info\"}",
            2.0,
        ),
    ] {
        assert_eq!(grown(series), by, "{series}");
    }
    for series in [
        "authentication_attempts{result=\"success\"}",
        "authentication_duration_seconds_count{result=\"success\"}",
        "authorization_duration_seconds_count{result=\"allowed\"}",
        // curl's own client certificate, issued for a year.
        "apiserver_client_certificate_expiration_seconds_bucket{le=\"+Inf\"}",
    ] {
        assert!(grown(series) >= 1.0, "{series}");
    }
    let early = "apiserver_client_certificate_expiration_seconds_bucket{le=\"15552000\"}";
    assert_eq!(value(&after, early), 0.0, "{early}");
    for name in [
        "legacy_tokens",
        "legacy_manual_token_uses",
        "legacy_auto_token_uses",
        "invalid_legacy_auto_token_uses",
    ] {
        let series = format!("\nserviceaccount_{name}_total 0\n");
        assert!(after.contains(&series), "{series}");
    }
}
