//! Maintains the ConfigMap with the date since which uses of legacy tokens are recorded; the token cleaner of
//! kube-controller-manager waits for it (upstream's `pkg/controlplane/controller/legacytokentracking`). Start
//! at [`ensure`]. Recording the uses is left to `authn`.

use super::super::ControlPlane;
use super::{MANAGER, change, create_if_missing, find};
use crate::apimachinery::status::Result;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";

/// Creates the ConfigMap with today's date. An existing date is kept if it is valid.
pub(super) async fn ensure(plane: &ControlPlane) -> Result<()> {
    let store = plane.store("", "configmaps");
    let today = time::now().chars().take("2006-01-02".len()).collect::<String>();
    let Some(live) = find(store, NAMESPACE, NAME).await? else {
        let object = crate::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": NAMESPACE},
            "data": {"since": today},
        });
        return create_if_missing(store, object, MANAGER).await;
    };
    if has_date(&live) {
        return Ok(());
    }
    change(store, &live, MANAGER, |v| {
        // Another server may have written a date since the read.
        if !has_date(v) {
            v.set(&["data", "since"], today.as_str());
        }
    })
    .await
}

fn has_date(config_map: &Value) -> bool {
    let since = config_map.str_at(&["data", "since"]);
    // The length excludes other notations that the parser would accept.
    since.len() == "2006-01-02".len() && time::parse(&format!("{since}T00:00:00Z")).is_ok()
}
