//! The compose file and the configuration that it mounts.

use crate::{assert_flags_exist, check_with, deploy, read};

#[test]
fn the_compose_file_is_valid() {
    if crate::has("docker-compose") {
        let out = std::process::Command::new("docker-compose")
            .arg("-f")
            .arg(deploy("compose/compose.yaml"))
            .args(["config", "--quiet"])
            .output()
            .expect("docker-compose runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    check_with(
        "promtool",
        &["check", "config", "--syntax-only"],
        &deploy("compose/prometheus.yaml"),
    );
}

#[test]
fn what_the_compose_file_names_exists() {
    let text = read("compose/compose.yaml");
    let gateway = text
        .split("  gateway:\n")
        .nth(1)
        .and_then(|rest| rest.split("  example:\n").next());
    assert_flags_exist("the gateway in compose.yaml", gateway.expect("a service `gateway`"));
    let mounted = text
        .lines()
        .filter_map(|l| l.trim().strip_prefix("- .")?.split(':').next());
    let mut count = 0;
    for path in mounted {
        count += 1;
        let path = deploy("compose").join(format!(".{path}"));
        assert!(path.exists(), "{} does not exist", path.display());
    }
    assert!(count >= 5, "{count}");
    let image = concat!("image: torana:", env!("CARGO_PKG_VERSION"), "\n");
    assert!(text.contains(image), "it runs this version");
}
