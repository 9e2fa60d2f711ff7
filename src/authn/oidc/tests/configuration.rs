//! Files: what is read from them, and upstream's errors.

use super::*;

const FILE: &str = "\
apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions:
  - path: /livez
jwt:
- issuer:
    url: https://idp.example.org
    audiences: [a, b]
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - claim: hd
    requiredValue: example.org
  claimMappings:
    username:
      claim: sub
      prefix: 'p:'
    uid:
      claim: id
";

fn refusal(from: &str, to: &str) -> String {
    let text = FILE.replace(from, to);
    assert_ne!(text, FILE, "{from}");
    Configuration::parse(&text, &["https://sa".into()])
        .unwrap_err()
        .to_string()
}

#[test]
fn a_valid_file_is_parsed() {
    let c = Configuration::parse(FILE, &[]).unwrap();
    assert_eq!(c.anonymous.unwrap().paths, ["/livez"]);
    let i = &c.issuers[0];
    assert_eq!((&i.username, &i.uid), (&claim("sub", "p:"), &Some(claim("id", ""))));
    assert_eq!(i.required, [("hd".to_owned(), "example.org".to_owned())]);
    assert!(i.groups.is_none());
}

#[test]
fn invalid_files_are_rejected_with_the_field() {
    for (from, to, want) in [
        (
            "url: https://idp.example.org",
            "url: http://x",
            "jwt[0].issuer.url: Invalid value: \"http://x\": URL scheme must be https",
        ),
        (
            "url: https://idp.example.org",
            "url: https://sa",
            "URL must not overlap with disallowed issuers: [https://sa]",
        ),
        (
            "    audienceMatchPolicy: MatchAny\n",
            "",
            "audienceMatchPolicy must be MatchAny for multiple audiences",
        ),
        (
            "[a, b]",
            "[]",
            "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
        ),
        (
            "      prefix: 'p:'\n",
            "",
            "prefix is required when claim is set. It can be set to an empty string to disable prefixing",
        ),
        (
            "enabled: true",
            "enabled: false",
            "enabled should be set to true when conditions are defined",
        ),
        (
            "claimMappings:",
            "claimMapping:",
            "strict decoding error: unknown field \"jwt[0].claimMapping\"",
        ),
        (
            "kind: Auth",
            "kind: Author",
            "the kind must be AuthenticationConfiguration",
        ),
        ("v1beta1", "v2", "the apiVersion must be one of"),
        (
            "    url: https://idp.example.org",
            "    url: https://a\n    discoveryURL: https://a",
            "discoveryURL must be different from URL",
        ),
        (
            "url: https://idp.example.org",
            "url: ''",
            "jwt[0].issuer.url: Required value",
        ),
        (
            "url: https://idp.example.org",
            "url: http://u:p@h?q#f",
            "[jwt[0].issuer.url: Invalid value: \"http://u:p@h?q#f\": URL scheme must be https, jwt[0].issuer.url: Invalid value: \
             \"http://u:p@h?q#f\": URL must not contain a username or password, jwt[0].issuer.url: Invalid value: \
             \"http://u:p@h?q#f\": URL must not contain a query, jwt[0].issuer.url: Invalid value: \"http://u:p@h?q#f\": URL must \
             not contain a fragment]",
        ),
        (
            "url: https://idp.example.org",
            "url: https://issuer:port",
            "jwt[0].issuer.url: Invalid value: \"https://issuer:port\": parse \"https://issuer:port\": invalid port \":port\" after host",
        ),
        (
            "    url: https://idp.example.org",
            "    url: https://a\n    discoveryURL: https://a//",
            "discoveryURL must be different from URL",
        ),
        (
            "[a, b]",
            "[a, '', a]",
            "[jwt[0].issuer.audiences[1]: Required value, jwt[0].issuer.audiences[2]: Duplicate value: \"a\"]",
        ),
        (
            "[a, b]\n    audienceMatchPolicy: MatchAny",
            "[a]\n    audienceMatchPolicy: MatchExact",
            "Invalid value: \"MatchExact\": audienceMatchPolicy must be empty or MatchAny for single audience",
        ),
        (
            "    audiences:",
            "    certificateAuthority: none\n    audiences:",
            "jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\": data does not contain any valid RSA or ECDSA certificates",
        ),
        (
            "    audiences:",
            "    egressSelectorType: etcd\n    audiences:",
            "Invalid value: \"etcd\": egress selector must be either controlplane or cluster",
        ),
        (
            "requiredValue: example.org",
            "message: m",
            "jwt[0].claimValidationRules[0].message: Invalid value: \"m\": may not be specified when claim is set",
        ),
        (
            "requiredValue: example.org",
            "requiredValue: example.org\n  - {claim: hd}\n  - {requiredValue: x}",
            "[jwt[0].claimValidationRules[1].claim: Duplicate value: \"hd\", jwt[0].claimValidationRules[2]: Required value: claim or \
             expression is required]",
        ),
        (
            "claim: sub\n      prefix: 'p:'",
            "prefix: 'p:'",
            "jwt[0].claimMappings.username: Required value: claim or expression is required",
        ),
        (
            "claim: id",
            "claim: [id]",
            "jwt[0].claimMappings.uid.claim: expected a string",
        ),
    ] {
        let e = refusal(from, to);
        assert!(e.contains(want), "{e}");
    }
}

#[test]
fn more_than_64_providers_are_the_only_error() {
    let issuer = "- issuer: {url: http://x}\n";
    let e = refusal("jwt:\n", &format!("jwt:\n{}", issuer.repeat(64)));
    assert_eq!(e, "jwt: Too many: 65: must have at most 64 items");
}
