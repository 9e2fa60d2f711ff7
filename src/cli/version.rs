//! The output of `torana version`.

use crate::json;

/// The upstream version whose behaviour is implemented.
const KUBERNETES: &str = "v1.36.2";

/// Renders the version as `text`, `json` or `yaml`.
pub(super) fn render(format: &str) -> String {
    let torana = concat!("v", env!("CARGO_PKG_VERSION"));
    let platform = format!("{}/{}", std::env::consts::OS, arch());
    match format {
        "json" => {
            let tree = json!({
                "gitVersion": torana,
                "kubernetesVersion": KUBERNETES,
                "platform": platform.as_str(),
            });
            format!("{}\n", crate::apimachinery::codec::json::to_string(&tree))
        }
        "yaml" => format!("gitVersion: {torana}\nkubernetesVersion: {KUBERNETES}\nplatform: {platform}\n"),
        _ => format!("Torana {torana}\nKubernetes API {KUBERNETES}\nPlatform {platform}\n"),
    }
}

/// The architecture's name in Go.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
