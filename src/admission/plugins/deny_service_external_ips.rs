//! DenyServiceExternalIPs: no new `externalIPs` on Services, because they could intercept traffic. As
//! upstream's `plugin/pkg/admission/serviceexternalips`.

use crate::admission::{Admission, Attributes, Operation, forbidden};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::collections::HashSet;

/// Rejects Services with new external IPs; those already present may stay.
pub(crate) struct DenyServiceExternalIPs;

#[async_trait]
impl Admission for DenyServiceExternalIPs {
    fn handles(&self, attributes: &Attributes) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update) && attributes.is("", "services")
    }

    async fn validate(&self, attributes: &Attributes, service: &Value) -> Result<()> {
        let had = attributes.old_object.as_deref().unwrap_or(&Value::Null);
        let had = had.at(&["spec", "externalIPs"]).items().iter();
        // A set: comparing each address with each would be quadratic in the size of the request.
        let had: HashSet<Option<&str>> = had.map(Value::as_str).collect();
        let now = service.at(&["spec", "externalIPs"]).items();
        match now.iter().all(|ip| had.contains(&ip.as_str())) {
            true => Ok(()),
            false => Err(forbidden(
                attributes,
                service,
                "Use of external IPs is denied by admission control",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, request, update};
    use crate::json;

    #[tokio::test]
    async fn external_ips_may_be_kept_or_removed_but_not_added() {
        let service = |ips: Value| {
            let mut v = json!({"metadata": {"name": "s"}});
            v.set(&["spec", "externalIPs"], ips);
            v
        };
        let two = service(json!(["1.2.3.4", "1.2.3.5"]));
        let create = request(Operation::Create, "", "services", "s");
        assert!(ask(&DenyServiceExternalIPs, &create, &two).await.is_err());
        assert!(ask(&DenyServiceExternalIPs, &create, &service(json!([]))).await.is_ok());
        let old = || update("", "services", two.clone());
        let fewer = service(json!(["1.2.3.5"]));
        assert!(ask(&DenyServiceExternalIPs, &old(), &fewer).await.is_ok());
        let other = service(json!(["1.2.3.6"]));
        assert_eq!(
            ask(&DenyServiceExternalIPs, &old(), &other).await.unwrap_err(),
            "services \"s\" is forbidden: Use of external IPs is denied by admission control"
        );
    }
}
