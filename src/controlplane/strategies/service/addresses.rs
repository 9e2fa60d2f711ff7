//! IPAddress objects, the durable record of which Service owns a cluster IP.
//!
//! [`AddressRegistry`] is the interface the allocator uses, [`IpAddressStore`] its implementation over the
//! store of IPAddresses.

use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::controlplane::allocators::IpFamily;
use crate::registry::StoreLookup;
use crate::registry::store::Store;
use crate::registry::strategy::Context;
use crate::registry::write::{DeleteOptions, WriteOptions};
use async_trait::async_trait;
use std::net::IpAddr;

/// Label with the address's family, `IPv4` or `IPv6`.
pub(crate) const FAMILY_LABEL: &str = "ipaddress.kubernetes.io/ip-family";
/// Label with the component that created the object.
pub(crate) const MANAGED_BY_LABEL: &str = "ipaddress.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY_LABEL`] for objects created by the allocator.
pub(crate) const ALLOCATOR: &str = "ipallocator.k8s.io";

/// Records the owners of cluster IPs.
#[async_trait]
pub(crate) trait AddressRegistry: Send + Sync + 'static {
    /// Records the Service as owner of `ip`. Returns false if the address is already recorded.
    ///
    /// # Errors
    /// Any other failure to create the record.
    ///
    /// # Cancel safety
    /// Not cancel safe: after cancellation the record may or may not exist.
    async fn claim(&self, ip: IpAddr, namespace: &str, name: &str) -> Result<bool>;

    /// Removes the record if this Service is the owner. Failures are logged: the repair loop cleans up later.
    async fn release(&self, ip: IpAddr, namespace: &str, name: &str);
}

/// Builds the IPAddress object that records a Service as owner of `ip`.
pub(crate) fn ip_address_for(ip: IpAddr, namespace: &str, name: &str) -> Value {
    let mut v = crate::json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {"name": (ip.to_string())},
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
    });
    v.set(&["metadata", "labels", FAMILY_LABEL], IpFamily::of(ip).name());
    v.set(&["metadata", "labels", MANAGED_BY_LABEL], ALLOCATOR);
    v
}

/// True if the IPAddress object names this Service as its parent.
pub(crate) fn belongs_to(record: &Value, namespace: &str, name: &str) -> bool {
    let parent = record.at(&["spec", "parentRef"]);
    let reference = ["group", "resource", "namespace", "name"].map(|k| parent.str_at(&[k]));
    reference == ["", "services", namespace, name]
}

/// Deletes this IPAddress object. One that was created under its name since it was read is another record, and
/// stays.
///
/// # Errors
/// Any failure but that the object is gone.
pub(crate) async fn delete_record(store: &Store, record: &Value) -> Result<()> {
    let options = DeleteOptions {
        uid: Some(record.uid().to_owned()),
        ..DeleteOptions::default()
    };
    match store.delete(&Context::system(""), record.name(), &options).await {
        // 404: another gateway was faster. 409: the UID differs.
        Err(e) if matches!(e.code, 404 | 409) => Ok(()),
        done => done.map(drop),
    }
}

/// Records owners in the store of IPAddresses.
pub(crate) struct IpAddressStore(pub(crate) StoreLookup);

#[async_trait]
impl AddressRegistry for IpAddressStore {
    async fn claim(&self, ip: IpAddr, namespace: &str, name: &str) -> Result<bool> {
        let store = self.0.get("networking.k8s.io", "ipaddresses")?;
        let mut object = ip_address_for(ip, namespace, name);
        // This object has not passed a decoder, which adds the fields that the version always encodes.
        store.resource().schema.normalize(&mut object)?;
        let options = WriteOptions {
            manager: Some("kube-apiserver".to_owned()),
            ..WriteOptions::default()
        };
        // As the server: a user who writes a Service needs no permission for IPAddresses.
        match store.create(&Context::system(""), object, &options).await {
            Ok(_) => Ok(true),
            Err(e) if e.reason == "AlreadyExists" => Ok(false),
            Err(e) => Err(e),
        }
    }

    async fn release(&self, ip: IpAddr, namespace: &str, name: &str) {
        let text = ip.to_string();
        let gone: Result<()> = async {
            let store = self.0.get("networking.k8s.io", "ipaddresses")?;
            // The repair may have given the object to another Service.
            let record = store.get_value("", &text).await?;
            if belongs_to(&record, namespace, name) {
                delete_record(&store, &record).await?;
            }
            Ok(())
        }
        .await;
        match gone {
            Ok(()) => {}
            Err(e) if e.code == 404 => {}
            Err(e) => tracing::warn!(%ip, error = %e, "could not remove an IPAddress"),
        }
    }
}
