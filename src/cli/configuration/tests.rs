//! Files that are read, refused and written.

use super::*;
use proptest::prelude::*;

const HEAD: &str = "apiVersion: torana.dev/v1alpha1\nkind: ToranaConfiguration\n";

fn load(body: &str) -> Result<Values, String> {
    let text = format!("{HEAD}{body}");
    let parsed = Configuration::parse("torana.yaml", text.as_bytes());
    parsed
        .map(|file| file.under(Values::default()))
        .map_err(|e| e.to_string())
}

#[test]
fn every_flag_has_a_field_of_its_own() {
    let fields: std::collections::BTreeSet<String> = FLAGS.iter().map(|f| field_of(f.name)).collect();
    assert_eq!(fields.len(), FLAGS.len());
    assert_eq!(field_of("tls-sni-cert-key"), "tlsSniCertKey");
    assert_eq!(field_of("v"), "v");
    for flag in FLAGS {
        assert_eq!(flag_of(&field_of(flag.name)).map(|f| f.name), Some(flag.name));
    }
}

#[test]
fn fields_set_the_values_of_flags() {
    let values = load(
        "securePort: 7443\nanonymousAuth: false\netcdServers: [https://a:2379, https://b:2379]\nrequestTimeout: 1m30s\n\
         serviceAccountIssuer: ['https://a,b', 'https://c']\nauditLogBatchThrottleQps: 0.5\ndataDir: /srv\n",
    )
    .unwrap();
    assert_eq!(values.int("secure-port"), Ok(7443));
    assert_eq!(values.bool("anonymous-auth"), Ok(false));
    assert_eq!(values.list("etcd-servers"), ["https://a:2379", "https://b:2379"]);
    assert_eq!(
        values.duration("request-timeout"),
        Ok(std::time::Duration::from_secs(90))
    );
    assert_eq!(values.list("service-account-issuer"), ["https://a,b", "https://c"]);
    assert_eq!(values.text("data-dir"), "/srv");
    let json = br#"{"kind": "ToranaConfiguration", "apiVersion": "torana.dev/v1alpha1", "v": 4}"#;
    let values = Configuration::parse("torana.json", json)
        .unwrap()
        .under(Values::default());
    assert_eq!(values.int("v"), Ok(4));
}

#[test]
fn flags_win() {
    let text = format!("{HEAD}securePort: 7443\netcdServers: [https://a:1]\n");
    let file = Configuration::parse("torana.yaml", text.as_bytes()).unwrap();
    let mut flags = Values::default();
    flags.put("etcd-servers", vec!["https://b:2".to_owned()]);
    let values = file.under(flags);
    assert_eq!(values.list("etcd-servers"), ["https://b:2"]);
    assert_eq!(values.int("secure-port"), Ok(7443));
}

#[test]
fn errors_name_the_file_the_line_and_the_remedy() {
    for (body, error) in [
        (
            "dataDir: /a\nsecurePrt: 1\n",
            "torana.yaml:4: unknown field \"securePrt\"; did you mean securePort?",
        ),
        (
            "secure-port: 1\n",
            "torana.yaml:3: unknown field \"secure-port\"; write securePort",
        ),
        (
            "--secure_port: 1\n",
            "torana.yaml:3: unknown field \"--secure_port\"; write securePort",
        ),
        (
            "colour: red\n",
            "torana.yaml:3: unknown field \"colour\"; `torana config print --defaults` lists all fields",
        ),
        (
            "securePort: \"6443\"\n",
            "torana.yaml:3: securePort: expected a whole number, as in `securePort: 1`",
        ),
        (
            "etcdServers: https://a\n",
            "torana.yaml:3: etcdServers: expected a list of strings, as in `etcdServers: [a, b]`",
        ),
        (
            "\netcdServers:\n- https://a,https://b\n",
            "torana.yaml:4: etcdServers: the item \"https://a,https://b\" has a comma; write an item for each value",
        ),
        (
            "requestTimeout: soon\n",
            "torana.yaml:3: invalid argument \"soon\" for --request-timeout: ",
        ),
        (
            "v: 1\nv: 2\n",
            "torana.yaml: line 4: key \"v\" already set in map; keep one of them",
        ),
    ] {
        let message = load(body).unwrap_err();
        assert!(message.starts_with(error), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
    let refusal = |text: &str| Configuration::parse("f", text.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        refusal("apiVersion: torana.dev/v2\nkind: ToranaConfiguration\n"),
        "f:1: apiVersion is \"torana.dev/v2\"; expected torana.dev/v1alpha1"
    );
    assert_eq!(
        refusal("v: 1\n"),
        "f: apiVersion is missing; add apiVersion: torana.dev/v1alpha1"
    );
    assert!(refusal("[]").contains("expected an object"), "{}", refusal("[]"));
    assert!(refusal("").contains("expected an object"));
    assert!(
        refusal("a: b: c").starts_with("f: yaml: line 1: "),
        "{}",
        refusal("a: b: c")
    );
}

#[test]
fn errors_of_option_combinations_name_the_line() {
    let values = load("\nloggingFormat: json\n").unwrap();
    let error = crate::cli::Options::read(values.clone()).unwrap_err();
    assert_eq!(
        values.locate(error).to_string(),
        "--logging-format is refused: only the text format is supported (loggingFormat in torana.yaml:4)"
    );
    let values = load("clientCaFile: /gone\n").unwrap();
    let error = crate::cli::Options::read(values)
        .unwrap()
        .complete()
        .unwrap_err()
        .to_string();
    assert!(error.ends_with(" (clientCaFile in torana.yaml:3)"), "{error}");
}

#[test]
fn the_file_with_all_defaults_is_valid_and_changes_nothing() {
    let text = to_yaml(&Values::default(), true);
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let values = Configuration::parse("f", uncommented.as_bytes())
        .unwrap()
        .under(Values::default());
    for flag in FLAGS.iter().filter(|f| f.support == Support::Supported) {
        assert!(values.is_given(flag.name), "{} is missing", flag.name);
        assert!(values.is_default(flag) || flag.default.is_empty(), "{}", flag.name);
    }
}

#[test]
fn docs_configuration_md_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
    let on_disk = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        on_disk == markdown(),
        "docs/configuration.md is stale: cargo run -- docs-config > docs/configuration.md"
    );
}

proptest! {
    /// Written values are read back unchanged, for any string.
    #[test]
    fn files_round_trip(text in "[^\0]{0,40}", items in prop::collection::vec("[^,\\s\0][^,\0]{0,10}[^,\\s\0]", 0..4), n in any::<i64>(), b in any::<bool>()) {
        let mut values = Values::default();
        values.put("data-dir", vec![text]);
        values.put("etcd-servers", vec![items.join(",")]);
        values.put("tls-sni-cert-key", items);
        values.put("max-watches", vec![n.to_string()]);
        values.put("profiling", vec![b.to_string()]);
        let written = to_yaml(&values, false);
        let read = Configuration::parse("f", written.as_bytes()).map(|f| f.under(Values::default()));
        let read = read.map_err(|e| TestCaseError::fail(format!("{e}\n{written}")))?;
        prop_assert_eq!(document(&read), document(&values));
        let json = crate::apimachinery::codec::json::to_vec(&document(&values));
        let read = Configuration::parse("f", &json).unwrap().under(Values::default());
        prop_assert_eq!(document(&read), document(&values));
    }

    #[test]
    fn arbitrary_text_never_panics(text in ".{0,200}") {
        let _ = Configuration::parse("f", text.as_bytes());
        let _ = Configuration::parse("f", format!("{HEAD}{text}").as_bytes());
    }
}
