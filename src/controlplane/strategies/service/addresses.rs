//! IPAddress objects: the record of who has which cluster IP.

use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::controlplane::allocators::Family;
use crate::controlplane::subresources::LateStore;
use crate::registry::store::WriteOptions;
use crate::registry::strategy::Context;
use async_trait::async_trait;
use std::net::IpAddr;

/// Says which family an address is of.
pub(crate) const FAMILY_LABEL: &str = "ipaddress.kubernetes.io/ip-family";
/// Says who made the object.
pub(crate) const MANAGED_BY_LABEL: &str = "ipaddress.kubernetes.io/managed-by";
/// The allocator, as [`MANAGED_BY_LABEL`] has it.
pub(crate) const ALLOCATOR: &str = "ipallocator.k8s.io";

/// Records who has an address.
#[async_trait]
pub trait Addresses: Send + Sync + 'static {
    /// Records that the Service has it; false where somebody has.
    ///
    /// # Errors
    /// Any other refusal of the record.
    async fn claim(&self, ip: IpAddr, namespace: &str, name: &str) -> Result<bool>;

    /// Forgets that the Service has it; others' records stay.
    async fn release(&self, ip: IpAddr, namespace: &str, name: &str);
}

/// The object that says that a Service has the address.
pub(crate) fn record(ip: IpAddr, namespace: &str, name: &str) -> Value {
    let mut v = crate::json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {"name": (ip.to_string())},
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
    });
    v.set(&["metadata", "labels", FAMILY_LABEL], Family::of(ip).name());
    v.set(&["metadata", "labels", MANAGED_BY_LABEL], ALLOCATOR);
    v
}

/// True where the object says so.
pub(crate) fn belongs_to(record: &Value, namespace: &str, name: &str) -> bool {
    let parent = record.at(&["spec", "parentRef"]);
    let said = ["group", "resource", "namespace", "name"].map(|k| parent.str_at(&[k]));
    said == ["", "services", namespace, name]
}

/// Records in the store of IPAddresses.
#[derive(Clone, Default)]
pub(crate) struct Stored(pub(crate) LateStore);

#[async_trait]
impl Addresses for Stored {
    async fn claim(&self, ip: IpAddr, namespace: &str, name: &str) -> Result<bool> {
        let store = self.0.get()?;
        let mut object = record(ip, namespace, name);
        store.resource().schema.normalize(&mut object)?;
        let options = WriteOptions {
            manager: Some("kube-apiserver".to_owned()),
            ..WriteOptions::default()
        };
        match store.create(&Context::system(""), object, &options).await {
            Ok(_) => Ok(true),
            Err(e) if e.reason == "AlreadyExists" => Ok(false),
            Err(e) => Err(e),
        }
    }

    async fn release(&self, ip: IpAddr, namespace: &str, name: &str) {
        let text = ip.to_string();
        let gone: Result<()> = async {
            let store = self.0.get()?;
            if belongs_to(&store.get_value("", &text).await?, namespace, name) {
                store.delete_by_name(&Context::system(""), &text).await?;
            }
            Ok(())
        }
        .await;
        match gone {
            Ok(()) => {}
            Err(e) if e.code == 404 => {}
            Err(e) => tracing::warn!(%ip, error = %e, "an address stays recorded until it is repaired"),
        }
    }
}
